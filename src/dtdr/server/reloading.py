"""Keeping models as their folders are, and folders as their models are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from dtdr.errors import DtdrError, InputError
from dtdr.server.answers import RefusedError
from dtdr.server.logs import log
from dtdr.server.models import ServedModel
from dtdr.server.state import State


async def reload_model(state: State, model: ServedModel) -> None:
    """Load a model's folder again, and say so.

    Raises:
        DtdrError: the folder cannot be used; the model stays as it was.
    """
    dropped = model.unsaved
    try:
        snapshot = await model.reload()
    except DtdrError as error:
        state.metrics.reloads.labels(model.name, "failed").inc()
        log("reload failed", level=logging.ERROR, model=model.name, reason=str(error))
        raise
    state.metrics.reloads.labels(model.name, "done").inc()
    note_generation(state, model)
    log("reloaded", model=model.name, generation=snapshot.generation, dropped_lessons=dropped)


async def save_model(state: State, model: ServedModel) -> None:
    """Write what was learned to a model's folder, and say so.

    Raises:
        RefusedError: somebody else changed the folder.
        DtdrError: it cannot be written.
    """
    saved = await model.save()
    note_generation(state, model)
    log("saved", model=model.name, demonstrations=saved)


async def reload_all(state: State) -> None:
    """Reload every model; what fails is logged, and the model stays as it was."""
    for model in state.shelf.values():
        with contextlib.suppress(DtdrError):
            await reload_model(state, model)


def note_generation(state: State, model: ServedModel) -> None:
    """Show the snapshot that is served in the metrics."""
    state.metrics.generation.labels(model.name).set(model.current.generation)
    state.metrics.unsaved.labels(model.name).set(model.unsaved)


async def watch(state: State) -> None:
    """Reload models whose folders change, and keys; save what was learned; expire sessions."""
    settings = state.settings
    saved = time.monotonic()
    pause = min(settings.watch_seconds or 2.0, settings.save_seconds or 2.0)
    while True:
        await asyncio.sleep(pause)
        try:
            if settings.watch_seconds:
                for model in state.shelf.values():
                    if model.changed:
                        with contextlib.suppress(DtdrError):
                            await reload_model(state, model)
            _refresh_keys(state)
            expired = state.sessions.expire()
            if expired:
                state.metrics.expired.inc(expired)
            if settings.save_seconds and time.monotonic() - saved >= settings.save_seconds:
                saved = time.monotonic()
                await save_all(state)
        except Exception:  # the watch must outlive whatever one round meets
            logging.getLogger("dtdr.server").exception("watching failed")


async def save_all(state: State) -> None:
    """Save every model that learned something; what fails is logged and tried again later."""
    for model in state.shelf.values():
        if not model.unsaved:
            continue
        try:
            await save_model(state, model)
        except (DtdrError, RefusedError) as error:
            log("saving failed", level=logging.ERROR, model=model.name, reason=str(error))


def _refresh_keys(state: State) -> None:
    if state.keys is None:
        return
    try:
        if state.keys.refresh():
            log("keys changed", keys=len(state.keys.keys))
    except InputError as error:
        log("keys not read", level=logging.ERROR, reason=str(error))
