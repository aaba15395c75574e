"""Streams to one MCP server, over pipes or HTTP, which tell when they end."""

from __future__ import annotations

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
        if spec.url:
            http = await stack.enter_async_context(_create_http_client(spec.headers))
            transport: Any = streamable_http_client(spec.url, http_client=http)
        else:
            program, *arguments = spec.command
            server = StdioServerParameters(
                command=program, args=arguments, env=dict(spec.env), cwd=spec.cwd
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
            return await self._stream.receive()
        except BaseException:
            self._closed.set()
            raise

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
    if not headers.get("content-type", "").lower().startswith("text/event-stream"):
        is_plain = headers.get("content-encoding", "identity").lower() == "identity"
        stream = cast(httpx2.AsyncByteStream, response.stream)
        response.stream = _BoundedStream(stream, LARGEST_ANSWER if is_plain else 0)


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of an answer up to a limit; 0: none, since they are compressed."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int) -> None:
        self._stream, self._limit = stream, limit

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


# Once for all servers: it takes 80 ms.
_read_certificates = cache(httpx2.create_ssl_context)
