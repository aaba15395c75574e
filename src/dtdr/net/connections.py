"""HTTP connections with limits of size and time, which uvicorn lacks.

Its setting ``http`` takes the class of the connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from dtdr.net.limits import Limits
from dtdr.net.server_logs import Tally

_LINGER_SECONDS = 1.0
"""Seconds until a refused connection is closed, so that its sender can read the reason."""

_PIECE = 256
"""Bytes of heads that are parsed at a time: a request that ends in them is answered first."""

_BODY_PIECE = 4_096

_LAST_SECONDS = 0.05
"""For requests that were sent before the server stops; uvicorn waits for at least 0.1 s."""

_LARGE_BODY = 65_536
"""Bytes of a body that uvicorn keeps before it waits for them to be taken."""

_MOST_UNREAD = 1 << 20
"""Bytes after a request that is not answered; more of them end the connection."""


class Connections:
    """The connections of one server.

    Args:
        limits: see there.
        refusal: the body of a refusal with this status and reason; JSON or plain text.
        count: called with the reason of each connection that was refused.
    """

    def __init__(
        self,
        limits: Limits,
        refusal: Callable[[int, str], bytes],
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.limits = limits
        self.refusal = refusal
        self.waiting: dict[LimitedProtocol, None] = {}
        """Those without a request, the longest waiting first."""
        self._count = count
        self._tally = Tally("connections refused")

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """The class of connections, for uvicorn."""
        return cast(type[asyncio.Protocol], partial(LimitedProtocol, shared=self))

    def count_refused(self, reason: str) -> None:
        """Count a connection that was refused."""
        self._count(reason)
        self._tally.add(reason)


class LimitedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """One connection of uvicorn's that ends when it passes a limit.

    A timer runs while the server waits for a head, for a client that does not read, or for the end
    of a body. What follows a request is parsed when that is answered.
    """

    def __init__(self, *given: Any, shared: Connections, **named: Any) -> None:
        super().__init__(*given, **named)
        self._shared = shared
        self._limits = shared.limits
        self._timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._is_refused = False
        self._unread = bytearray()

    # -- the transport's side ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; if too many are open, close one that waits, or refuse this one."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            oldest = next(iter(self._shared.waiting), None)
            if oldest is None:
                self._refuse(503, "too many connections are open; try again in a moment", "full")
                return
            self._shared.count_refused("idle")
            oldest.end()
        self._wait(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._unread.clear()
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, unless a request waits for its answer."""
        self._unread += data
        if len(self._unread) > _MOST_UNREAD and not self._is_refused:
            self._shared.count_refused("unread requests")
            self.end()
        self._parse()

    def _parse(self) -> None:
        while self._unread and not self._has_request:
            if self._is_refused or self.transport.is_closing():
                self._unread.clear()
                return
            is_body = self.cycle is not None and self.cycle.more_body
            size = _BODY_PIECE if is_body else _PIECE
            piece = bytes(self._unread[:size])
            del self._unread[:size]
            self._take(piece)
        if self._unread:
            self.flow.pause_reading()
        elif self.cycle is None or len(self.cycle.body) <= _LARGE_BODY:
            self.flow.resume_reading()

    def _take(self, data: bytes) -> None:
        """Parse a piece, and watch the size and the time of heads and bodies."""
        cycle = self.cycle
        was_in_head = cycle is None or not cycle.more_body
        super().data_received(data)
        if self.transport.is_closing() or self._is_refused:
            return
        if self.cycle is not cycle:
            self._head_bytes = 0
            self._stop_waiting()
            if self.cycle.more_body:
                # The reader of the body may answer sooner.
                self._set_timer(self._limits.body_seconds + self._limits.head_seconds)
        elif was_in_head:
            self._head_bytes += len(data)
            limit = self._limits.head_bytes
            if self._head_bytes > limit:
                self._refuse(431, f"the head is larger than {limit} bytes, the limit", "head")
            elif self._head_bytes == len(data) and (cycle is None or cycle.response_complete):
                self._set_timer(self._limits.head_seconds)
        elif not self.cycle.more_body:
            self._stop_timer()
            if self.cycle.response_complete:
                self._wait(self._limits.idle_seconds)

    def pause_writing(self) -> None:
        """Limit the time of a client that does not read."""
        super().pause_writing()
        self._set_timer(self._limits.body_seconds)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._stop_timer()

    @property
    def _has_request(self) -> bool:
        """Whether a request has arrived and is not answered."""
        return self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete)

    def on_headers_complete(self) -> None:
        """Start the request; a header behind a chunked body came too late to be checked."""
        super().on_headers_complete()
        self.headers: list[tuple[bytes, bytes]] = []

    # -- the server's side ---------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self.transport.is_closing() or not self.cycle.response_complete:
            return
        if self.cycle.more_body:
            self._set_timer(self._limits.body_seconds)
        else:
            self._wait(self._limits.head_seconds if self._head_bytes else self._limits.idle_seconds)
        self.loop.call_soon(self._parse)  # after those of other clients

    def shutdown(self) -> None:
        """Answer what has arrived, and close."""
        self.loop.call_later(_LAST_SECONDS, self._shut_down)

    def _shut_down(self) -> None:
        if not self.transport.is_closing():
            self._parse()
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection."""
        self.end()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(400, "this is not an HTTP request that can be read", "malformed")

    def end(self) -> None:
        """Close, without waiting for a client that does not read."""
        self._stop_waiting()
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    # -- waiting -------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        self._shared.waiting[self] = None
        self._set_timer(seconds)

    def _stop_waiting(self) -> None:
        self._shared.waiting.pop(self, None)
        self._stop_timer()

    def _set_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self.transport.get_write_buffer_size() and not self._is_refused:
            self._shared.count_refused("unread")
            self.end()
        elif self._head_bytes and not self._is_refused:
            reason = f"the head did not arrive within {self._limits.head_seconds:g} s"
            self._refuse(408, reason, "slow")
        else:
            self.end()

    def _refuse(self, status: int, reason: str, kind: str) -> None:
        """Refuse the connection, and close it."""
        self._shared.count_refused(kind)
        self._stop_waiting()
        self._is_refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.end()  # the client would take a refusal for the answer
            return
        body = self._shared.refusal(status, reason)
        media_type = "application/json" if body.startswith(b"{") else "text/plain; charset=utf-8"
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            f"content-type: {media_type}\r\ncontent-length: {len(body)}\r\n"
            f"{'retry-after: 1' if status == 503 else 'cache-control: no-store'}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_timer(_LINGER_SECONDS)
