"""The SDK's transports to a server, with checks of ends, sizes and hints."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any, cast

import anyio
import httpx2
from anyio.abc import ObjectReceiveStream
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from dtdr.agents.gateway.config import UpstreamSpec
from dtdr.net.http_requests import LARGEST_ANSWER


@asynccontextmanager
async def open_transport(spec: UpstreamSpec, closed: anyio.Event) -> AsyncIterator[Any]:
    """The streams to a server; ``closed`` is set when nothing more can come from it."""
    async with AsyncExitStack() as stack:
        stack.callback(closed.set)
        if spec.url:
            http = await stack.enter_async_context(create_http_client(spec.headers))
            transport: Any = streamable_http_client(spec.url, http_client=http)
        else:
            environment = {**os.environ, **spec.env} if spec.inherit_env else dict(spec.env)
            program, *arguments = spec.command
            server = StdioServerParameters(
                command=program, args=arguments, env=environment, cwd=spec.cwd
            )
            transport = stdio_client(server, sys.stderr)
        read, write = await stack.enter_async_context(transport)
        yield _WatchedStream(read, closed), write


class _WatchedStream(ObjectReceiveStream[Any]):
    """A read stream that sets an event when it ends."""

    def __init__(self, stream: ObjectReceiveStream[Any], closed: anyio.Event) -> None:
        self._stream = stream
        self._closed = closed

    async def receive(self) -> Any:
        try:
            message = await self._stream.receive()
        except BaseException:
            self._closed.set()
            raise
        _drop_unclear_hints(message)
        return message

    async def aclose(self) -> None:
        self._closed.set()
        await self._stream.aclose()


def _drop_unclear_hints(message: Any) -> None:
    """Remove hints about tools that are neither true nor false from a message.

    The SDK reads ``1`` and ``"yes"`` as true, and a client may trust a hint that is true.
    """
    answer = getattr(getattr(message, "message", None), "result", None)
    tools = answer.get("tools") if isinstance(answer, dict) else None
    for tool in tools if isinstance(tools, list) else ():
        hints = tool.get("annotations") if isinstance(tool, dict) else None
        if isinstance(hints, dict):
            tool["annotations"] = {
                name: value
                for name, value in hints.items()
                if isinstance(value, bool) or not name.endswith("Hint")
            }


def create_http_client(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """A client for streamable HTTP: no limit on how long an answer may take, 30 s to connect.

    The gateway's client decides how long it waits, and cancels. An answer in one piece may have
    ``LARGEST_ANSWER`` bytes, and so may each event of a stream, which the SDK checks. Only event
    streams may be compressed, since a megabyte may expand to a gigabyte.
    """
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **headers},
        timeout=httpx2.Timeout(30.0, read=None),
        verify=_certificates(),
        event_hooks={"response": [_bound_answer]},
    )


async def _bound_answer(response: httpx2.Response) -> None:
    headers = response.headers
    if not headers.get("content-type", "").lower().startswith("text/event-stream"):
        is_plain = headers.get("content-encoding", "identity").lower() == "identity"
        stream = cast(httpx2.AsyncByteStream, response.stream)
        response.stream = _BoundedStream(stream, LARGEST_ANSWER if is_plain else 0)


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of an answer up to a limit; 0: none, since they are compressed."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                limit = f"has more than {self._limit} bytes" if self._limit else "is compressed"
                raise httpx2.StreamError(f"the answer {limit}")  # which the SDK passes on
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@cache
def _certificates() -> ssl.SSLContext:
    """Read once for all servers: it takes 80 ms each time."""
    return httpx2.create_ssl_context()
