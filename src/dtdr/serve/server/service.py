"""What every endpoint of one server shares, and what is done with it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from dtdr.errors import DtdrError, OutputError
from dtdr.net.server_logs import log
from dtdr.serve.feedback import FeedbackLog
from dtdr.serve.server.keys import KeyFile
from dtdr.serve.server.models import ModelRegistry, ServedModel
from dtdr.serve.server.server_metrics import Metrics
from dtdr.serve.server.sessions import Sessions
from dtdr.serve.server.settings import Settings
from dtdr.serve.server.tracing import Tracing


@dataclass
class Service:
    """Settings, models, sessions, keys and metrics of one server."""

    settings: Settings
    models: ModelRegistry
    sessions: Sessions
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
        if len(query) > limits.query_characters:
            raise HTTPException(
                422,
                f"the query has {len(query)} characters; the limit is {limits.query_characters}",
            )
        for count, what in (
            (len(history), f"the history holds {len(history)} calls"),
            (len(before), f"'before' holds {len(before)} messages and calls"),
        ):
            if count > limits.history:
                raise HTTPException(422, f"{what}; the limit is {limits.history}")

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
