"""Keeping models as their folders are, and keys as their file is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.exceptions import HTTPException

from dtdr.errors import DtdrError
from dtdr.net.server_logs import log
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.service import Service

_SECONDS = 2.0
"""Between two looks at keys and sessions, and at folders unless the settings say otherwise."""


async def watch(service: Service) -> None:
    """Look after every folder, the keys and the sessions until cancelled, each on its own.

    So nothing that fails or takes long for one keeps another from being looked after.
    """
    seconds = service.settings.watch_seconds or _SECONDS
    async with asyncio.TaskGroup() as tasks:

        def repeat(task: str, pause: float, work: Callable[[], Awaitable[None]]) -> None:
            tasks.create_task(_repeat(service, task, pause, work))

        repeat("sessions", _SECONDS, partial(_expire_sessions, service))
        if service.keys is not None:
            repeat("keys", min(seconds, _SECONDS), partial(_refresh_keys, service))
        for model in service.models.values():
            if service.settings.watch_seconds:
                repeat(f"model {model.name}", seconds, partial(_follow, service, model))


async def _repeat(
    service: Service, task: str, pause: float, work: Callable[[], Awaitable[None]]
) -> None:
    while True:
        await asyncio.sleep(pause)
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # it is tried again, whatever it was
            service.show_failure(task, _text(error))
        else:
            service.show_failure(task, None)


async def _follow(service: Service, model: ServedModel) -> None:
    """Reload a model whose folder changed; a failure stays one until the folder changes again."""
    if model.changed:
        await service.reload(model)
    elif model.reload_error is not None:
        raise DtdrError(model.reload_error)


async def _refresh_keys(service: Service) -> None:
    if service.keys is not None and service.keys.refresh():
        log("keys changed", keys=len(service.keys.keys))


async def _expire_sessions(service: Service) -> None:
    service.metrics.expired.inc(await service.sessions.expire())


async def reload_all(service: Service) -> None:
    """Reload every model; what fails is logged, and the model stays as it was."""
    for model in service.models.values():
        with contextlib.suppress(DtdrError):
            await service.reload(model)


def _text(error: Exception) -> str:
    """The reason of a failure; of an unexpected one, its type only: its text may be private."""
    if isinstance(error, HTTPException):
        return error.detail
    return str(error) if isinstance(error, DtdrError) else type(error).__name__
