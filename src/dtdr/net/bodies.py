"""Bodies of HTTP requests, within limits of size and time; those of MCP also of their values.

The MCP SDK validates a message on the event loop: 1 MB of errors takes a second.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from dtdr.net.servers import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_DRAIN_BYTES = 64_000_000
"""Bytes of a too large body that are dropped, so that its sender reads the reason."""

MAX_VALUES = 200_000
"""JSON values in a call's arguments."""

MAX_OTHER_VALUES = 4_000
"""JSON values in a message outside of a call's arguments, which the SDK validates."""

_INVALID_REQUEST = -32600  # of JSON-RPC


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


class BodyLimits:
    """Reads bodies within limits, and refuses messages that would take long to validate.

    Args:
        app: gets the body in one piece.
        limits: of bodies.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(receive, self._limits)
            if problem := problem_of(body):
                raise HTTPException(400, problem)
        except HTTPException as error:
            reason = {"code": _INVALID_REQUEST, "message": error.detail}
            content = {"jsonrpc": "2.0", "id": None, "error": reason}
            answer = JSONResponse(content, error.status_code, {"connection": "close"})
            await answer(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_body() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, receive_body, send)


def problem_of(body: bytes) -> str | None:
    """Why a message is refused before it is validated, or None.

    A message of many values is parsed, which takes a tenth of a second at most.
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") <= MAX_OTHER_VALUES:
        return None
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return "the message cannot be read"
    params = message.get("params") if isinstance(message, dict) else None
    arguments = params.pop("arguments", None) if isinstance(params, dict) else None
    if _exceeds(arguments, MAX_VALUES):
        return f"the arguments have more than {MAX_VALUES} values"
    if _exceeds(message, MAX_OTHER_VALUES):
        return f"the message has more than {MAX_OTHER_VALUES} values outside of arguments"
    return None


def _exceeds(value: Any, most: int) -> bool:
    """Whether a JSON value contains more than this many."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        item = waiting.pop()
        if isinstance(item, (dict, list)):
            count += len(item)
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return count > most
