"""An open session: a query that is encoded once, and the calls made for it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence
from sys import getsizeof

from dtdr.arguments.prediction import CallPrediction
from dtdr.calls import END, ToolCall
from dtdr.plans.prediction import PlanPrediction
from dtdr.ranking import Ranking
from dtdr.retrievers.session import Session
from dtdr.retrievers.surprise import Surprise
from dtdr.run import BeforeLike, CallLike
from dtdr.server.models import ServedModel
from dtdr.server.snapshots import Snapshot, prepared_bytes

_SESSION_BYTES = 2_000
"""Of a session beside its texts."""
_KEY_BYTES = 150
"""Of the key of a request."""


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

    async def rank(self) -> tuple[Snapshot, Ranking]:
        """The ranking for the next step, and the snapshot that made it."""
        async with self._lock:
            snapshot = self.model.current
            return snapshot, await snapshot.run(self._rank, snapshot)

    async def search(
        self, text: str, top_k: int, among: Collection[str] | None
    ) -> tuple[Snapshot, Sequence[tuple[str, float]]]:
        """The tools that a text means at this step, and the snapshot that found them."""
        async with self._lock:
            snapshot = self.model.current
            return snapshot, await snapshot.run(self._search, snapshot, text, top_k, among)

    async def surprise(self, call: CallLike) -> tuple[Snapshot, Surprise]:
        """How odd a call is at this step, and the snapshot that says so."""
        async with self._lock:
            snapshot = self.model.current
            return snapshot, await snapshot.run(self._surprise, snapshot, call)

    async def predict(
        self, top_k: int, tool: str | None
    ) -> tuple[Snapshot, Sequence[CallPrediction]]:
        """The next calls, or the call of one tool, and the snapshot that predicted them."""
        async with self._lock:
            snapshot = self.model.current
            return snapshot, await snapshot.run_in_thread(self._predict, snapshot, top_k, tool)

    async def predict_plans(self, top_k: int) -> tuple[Snapshot, Sequence[PlanPrediction]]:
        """The most probable plans of what is left, and the snapshot that predicted them."""
        async with self._lock:
            snapshot = self.model.current
            return snapshot, await snapshot.run_in_thread(self._plans, snapshot, top_k)

    def bytes_with(self, calls: Sequence[CallLike]) -> int:
        """What the session would weigh with the calls of one more request."""
        return self.bytes + weigh(calls) + _KEY_BYTES

    def add(self, calls: Sequence[CallLike], key: str) -> None:
        """Add the calls of one request."""
        self.bytes = self.bytes_with(calls)
        self._add(calls)
        self.keys.add(key)
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

    def _rank(self, snapshot: Snapshot) -> Ranking:
        return self._tell_session(snapshot).rank()

    def _search(
        self, snapshot: Snapshot, text: str, top_k: int, among: Collection[str] | None
    ) -> Sequence[tuple[str, float]]:
        return self._tell_session(snapshot).search(text, top_k, among=among)

    def _surprise(self, snapshot: Snapshot, call: CallLike) -> Surprise:
        return self._tell_session(snapshot).surprise(call)

    def _predict(
        self, snapshot: Snapshot, top_k: int, tool: str | None
    ) -> Sequence[CallPrediction]:
        session = self._tell_session(snapshot)
        return session.next_calls(top_k) if tool is None else [session.fill(tool)]

    def _plans(self, snapshot: Snapshot, top_k: int) -> Sequence[PlanPrediction]:
        return self._tell_session(snapshot).plans(top_k)

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
