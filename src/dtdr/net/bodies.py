"""The body of an HTTP request, within limits of size and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from dtdr.net.limits import Limits

if TYPE_CHECKING:
    from starlette.types import Receive

_DRAIN_BYTES = 64_000_000
"""Bytes of a too large body that are dropped, so that its sender reads the reason."""


async def read_body(receive: Receive, limits: Limits) -> bytes:
    """The body of a request, of ASGI's ``receive``.

    Raises:
        HTTPException: it is too large (413), took too long (408), or did not end (400).
    """
    body, size, more = bytearray(), 0, True
    close = {"connection": "close"}
    try:
        async with asyncio.timeout(limits.body_seconds):
            while more and size <= _DRAIN_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HTTPException(400, "the connection was closed within the body", close)
                chunk, more = message.get("body", b""), message.get("more_body", False)
                size += len(chunk)
                if size <= limits.body_bytes:
                    body += chunk
    except TimeoutError:
        if size <= limits.body_bytes:
            reason = f"the body did not arrive within {limits.body_seconds:g} s"
            raise HTTPException(408, reason, close) from None
    if size > limits.body_bytes:
        reason = f"the body is larger than {limits.body_bytes} bytes, the limit"
        raise HTTPException(413, reason, close)
    return bytes(body)
