"""HTTP connections with limits of size and time, which uvicorn lacks.

Its setting ``http`` takes the class of the connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dtdr.net.servers import Limits

_LINGER_SECONDS = 1.0
"""Seconds until a refused connection is closed, so that its sender can read the reason."""

_PIECE = 1_024
_BODY_PIECE = 16_384
"""Bytes of heads and of bodies that are parsed at a time, so that a large head, and what follows a
body, is noticed in time."""

_LAST_SECONDS = 0.05
"""For requests that were sent before the server stops; uvicorn waits for at least 0.1 s."""

_MOST_UNPARSED = 262_144
"""Bytes that wait for the answer to an earlier request; one reading of the event loop. HTTP clients
in use send no request before that answer."""


def limit_connections(
    limits: Limits,
    refusal: Callable[[int, str], bytes],
    count: Callable[[str], None] = lambda _: None,
) -> type[asyncio.Protocol]:
    """The class of one server's connections, for uvicorn.

    Args:
        limits: see there.
        refusal: the body of a refusal with this status and reason; JSON or plain text.
        count: called with the kind of each connection that is refused.
    """

    class Connection(LimitedProtocol):
        _limits = limits
        _refusal = staticmethod(refusal)
        _count = staticmethod(count)
        _waiting: ClassVar[dict[LimitedProtocol, None]] = {}

    return Connection


class LimitedProtocol(HttpToolsProtocol):
    """One connection of uvicorn's that ends when it passes a limit.

    One limit holds for all that a connection buffers before it is complete: a head, the line of a
    chunk with its extensions, and the trailers behind a chunked body, which are dropped.

    A timer runs while the server waits for a head, for a client that does not read, or for the end
    of a body that is not read.
    """

    _limits: Limits
    _refusal: Callable[[int, str], bytes]
    _count: Callable[[str], None]
    _waiting: ClassVar[dict[LimitedProtocol, None]]
    """The server's connections without a request, the longest waiting first."""
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    """Bytes of an incomplete head, chunk's line, or trailers."""
    _is_in_body = False
    _has_progressed = False
    """Whether the piece that is parsed completed a head or a chunk's line, or had bytes of a body.
    """
    _is_refused = False
    _unparsed = b""
    """Bytes behind a request that is being answered."""

    # -- the transport's side ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; if too many are open, close one that waits, or refuse this one."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                self._refuse(503, "too many connections are open; try again in a moment", "full")
                return
            self._count("idle")
            oldest.end()
        self._set_timer(self._limits.head_seconds, is_waiting=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._set_timer(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, or keep it until an earlier request has its answer."""
        self._unparsed += data
        self._parse_pieces()
        if len(self._unparsed) > _MOST_UNPARSED:
            self._count("pipelined")
            self.end()

    def _parse_pieces(self) -> None:
        """Parse what arrived, in pieces, up to a request.

        Requests behind it are parsed one by one, each after the answer to the one before: parsing
        the thousands that one reading can contain would keep all other clients waiting.
        """
        data, self._unparsed = self._unparsed, b""
        start = 0
        while start < len(data) and not self._is_answering():
            if self._is_refused or self.transport.is_closing():
                return
            end = start + (_BODY_PIECE if self._is_in_body else _PIECE)
            self._parse(data[start:end])
            start = end
        if start < len(data):
            self._unparsed = data[start:]
            self.flow.pause_reading()

    def _is_answering(self) -> bool:
        """Whether a whole request waits for the rest of its answer."""
        is_complete = self.cycle is None or self.cycle.response_complete
        return not (is_complete or self._is_in_body or self._is_refused)

    def _parse(self, data: bytes) -> None:
        """Parse a piece, and watch the size and the time of heads."""
        cycle, was_in_body, self._has_progressed = self.cycle, self._is_in_body, False
        super().data_received(data)
        if self.transport.is_closing() or self._is_refused:
            return
        if self.cycle is not cycle:
            self._head_bytes = 0
            self._set_timer(None)
            return
        self._head_bytes = 0 if self._has_progressed else self._head_bytes + len(data)
        limit = self._limits.head_bytes
        if self._head_bytes > limit:
            part = "what surrounds the body" if was_in_body else "the head"
            self._refuse(431, f"{part} is larger than {limit} bytes, the limit", "head")
        elif was_in_body:
            if not self._is_in_body:
                is_answered = self.cycle.response_complete
                self._set_timer(self._limits.idle_seconds if is_answered else None, is_answered)
        elif self._head_bytes == len(data) and (cycle is None or cycle.response_complete):
            self._set_timer(self._limits.head_seconds, is_waiting=True)

    # -- the parser's side ---------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those behind a chunked body came too late to be checked."""
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request."""
        if reason := _problem_of(self.headers, self.parser.get_http_version()):
            self._refuse(400, reason, "malformed")
            raise ValueError(reason)
        self._is_in_body = self._has_progressed = True
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """Note the end of a chunk's line."""
        self._has_progressed = True

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._has_progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of a body."""
        self._is_in_body, self._has_progressed = False, True
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Limit the time of a client that does not read."""
        super().pause_writing()
        self._set_timer(self._limits.body_seconds)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self not in self._waiting:
            self._set_timer(None)

    # -- the server's side ---------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self.transport.is_closing() or not self.cycle.response_complete:
            return
        if self._is_in_body:
            self._set_timer(self._limits.body_seconds)
        elif self._unparsed:
            self.loop.call_soon(self._parse_pieces)
        else:
            limits = self._limits
            seconds = limits.head_seconds if self._head_bytes else limits.idle_seconds
            self._set_timer(seconds, is_waiting=True)

    def shutdown(self) -> None:
        """Answer what has arrived, and close."""
        self.loop.call_later(_LAST_SECONDS, super().shutdown)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(400, "this is not an HTTP request that can be read", "malformed")

    def end(self) -> None:
        """Close, without waiting for a client that does not read."""
        self._set_timer(None)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    # -- limits --------------------------------------------------------------------------------

    def _set_timer(self, seconds: float | None, is_waiting: bool = False) -> None:
        """Set the timer, or stop it; a connection that is waiting makes room for others."""
        if is_waiting:
            self._waiting.setdefault(self)
        else:
            self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._time_out) if seconds else None

    def _time_out(self) -> None:
        if self.transport.get_write_buffer_size() and not self._is_refused:
            self._count("unread")
            self.end()
        elif self._head_bytes and not self._is_refused:
            reason = f"the head did not arrive within {self._limits.head_seconds:g} s"
            self._refuse(408, reason, "slow")
        else:
            self.end()

    def _refuse(self, status: int, reason: str, kind: str) -> None:
        """Refuse the connection, and close it."""
        if self._is_refused:
            return
        self._count(kind)
        self._is_refused = True
        cycle = self.cycle
        if self._is_in_body and not (self.pipeline or cycle.response_started):
            cycle.disconnected = True  # the refusal is the answer
            cycle.message_event.set()
        elif self._is_in_body or (cycle is not None and not cycle.response_complete):
            self.end()  # the client would take a refusal for the answer
            return
        body = self._refusal(status, reason)
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


def _problem_of(headers: list[tuple[bytes, bytes]], version: str) -> str | None:
    """Why a request is refused that a proxy in front may read in another way, or None."""
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and (codings != [b"chunked"] or version == "1.0"):
        return "Transfer-Encoding must be 'chunked', once, in HTTP/1.1"
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (not hosts and version != "1.0"):
        return "send one Host header"
    return None
