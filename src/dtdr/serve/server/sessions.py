"""The open sessions, and what they may hold together."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from starlette.exceptions import HTTPException

from dtdr.net.limits import Limits
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.served_session import ServedSession, Told


class Sessions:
    """The open sessions of one process, which end with it; least recently used first.

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

    async def open(self, session: ServedSession) -> None:
        """Hold a new session.

        Raises:
            HTTPException: there is no room for it.
        """
        self._expire()
        if len(self._open) >= self._limits.sessions:
            raise self._full(f"{len(self._open)} sessions are open", self._seconds_to_expiry())
        self._check_bytes(session.owner, session.bytes)
        self._keep(session)

    async def find(
        self, identifier: str, owner: str, *, may_lack_calls: bool = False
    ) -> ServedSession:
        """An open session, whose time to live starts again.

        Args:
            identifier: of the session.
            owner: who asks.
            may_lack_calls: whether it may lack calls that another process was told, which ``call``
                notices.

        Raises:
            HTTPException: there is none of that id that belongs to the owner.
        """
        self._expire()
        session = self._open.get(identifier)
        if session is None or session.owner != owner:
            raise self._explain_missing()
        self._use(session)
        return session

    async def call(self, session: ServedSession, told: Told, version: int) -> bool:
        """Tell a session what was called; False, and nothing was told, where it has changed.

        Args:
            session: that was found.
            told: the calls of one request.
            version: of the session that the request was read for.

        Raises:
            HTTPException: its history would grow too long or large; nothing was told.
        """
        if session.version != version:
            return False
        self._check_length(session, told)
        self._check_bytes(session.owner, told.bytes)
        self._add(session, told)
        return True

    async def close(self, session: ServedSession) -> None:
        """Drop a session."""
        self._drop(session)

    async def shut_down(self) -> None:
        """Close what connects this process with others: nothing."""

    async def expire(self) -> int:
        """Drop the sessions that were idle for too long; returns how many."""
        return self._expire()

    def forget(self, model: ServedModel) -> None:
        """Let go of a snapshot of a model that was replaced, so that its memory is free."""
        for session in self._open.values():
            if session.model is model:
                session.forget()

    def _check_length(self, session: ServedSession, told: Told) -> None:
        if len(session.calls) + len(told.calls) > self._limits.history:
            raise HTTPException(
                422, f"the history would have more than {self._limits.history} calls"
            )

    def _full(self, what: str, seconds: float) -> HTTPException:
        """Refuse a session for lack of room; the next one expires in this many seconds."""
        return HTTPException(
            429,
            f"{what}, which is the limit; delete those that are done, or use /v1/rank",
            {"retry-after": str(min(max(1, int(seconds) + 1), 60))},
        )

    def _key_full(self, held: int, seconds: float) -> HTTPException:
        """The refusal of what would make the sessions of one key too large together."""
        return self._full(f"the open sessions of this key take {held} bytes", seconds)

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
        """Restart a session's time to live, and let it keep what is prepared.

        Sessions that were not used for longer prepare their query again when they are used again.
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

    def _add(self, session: ServedSession, told: Told) -> None:
        """Add the calls of a request to a session."""
        session.add(told)
        if self._open.get(session.id) is session:
            self._bytes[session.owner] += told.bytes

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

    def _check_bytes(self, owner: str, more: int) -> None:
        """Refuse what would make the sessions of all, or of one key, too large together.

        Raises:
            HTTPException: it would.
        """
        total = self._bytes.total()
        if total + more > self._limits.session_bytes:
            raise self._full(f"the open sessions take {total} bytes", self._seconds_to_expiry())
        own = self._bytes[owner]
        if owner and own + more > self._limits.key_session_bytes:
            raise self._key_full(own, self._seconds_to_expiry())

    def _seconds_to_expiry(self) -> float:
        """Seconds until the session that was used least recently expires."""
        oldest = next(iter(self._open.values()), None)
        idle = 0.0 if oldest is None else self._clock() - oldest.used
        return self._limits.session_seconds - idle
