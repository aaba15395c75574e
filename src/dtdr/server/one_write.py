"""HTTP connections that send a response in one piece.

uvicorn writes head and body one after the other, which is two system calls, and wakes a client
that waits for the head only to let it wait for the body.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol


class OneWriteProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol over a transport that gathers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        gathering = GatheringTransport(cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, gathering))


class GatheringTransport:
    """A transport that writes at the end of the event loop's turn all that was written in it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Take data to be sent."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)

    def close(self) -> None:
        """Send what waits, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the transport's own."""
        return getattr(self._transport, name)
