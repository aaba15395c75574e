"""The open sessions of one process, each a run, and their limits."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

from dtdr.data.calls import ToolCall
from dtdr.data.run import Run
from dtdr.net.servers import Limits
from dtdr.serve.server.models import AskedStep, ServedModel

_SESSION_BYTES = 2_000
"""Of a session without its texts."""
_CALL_BYTES = 300
"""Of a call without its texts."""


@dataclass(frozen=True, eq=False)
class OpenSession:
    """A run on one model; a request that adds calls replaces it.

    Attributes:
        owner: the key that opened it.
        sent: bytes of its requests.
        keys: of the requests that added calls; a repeated one adds nothing.
    """

    model: ServedModel
    run: Run
    owner: str
    sent: int
    keys: frozenset[str] = frozenset()
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    @property
    def bytes(self) -> int:
        """Its size, estimated: Python needs about three times as much as was sent."""
        return _SESSION_BYTES + _CALL_BYTES * len(self.run.calls) + 3 * self.sent

    @property
    def step(self) -> AskedStep:
        """The next step of the run."""
        run = self.run
        names_only = (call == ToolCall(call.id, call.tool) for call in run.calls)
        has_details = bool(run.before) or not all(names_only)
        return AskedStep(self.model, run.query, run.history, has_details, lambda: run)


class Sessions:
    """The open sessions of one process, least recently used first.

    Args:
        limits: of their number, age and sizes.
        clock: monotonic seconds; another one in tests.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._open: OrderedDict[str, tuple[OpenSession, float]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, session: OpenSession) -> None:
        """Keep a new session.

        Raises:
            HTTPException: there is no room for it.
        """
        await self.expire()
        if len(self._open) >= self._limits.sessions:
            raise _full(f"{len(self._open)} sessions are open")
        self._keep(session, session.bytes)

    async def find(self, identifier: str, owner: str) -> OpenSession:
        """An open session, whose time to live starts again.

        Raises:
            HTTPException: there is none of that id that belongs to the owner.
        """
        await self.expire()
        session, _ = self._open.get(identifier, (None, 0.0))
        if session is None or session.owner != owner:
            raise missing(self._limits)
        self._keep(session, 0)
        return session

    async def add(self, session: OpenSession, longer: OpenSession) -> bool:
        """Replace a session that was found; False if it has changed since.

        Raises:
            HTTPException: there is no room for it; the session stays as it was.
        """
        if self._open.get(session.id, (None,))[0] is not session:
            return False
        self._keep(longer, longer.bytes - session.bytes)
        return True

    async def close(self, session: OpenSession) -> None:
        """Drop a session."""
        if session.id in self._open:
            self._drop(session.id)

    async def expire(self) -> None:
        """Drop the sessions that were unused for too long."""
        limit = self._clock() - self._limits.session_seconds
        while self._open and next(iter(self._open.values()))[1] <= limit:
            self._drop(next(iter(self._open)))

    async def shut_down(self) -> None:
        """Nothing to close here."""

    def _keep(self, session: OpenSession, more: int) -> None:
        """Keep a session that was used now and has grown by this many bytes.

        Raises:
            HTTPException: all sessions would be too large.
        """
        if more and self._bytes + more > self._limits.session_bytes:
            raise _full(f"the open sessions take {self._bytes} bytes")
        self._bytes += more
        self._open[session.id] = session, self._clock()
        self._open.move_to_end(session.id)

    def _drop(self, identifier: str) -> None:
        session, _ = self._open.pop(identifier)
        self._bytes -= session.bytes


def _full(what: str) -> HTTPException:
    """The refusal of a session without room."""
    reason = f"{what}, which is the limit; delete those that are done, or use /v1/rank"
    return HTTPException(429, reason, {"retry-after": "60"})


def missing(limits: Limits) -> HTTPException:
    """The refusal of a session that is not open, or is another key's."""
    return HTTPException(
        404,
        "no such session is open; it was deleted, expired "
        f"({limits.session_seconds:g} s without a request) or belongs to another key",
    )
