"""Changes of a served model that wait, and the task that makes them one at a time."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.exceptions import HTTPException

from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.errors import DtdrError
from dtdr.predict.model import Model
from dtdr.serve.server.logs import logger
from dtdr.serve.server.schemas import PendingChange

_MOST_WAITING = 5_000
"""Demonstrations and tools that wait, of one model."""


@dataclass(frozen=True)
class ModelChange:
    """Changes of a model that requests ask for.

    Attributes:
        demonstrations: to learn from.
        added: new tools.
        removed: names of tools.
    """

    demonstrations: tuple[Demonstration, ...] = ()
    added: tuple[Tool, ...] = ()
    removed: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.demonstrations) + len(self.added) + len(self.removed)

    def apply(self, model: Model) -> Model:
        """A changed copy of a model.

        Raises:
            DtdrError: the model cannot change so.
        """
        changed = copy.copy(model)
        if self.demonstrations:
            changed.update(self.demonstrations)
        if self.added:
            changed.add_tools(self.added)
        if self.removed:
            changed.remove_tools(self.removed)
        return changed

    def describe(self) -> PendingChange:
        """The change as clients see it."""
        added = [tool.name for tool in self.added]
        return PendingChange(
            demonstrations=len(self.demonstrations),
            added_tools=added,
            removed_tools=list(self.removed),
        )


class LearningQueue:
    """The changes of one model that wait, oldest first; what was sent while one is made waits.

    Args:
        make: makes a change, and serves the changed model.

    Attributes:
        current: the change that is being made, or None.
        since: when it began.
        error: why the last change could not be made, or None.
    """

    def __init__(self, make: Callable[[ModelChange], Awaitable[None]]) -> None:
        self._make = make
        self._waiting: deque[ModelChange] = deque()
        self._task: asyncio.Task[None] | None = None
        self.current: ModelChange | None = None
        self.since: datetime | None = None
        self.error: str | None = None

    @property
    def waiting(self) -> ModelChange:
        """All that waits, without the change that is being made."""
        return _join(self._waiting)

    @property
    def after_current(self) -> ModelChange:
        """All that the served model has not learned yet."""
        return _join([*([self.current] if self.current else []), *self._waiting])

    def add(self, change: ModelChange) -> None:
        """Let a change wait for its turn.

        Raises:
            HTTPException: too much waits.
        """
        if sum(map(len, self._waiting)) + len(change) > _MOST_WAITING:
            reason = f"more than {_MOST_WAITING} demonstrations or tools would wait; try later"
            raise HTTPException(429, reason, {"retry-after": "60"})
        self._waiting.append(change)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    def stop(self) -> None:
        """Give up all changes."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        while self._waiting:
            # Feedback that arrived meanwhile is learned together, which takes as long as one.
            changes = [self._waiting.popleft()]
            while self._waiting and _is_feedback(changes[-1]) and _is_feedback(self._waiting[0]):
                changes.append(self._waiting.popleft())
            try:
                await self._try(_join(changes))
            except DtdrError:
                for change in changes:  # those that work alone
                    try:
                        await self._try(change)
                    except DtdrError as error:
                        self.error = str(error)
                        logger.error("a change of a model failed: %s", error)

    async def _try(self, change: ModelChange) -> None:
        self.current, self.since = change, datetime.now(UTC)
        try:
            await self._make(change)
            self.error = None
        except DtdrError:
            raise
        except Exception as error:  # noqa: BLE001  # another than dtdr's must not end the queue
            logger.exception("a change of a model failed")
            raise DtdrError(f"the change failed ({type(error).__name__})") from None
        finally:
            self.current = self.since = None


def _is_feedback(change: ModelChange) -> bool:
    return not change.added and not change.removed


def _join(changes: Sequence[ModelChange]) -> ModelChange:
    return ModelChange(
        tuple(item for change in changes for item in change.demonstrations),
        tuple(tool for change in changes for tool in change.added),
        tuple(name for change in changes for name in change.removed),
    )


def check_change(model: Model, name: str, waiting: ModelChange, change: ModelChange) -> None:
    """Check that a model can change as a request asks, after what waits.

    Raises:
        HTTPException: its ranker does not support it, a new name is known, or a name is not.
    """
    if change.demonstrations and not model.can_update:
        raise HTTPException(
            409,
            f"model {name!r} is a {model.name}, which does not support updates; fit it again with "
            "the new demonstrations, or serve a dtdr-f",
        )
    if not change.added and not change.removed:
        return
    if not model.can_change_tools:
        raise HTTPException(
            409,
            f"model {name!r} is a {model.name}, whose tools cannot change; fit it again with "
            "others, or serve a dtdr-f",
        )
    called = {call.tool for item in waiting.demonstrations for call in item.plan.calls}
    known = {*model.vocabulary, *called, *(tool.name for tool in waiting.added)}
    known -= {*waiting.removed, END}
    for tool in change.added:
        if tool.name in known:
            raise HTTPException(409, f"tool {tool.name!r} is already known")
    for gone in change.removed:
        if gone not in known:
            raise HTTPException(404, f"no tool is named {gone[:80]!r}")
