"""Notices when a transport's incoming stream ends, which the SDK keeps to itself."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2


class _WatchedStream:
    """A read stream that sets an event when it ends."""

    def __init__(self, stream: Any, closed: anyio.Event) -> None:
        self._stream = stream
        self._closed = closed

    @property
    def last_context(self) -> Any:
        """The context of the last message's sender, where the stream keeps it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._closed.set()
            raise

    async def aclose(self) -> None:
        self._closed.set()
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._closed.set()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._closed.set()
        leaves: bool | None = await self._stream.__aexit__(kind, error, traceback)
        return leaves


@asynccontextmanager
async def watched(
    transport: AbstractAsyncContextManager[Any], closed: anyio.Event
) -> AsyncIterator[Any]:
    """The transport; ``closed`` is set when nothing more can come from it."""
    try:
        async with transport as (read, write):
            yield _WatchedStream(read, closed), write
    finally:
        closed.set()


def create_http_client(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """A client for streamable HTTP: no limit on how long an answer may take, 30 s to connect.

    The client of the gateway decides how long it waits, and cancels.
    """
    return httpx2.AsyncClient(
        headers=dict(headers), timeout=httpx2.Timeout(30.0, read=None), verify=_certificates()
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Read once for all servers: it takes 80 ms each time."""
    return httpx2.create_ssl_context()
