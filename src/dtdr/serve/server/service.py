"""What every endpoint of one server shares, and what is done with it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.exceptions import HTTPException

from dtdr.errors import DtdrError, OutputError
from dtdr.net.server_logs import log
from dtdr.serve.feedback import FeedbackLog
from dtdr.serve.server.keys import ApiKey, KeyFile
from dtdr.serve.server.models import ModelRegistry, ServedModel
from dtdr.serve.server.server_metrics import Metrics
from dtdr.serve.server.settings import Settings
from dtdr.serve.server.tracing import Tracing


class SessionStore(Protocol):
    """Where sessions are open: in this process, or in Redis."""

    async def open(self, session: Any) -> None:
        """Keep a new session."""

    async def find(self, identifier: str, owner: str) -> Any:
        """An open session, whose time to live starts again."""

    async def add(self, session: Any, told: Any) -> bool:
        """Put a session in the place of one that was found; False if that has changed since."""

    async def close(self, session: Any) -> None:
        """Drop a session."""

    async def expire(self) -> int:
        """Drop the sessions that were idle for too long; returns how many."""

    async def shut_down(self) -> None:
        """Close what connects this process with others."""


@dataclass
class Service:
    """Settings, models, sessions, keys and metrics of one server."""

    settings: Settings
    models: ModelRegistry
    sessions: SessionStore
    metrics: Metrics
    tracing: Tracing
    keys: KeyFile | None = None
    is_stopping: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    """What is looked after and fails, such as ``model mail`` or ``keys``, with the reason."""
    feedback_logs: dict[str, FeedbackLog] = field(default_factory=dict)
    """By model, where feedback is logged for ``dtdr learn``."""
    open_paths: frozenset[str] = frozenset()
    """Paths that need no key."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The OpenAPI document of what is answered."""

    def stop(self) -> None:
        """Take no more work that takes long, and give up soon what is under way."""
        self.is_stopping = True
        for model in self.models.values():
            model.workers.stop()

    def check_step(
        self, query: str, history: Sequence[object], before: Sequence[object] = ()
    ) -> None:
        """Refuse a step that is too long, or whose query is blank.

        Raises:
            HTTPException: it is.
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

    async def reload(self, model: ServedModel) -> None:
        """Load a model's folder again.

        Raises:
            DtdrError: the folder cannot be used; the model stays as it was.
        """
        dropped = model.unsaved
        try:
            snapshot = await model.reload()
        except DtdrError as error:
            self.metrics.reloads.labels(model.name, "failed").inc()
            self.show_failure(f"model {model.name}", str(error))
            raise
        self.show_failure(f"model {model.name}", None)
        self.metrics.reloads.labels(model.name, "done").inc()
        self.show_generation(model)
        log(
            "reloaded",
            model=model.name,
            generation=snapshot.generation,
            dropped_demonstrations=dropped,
        )

    async def save(self, model: ServedModel) -> None:
        """Write what was learned to a model's folder.

        Raises:
            HTTPException: another process changed the folder.
            DtdrError: it cannot be written.
        """
        with self.showing_failure(f"save {model.name}"):
            saved = await model.save()
        self.show_generation(model)
        log("saved", model=model.name, demonstrations=saved)

    @contextlib.contextmanager
    def showing_failure(self, task: str) -> Iterator[None]:
        """Show whether what is written can be: a full disk, say."""
        try:
            yield
        except OutputError as error:
            self.show_failure(task, str(error))
            raise
        self.show_failure(task, None)

    def show_failure(self, task: str, reason: str | None) -> None:
        """Show in log, metrics and ``/readyz`` that something fails, or no longer does."""
        if self.failures.get(task) == reason:
            return
        self.metrics.failing.labels(task).set(reason is not None)
        if reason is None:
            del self.failures[task]
            log("works again", task=task)
        else:
            self.failures[task] = reason
            log("failing", level=logging.ERROR, task=task, reason=reason)

    def show_generation(self, model: ServedModel) -> None:
        """Show the snapshot that is served in the metrics."""
        self.metrics.generation.labels(model.name).set(model.current.generation)
        self.metrics.unsaved.labels(model.name).set(model.unsaved)
        self.metrics.written.labels(model.name).set(model.written)


@dataclass(slots=True)
class Call:
    """One request on its way through the server."""

    service: Service
    id: str
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    key: ApiKey | None = None
    path: str = "unmatched"
    parameters: Mapping[str, str] = field(default_factory=dict)
    status: int = 0
    started: float = field(default_factory=time.perf_counter)
    log_fields: dict[str, Any] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """Who a session belongs to."""
        return "" if self.key is None else self.key.id

    def require_admin(self) -> None:
        """Refuse a key that may only rank, and every change on a server that only reads.

        Raises:
            HTTPException: the key has another role, or nothing may be changed.
        """
        if self.service.settings.read_only:
            raise HTTPException(403, "this server changes no model; start it with --learn")
        if self.key is not None and self.key.role != "admin":
            raise HTTPException(
                403, "this key may only rank; make one with: dtdr keys create FILE --role admin"
            )

    def log(self, model: str, query: str | None = None, **fields: int) -> None:
        """Add to the request's line in the log; the query only where that is allowed."""
        self.log_fields = {"model": model, **fields}
        if query is not None and self.service.settings.log_queries:
            self.log_fields["query"] = query
