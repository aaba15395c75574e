"""Streams to one MCP server, over pipes or HTTP, which tell when they end."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from dtdr.agents.gateway.config import UpstreamSpec
from dtdr.agents.gateway.listing import LISTS, drop_bad_items
from dtdr.agents.gateway.messages import BadMessageError, iter_messages, mend
from dtdr.net.http_requests import LARGEST_ANSWER

LARGEST_LINE = 2 << 20
"""Bytes of a line of a stream of events, and of what arrived with it; the SDK takes events of 1 MB.
"""


@asynccontextmanager
async def open_transport(spec: UpstreamSpec, closed: anyio.Event) -> AsyncIterator[Any]:
    """The streams to a server; ``closed`` is set when nothing more can come from it."""
    async with AsyncExitStack() as stack:
        if spec.url:
            http = await stack.enter_async_context(_create_http_client(spec.headers))
            transport: Any = streamable_http_client(spec.url, http_client=http)
        else:
            program, *arguments = spec.command
            server = StdioServerParameters(
                command=program,
                args=arguments,
                env=dict(spec.env),
                cwd=spec.cwd,
                encoding_error_handler="replace",
            )
            transport = stdio_client(server, sys.stderr)
        read, write = await stack.enter_async_context(transport)
        messages = _Messages(spec.name, read, write, closed)
        yield messages, _Requests(write, messages)


class _Messages(ObjectReceiveStream[Any]):
    """A server's messages; sets an event when they end.

    What the SDK could not read is mended; if that is impossible, it is an error: for the gateway in
    place of an answer, and for the server in place of an answer to its request. A bad item of a
    list is left out.

    Attributes:
        lists: the methods of the gateway's requests for lists, by id.
    """

    def __init__(
        self,
        server: str,
        stream: ObjectReceiveStream[Any],
        answers: ObjectSendStream[Any],
        closed: anyio.Event,
    ) -> None:
        self._server, self._stream, self._answers = server, stream, answers
        self._closed = closed
        self._waiting: deque[Any] = deque()
        self.lists: dict[types.RequestId | None, str] = {}

    async def receive(self) -> Any:
        """The next message; lists that the gateway asked for come without bad items."""
        while not self._waiting:
            try:
                item = await self._stream.receive()
            except BaseException:
                self._closed.set()
                raise
            if isinstance(item, ValidationError):
                await self._mend(item)
            else:
                self._waiting.append(item)
        item = self._waiting.popleft()
        message = item.message if isinstance(item, SessionMessage) else None
        method = self.lists.pop(getattr(message, "id", None), None)
        if method is not None and isinstance(message, types.JSONRPCResponse):
            message.result = drop_bad_items(self._server, method, message.result)
        return item

    async def _mend(self, error: ValidationError) -> None:
        """Queue what can be read of a rejected line; answer requests that cannot be read."""
        for message in iter_messages(_rejected(error)):
            if not isinstance(message, BadMessageError):
                self._waiting.append(SessionMessage(message))
            elif message.is_answer:
                self._waiting.append(SessionMessage(message.to_error()))
            elif message.is_request and message.id != b"null":
                await self._answers.send(SessionMessage(message.to_error()))

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Requests(ObjectSendStream[Any]):
    """The gateway's messages to a server; notes which of them ask for lists."""

    def __init__(self, stream: ObjectSendStream[Any], messages: _Messages) -> None:
        self._stream, self._messages = stream, messages

    async def send(self, item: Any) -> None:
        if isinstance(item.message, types.JSONRPCRequest) and item.message.method in LISTS:
            self._messages.lists[item.message.id] = item.message.method
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _create_http_client(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """A client for streamable HTTP: no limit on how long an answer may take, 30 s to connect.

    The gateway's client decides how long it waits, and cancels. An answer in one piece may have
    ``LARGEST_ANSWER`` bytes; the SDK limits the events of a stream. Only event streams may be
    compressed, since a megabyte may expand to a gigabyte.
    """
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **headers},
        timeout=httpx2.Timeout(30.0, read=None),
        verify=_read_certificates(),
        event_hooks={"response": [_bound_answer]},
    )


async def _bound_answer(response: httpx2.Response) -> None:
    headers = response.headers
    is_plain = headers.get("content-encoding", "identity").lower() == "identity"
    is_stream = headers.get("content-type", "").lower().startswith("text/event-stream")
    if is_plain or not is_stream:
        limit = LARGEST_LINE if is_stream else LARGEST_ANSWER if is_plain else 0
        stream = cast(httpx2.AsyncByteStream, response.stream)
        response.stream = _MendedStream(stream, limit, is_whole=not is_stream)


def _rejected(error: ValidationError) -> bytes:
    """The message that is not valid."""
    for problem in error.errors(include_context=False, include_url=False):
        if problem["type"] == "json_invalid":
            return str(problem["input"]).encode(errors="replace")
        # Of a union, "loc" begins with the member; what is missing is missing in the message.
        if len(problem["loc"]) - (problem["type"] == "missing") <= 1:
            return json.dumps(problem["input"]).encode()
    return b""


class _MendedStream(httpx2.AsyncByteStream):
    """The lines of an answer, mended.

    Args:
        stream: the answer as it comes.
        limit: bytes of the answer, or of a line of it; 0: none, since they are compressed.
        is_whole: whether the limit is that of the answer.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, *, is_whole: bool) -> None:
        self._stream, self._limit, self._is_whole = stream, limit, is_whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        line, size = bytearray(), 0
        async for chunk in self._stream:
            line += chunk
            size = size + len(chunk) if self._is_whole else len(line)
            if size > self._limit:
                limit = f"has more than {self._limit} bytes" if self._limit else "is compressed"
                raise httpx2.StreamError(f"the answer {limit}")  # which the SDK passes on
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if end:
                end += len(line) - len(chunk)
                yield mend(bytes(line[:end]))
                del line[:end]
        if line:
            yield mend(bytes(line))

    async def aclose(self) -> None:
        await self._stream.aclose()


# Once for all servers: it takes 80 ms.
_read_certificates = cache(httpx2.create_ssl_context)
