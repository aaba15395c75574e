"""An open session: a query that is encoded once, and the calls made for it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import TypeVar

from dtdr.data.calls import END, ToolCall
from dtdr.data.run import BeforeLike, CallLike
from dtdr.predict.session import Session
from dtdr.rankers.ranking import Ranking
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.snapshots import Snapshot, prepared_bytes

Result = TypeVar("Result")

_SESSION_BYTES = 2_000
"""Of a session beside its texts."""
_KEY_BYTES = 150
"""Of the key of a request."""


@dataclass(frozen=True)
class Told:
    """The calls of one request to a session.

    Attributes:
        key: of the request.
        bytes: that they take.
    """

    calls: Sequence[CallLike]
    key: str
    bytes: int

    @classmethod
    def of(cls, calls: Sequence[CallLike], key: str) -> Told:
        """Calls, weighed."""
        return cls(calls, key, weigh(calls) + _KEY_BYTES)


class ServedSession:
    """One query on one model.

    Follows its model: after a reload the query is encoded once more and the calls are told again,
    so that nothing holds an old snapshot.

    Attributes:
        ids: of all calls, those before the query among them.
        next_number: the id of the next call that is told without one, if it is free.
        version: grows by one with every request that adds calls.
        keys: of the requests that added calls; one that is sent again adds nothing.
    """

    def __init__(
        self,
        model: ServedModel,
        query: str,
        calls: Sequence[CallLike],
        owner: str,
        before: Sequence[BeforeLike] = (),
        identifier: str | None = None,
    ) -> None:
        self.id = identifier or secrets.token_urlsafe(16)
        self.model = model
        self.query = query
        self.before = tuple(before)
        self.calls: list[CallLike] = []
        self.ids = {item.id for item in before if isinstance(item, ToolCall)}
        self.next_number = 1
        self.version = 0
        self.keys: set[str] = set()
        self.bytes = _SESSION_BYTES + getsizeof(query) + weigh(before) + weigh(calls)
        self._add(calls)
        self.owner = owner
        self.used = 0.0
        self._lock = asyncio.Lock()
        self.prepared_bytes = prepared_bytes(model.current.retriever, query)
        self._prepared: tuple[int, Session] | None = None
        self._told = 0

    @property
    def history(self) -> list[str]:
        """Names of the tools called, oldest first."""
        return [call.tool if isinstance(call, ToolCall) else str(call) for call in self.calls]

    async def rank(self, answer: Callable[[Snapshot, Ranking], Result]) -> Result:
        """What is answered with the ranking of the next step; see ``AskedStep``."""
        return await self._ask(
            lambda snapshot, session: answer(snapshot, session.rank()), is_ranking=True
        )

    async def ask(self, answer: Callable[[Snapshot, Session], Result]) -> Result:
        """What is answered at this step; see ``AskedStep``."""
        return await self._ask(answer, is_ranking=False)

    async def _ask(
        self, answer: Callable[[Snapshot, Session], Result], *, is_ranking: bool
    ) -> Result:
        async with self._lock:
            snapshot = self.model.current
            size = self._length_to_read(snapshot) if is_ranking else None
            return await snapshot.run(
                lambda: answer(snapshot, self._tell_session(snapshot)), size=size
            )

    def _length_to_read(self, snapshot: Snapshot) -> int | None:
        """Characters that a ranking reads now; None if outputs or messages are among them."""
        is_prepared = self._prepared is not None and self._prepared[0] == snapshot.generation
        calls = self.calls[self._told :] if is_prepared else self.calls
        if any(isinstance(call, ToolCall) for call in calls) or (self.before and not is_prepared):
            return None
        return sum(map(len, map(str, calls))) + (0 if is_prepared else len(self.query))

    def add(self, told: Told) -> None:
        """Add the calls of one request."""
        self.bytes += told.bytes
        self._add(told.calls)
        self.keys.add(told.key)
        self.version += 1

    def _add(self, calls: Sequence[CallLike]) -> None:
        """Add calls; those told by name get the id that a ``Session`` gives them."""
        for call in calls:
            if isinstance(call, ToolCall):
                self.ids.add(call.id)
            elif call == END:
                continue  # the end of plan is not a call
            else:
                number = self.next_number
                while str(number) in self.ids:
                    number += 1
                self.ids.add(str(number))
            self.next_number += 1
        self.calls.extend(calls)

    def forget(self) -> None:
        """Let go of what was prepared with a snapshot that was replaced."""
        self._prepared = None

    def _tell_session(self, snapshot: Snapshot) -> Session:
        """The session of a snapshot, told every call."""
        prepared = self._prepared
        if prepared is None or prepared[0] != snapshot.generation:
            session = snapshot.retriever.session(self.query, before=self.before)
            prepared = (snapshot.generation, session)
            self._prepared = prepared
            self._told = 0
        session = prepared[1]
        for call in self.calls[self._told :]:
            session.call(call if isinstance(call, ToolCall) else str(call))
            self._told += 1
        return session


def weigh(items: Sequence[CallLike | BeforeLike]) -> int:
    """Bytes that names, calls and messages take, and their places in a list."""
    return sum(
        8 + (getsizeof(item) if isinstance(item, str) else 500 + 3 * len(repr(item)))
        for item in items
    )
