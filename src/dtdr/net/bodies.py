"""The body of an HTTP request, within limits of size and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from dtdr.net.limits import Limits

if TYPE_CHECKING:
    from starlette.types import Receive


async def read_body(receive: Receive, limits: Limits, *, drained: int = 0) -> bytes:
    """The body of a request.

    Args:
        receive: of ASGI.
        limits: of size and time.
        drained: bytes of a too large body that are dropped, so that its sender reads the reason.

    Raises:
        HTTPException: it is too large (413), took too long (408), or did not end (400).
    """
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _refusal(400, "the connection was closed within the body")
                chunk = message.get("body", b"")
                size += len(chunk)
                if size <= limits.body_bytes:
                    chunks.append(chunk)
                elif size > drained:
                    break
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        reason = f"the body did not arrive within {limits.body_seconds:g} s"
        raise _refusal(408, reason) from None
    if size > limits.body_bytes:
        raise _refusal(413, f"the body is larger than {limits.body_bytes} bytes, the limit")
    return b"".join(chunks)


def _refusal(status: int, reason: str) -> HTTPException:
    return HTTPException(status, reason, {"connection": "close"})
