"""The open sessions, and what they may hold together."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from starlette.exceptions import HTTPException

from dtdr.run import BeforeLike, CallLike
from dtdr.server.models import ServedModel
from dtdr.server.served_session import ServedSession
from dtdr.server.settings import Limits


class SessionStore(ABC):
    """The sessions that this process holds, least recently used first.

    Args:
        limits: how many, how long, and calls in each.
        clock: seconds that only grow; another one in tests.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._open: OrderedDict[str, ServedSession] = OrderedDict()
        self._prepared: OrderedDict[str, ServedSession] = OrderedDict()
        self._prepared_bytes = 0
        self._bytes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    @abstractmethod
    async def open(
        self,
        model: ServedModel,
        query: str,
        calls: Sequence[CallLike],
        owner: str,
        before: Sequence[BeforeLike] = (),
    ) -> ServedSession:
        """A new session.

        Raises:
            HTTPException: there is no room for it.
        """

    @abstractmethod
    async def find(
        self, identifier: str, owner: str, *, may_lack_calls: bool = False
    ) -> ServedSession:
        """An open session, whose time to live starts anew.

        Args:
            identifier: of the session.
            owner: who asks.
            may_lack_calls: whether it may lack calls that another process was told, which ``call``
                notices.

        Raises:
            HTTPException: there is none of that id that belongs to the owner.
        """

    @abstractmethod
    async def call(
        self, session: ServedSession, calls: Sequence[CallLike], key: str, version: int
    ) -> bool:
        """Tell a session what was called; False, and nothing was told, where it has changed.

        Args:
            session: that was found.
            calls: of one request.
            key: of the request.
            version: of the session that the request was read for.

        Raises:
            HTTPException: its history would grow too long or large; nothing was told.
        """

    @abstractmethod
    async def close(self, session: ServedSession) -> None:
        """Drop a session."""

    async def expire(self) -> int:
        """Drop the sessions that were idle for too long; returns how many."""
        return self._expire()

    @abstractmethod
    async def shut_down(self) -> None:
        """Close what connects this process with others."""

    def forget(self, model: ServedModel) -> None:
        """Let go of a snapshot of a model that was replaced, so that its memory is free."""
        for session in self._open.values():
            if session.model is model:
                session.forget()

    def _check_length(self, session: ServedSession, calls: Sequence[CallLike]) -> None:
        if len(session.calls) + len(calls) > self._limits.history:
            raise HTTPException(
                422, f"the history would hold more than {self._limits.history} calls"
            )

    def _full(self, what: str, seconds: float) -> HTTPException:
        """The refusal of what there is no room for, before a session expires in so many seconds."""
        return HTTPException(
            429,
            f"{what}, which is the limit; delete those that are done, or use /v1/rank",
            {"retry-after": str(min(max(1, int(seconds) + 1), 60))},
        )

    def _key_full(self, held: int, seconds: float) -> HTTPException:
        """The refusal of what would make the sessions of one key too large together."""
        return self._full(f"the open sessions of this key hold {held} bytes", seconds)

    def _explain_missing(self) -> HTTPException:
        return HTTPException(
            404,
            "no such session is open; it was deleted, expired "
            f"({self._limits.session_seconds:g} s without a request) or belongs to another key",
        )

    def _keep(self, session: ServedSession) -> None:
        """Hold a session."""
        self._open[session.id] = session
        self._bytes[session.owner] += session.bytes
        self._use(session)

    def _use(self, session: ServedSession) -> None:
        """Start a session's time to live anew, and let it keep what is prepared.

        Sessions that were not used for longer prepare their query anew when they are used again.
        """
        session.used = self._clock()
        self._open.move_to_end(session.id)
        if session.id not in self._prepared:
            self._prepared[session.id] = session
            self._prepared_bytes += session.prepared_bytes
        self._prepared.move_to_end(session.id)
        while self._prepared_bytes > self._limits.prepared_bytes and len(self._prepared) > 1:
            oldest = self._prepared.popitem(last=False)[1]
            self._prepared_bytes -= oldest.prepared_bytes
            oldest.forget()

    def _add(self, session: ServedSession, calls: Sequence[CallLike], key: str) -> None:
        """Add the calls of a request to a session."""
        before = session.bytes
        session.add(calls, key)
        if self._open.get(session.id) is session:
            self._bytes[session.owner] += session.bytes - before

    def _drop(self, session: ServedSession) -> None:
        """Hold a session no longer."""
        if self._open.pop(session.id, None) is not None:
            if self._prepared.pop(session.id, None) is not None:
                self._prepared_bytes -= session.prepared_bytes
            self._bytes[session.owner] -= session.bytes
            if not self._bytes[session.owner]:
                del self._bytes[session.owner]

    def _expire(self) -> int:
        limit = self._clock() - self._limits.session_seconds
        count = 0
        while self._open:
            oldest = next(iter(self._open.values()))
            if oldest.used > limit:
                break
            self._drop(oldest)
            count += 1
        return count


class MemorySessions(SessionStore):
    """The sessions of one process, which end with it."""

    async def open(
        self,
        model: ServedModel,
        query: str,
        calls: Sequence[CallLike],
        owner: str,
        before: Sequence[BeforeLike] = (),
    ) -> ServedSession:
        """A new session.

        Raises:
            HTTPException: too many are open, or they are too large together.
        """
        self._expire()
        if len(self._open) >= self._limits.sessions:
            raise self._full(f"{len(self._open)} sessions are open", self._seconds_to_expiry())
        session = ServedSession(model, query, calls, owner, before)
        self._check_bytes(owner, session.bytes)
        self._keep(session)
        return session

    def _check_bytes(self, owner: str, more: int) -> None:
        """Refuse what would make the sessions of all, or of one key, too large together.

        Raises:
            HTTPException: it would.
        """
        total = self._bytes.total()
        if total + more > self._limits.session_bytes:
            raise self._full(f"the open sessions hold {total} bytes", self._seconds_to_expiry())
        own = self._bytes[owner]
        if owner and own + more > self._limits.key_session_bytes:
            raise self._key_full(own, self._seconds_to_expiry())

    def _seconds_to_expiry(self) -> float:
        """Seconds until the session that was used least recently expires."""
        oldest = next(iter(self._open.values()), None)
        idle = 0.0 if oldest is None else self._clock() - oldest.used
        return self._limits.session_seconds - idle

    async def find(
        self, identifier: str, owner: str, *, may_lack_calls: bool = False
    ) -> ServedSession:
        """An open session, whose time to live starts anew; see ``SessionStore``."""
        self._expire()
        session = self._open.get(identifier)
        if session is None or session.owner != owner:
            raise self._explain_missing()
        self._use(session)
        return session

    async def call(
        self, session: ServedSession, calls: Sequence[CallLike], key: str, version: int
    ) -> bool:
        """Tell a session what was called; see ``SessionStore``."""
        if session.version != version:
            return False
        self._check_length(session, calls)
        self._check_bytes(session.owner, session.bytes_with(calls) - session.bytes)
        self._add(session, calls, key)
        return True

    async def close(self, session: ServedSession) -> None:
        """Drop a session."""
        self._drop(session)

    async def shut_down(self) -> None:
        """Nothing is shared."""
