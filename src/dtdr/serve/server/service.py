"""The state of one server, and of one request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from anyio import to_thread
from starlette.exceptions import HTTPException

from dtdr.errors import DtdrError, OutputError
from dtdr.serve.feedback import FeedbackLog
from dtdr.serve.server.keys import ApiKey, read_keys
from dtdr.serve.server.logs import log
from dtdr.serve.server.models import ModelRegistry, ServedModel
from dtdr.serve.server.server_metrics import Metrics
from dtdr.serve.server.settings import Settings

_PAUSE = 2.0
"""Seconds between two looks at keys."""
_HOUR = 3_600.0


@dataclass
class Service:
    """Settings, models, keys and metrics of one server."""

    settings: Settings
    models: ModelRegistry
    metrics: Metrics
    keys: tuple[ApiKey, ...] | None = None
    is_stopping: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons by failing task, such as ``model mail`` or ``keys``."""
    feedback_logs: dict[str, FeedbackLog] = field(default_factory=dict)
    """By model, if feedback is logged for ``dtdr learn``."""
    feedback_hours: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By key, when its hour began, and the demonstrations that it has sent since."""
    open_paths: frozenset[str] = frozenset()
    """Paths that need no key."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The OpenAPI document."""

    def stop(self) -> None:
        """Give up long work within seconds, and take no more of it."""
        self.is_stopping = True
        for model in self.models.values():
            model.stop()

    def check_step(
        self, query: str, history: Sequence[object] = (), before: Sequence[object] = ()
    ) -> None:
        """Check the lengths of a step.

        Raises:
            HTTPException: it is too long, or its query is blank.
        """
        limits = self.settings.limits
        if not query.strip():
            raise HTTPException(422, "the query is empty; say what the user asked for")
        for count, limit, what in (
            (len(query), limits.query_characters, "the query has {} characters"),
            (len(history), limits.history, "the history has {} calls"),
            (len(before), limits.history, "'before' has {} messages and calls"),
        ):
            if count > limit:
                raise HTTPException(422, f"{what.format(count)}; the limit is {limit}")

    def count_feedback(self, key: ApiKey | None, count: int) -> None:
        """Count demonstrations of a key; without keys, only programs of this machine send some.

        Raises:
            HTTPException: it has sent too many within an hour.
        """
        if key is None:
            return
        limit, now = self.settings.limits.hourly_demonstrations, time.monotonic()
        began, sent = self.feedback_hours.get(key.id, (now, 0))
        if now - began >= _HOUR:
            began, sent = now, 0
        if sent + count > limit:
            reason = f"this key has sent {sent} demonstrations within an hour; the limit is {limit}"
            raise HTTPException(429, reason, {"retry-after": str(ceil(began + _HOUR - now))})
        self.feedback_hours[key.id] = began, sent + count

    async def reload(self, model: ServedModel) -> None:
        """Load a model's folder again.

        Raises:
            DtdrError: the folder cannot be used; the model stays as it was.
        """
        dropped = model.unsaved
        try:
            await model.reload()
        except DtdrError as error:
            self.metrics.reloads.labels(model.name, "failed").inc()
            self.show_failure(f"model {model.name}", str(error))
            raise
        self.show_failure(f"model {model.name}", None)
        self.metrics.reloads.labels(model.name, "done").inc()
        log(
            "reloaded",
            model=model.name,
            generation=model.current.generation,
            dropped_demonstrations=dropped,
        )

    async def watch(self) -> None:
        """Look after each folder and the keys until cancelled.

        Each has a task, so one that fails or is slow delays no other.
        """
        seconds = self.settings.watch_seconds
        async with asyncio.TaskGroup() as tasks:

            def repeat(task: str, pause: float, work: Callable[[], Awaitable[None]]) -> None:
                tasks.create_task(self._repeat(task, pause, work))

            if (file := self.settings.keys) is not None:
                repeat("keys", min(seconds or _PAUSE, _PAUSE), partial(self._refresh_keys, file))
            for model in self.models.values() if seconds else ():
                repeat(f"model {model.name}", seconds, partial(self._follow, model))

    async def _repeat(self, task: str, pause: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(pause)
            failure = None
            try:
                await work()
            except HTTPException as error:
                failure = error.detail
            except DtdrError as error:
                failure = str(error)
            except Exception as error:  # noqa: BLE001  # its text may be private
                failure = type(error).__name__
            self.show_failure(task, failure)

    async def _follow(self, model: ServedModel) -> None:
        """Reload a model whose folder changed; a failure lasts until the folder changes again."""
        if await to_thread.run_sync(lambda: model.changed):
            await self.reload(model)
        elif model.reload_error is not None:
            raise DtdrError(model.reload_error)

    async def _refresh_keys(self, file: Path) -> None:
        """Read the keys again; those of a damaged file stay as they were."""
        former, self.keys = self.keys, read_keys(file)
        if self.keys != former:
            log("keys changed", keys=len(self.keys))

    @contextlib.contextmanager
    def showing_failure(self, task: str) -> Iterator[None]:
        """Show whether a task can write."""
        try:
            yield
        except OutputError as error:
            self.show_failure(task, str(error))
            raise
        self.show_failure(task, None)

    def show_failure(self, task: str, reason: str | None) -> None:
        """Show in log, metrics and ``/readyz`` that a task fails, or no longer does."""
        if self.failures.get(task) == reason:
            return
        self.metrics.failing.labels(task).set(reason is not None)
        if reason is None:
            del self.failures[task]
            log("works again", task=task)
        else:
            self.failures[task] = reason
            log("failing", level=logging.ERROR, task=task, reason=reason)


@dataclass(slots=True)
class RequestContext:
    """One request."""

    service: Service
    id: str
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    key: ApiKey | None = None
    path: str = "unmatched"
    parameters: Mapping[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)
    size: int = 0
    """Bytes of the body."""
    log_fields: dict[str, Any] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """The id of the request's key."""
        return "" if self.key is None else self.key.id

    def require_admin(self) -> None:
        """Check that the request may change something.

        Raises:
            HTTPException: its key may only rank, or the server only reads.
        """
        if self.service.settings.read_only:
            raise HTTPException(403, "this server changes no model; start it with --learn")
        if self.key is not None and self.key.role != "admin":
            raise HTTPException(
                403, "this key may only rank; make one with: dtdr keys create FILE --role admin"
            )

    def log(self, model: str, query: str | None = None, **fields: int) -> None:
        """Add to the request's line in the log; the query only if the settings allow it."""
        self.log_fields = {"model": model, **fields}
        if query is not None and self.service.settings.log_queries:
            self.log_fields["query"] = query
