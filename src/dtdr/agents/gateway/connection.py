"""One connection to a server, from its opening to its end, over pipes or HTTP."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any, Self, cast

import anyio
import httpx2
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from dtdr.agents.gateway.config import UpstreamSpec
from dtdr.agents.gateway.terminal import printable_errors
from dtdr.net.http_requests import LARGEST_ANSWER

RawResult = dict[str, Any]
_RAW: Any = TypeAdapter(dict[str, Any])

MAX_PAGES = 1_000
"""Of one list, so that a server whose pages never end cannot hold up the others."""


class UnavailableError(Exception):
    """An upstream is not there; ``sent`` when the request may have reached it."""

    def __init__(self, upstream: str, *, sent: bool) -> None:
        super().__init__(
            f"the MCP server {upstream!r} went away before it answered; "
            "whether the call was carried out is not known"
            if sent
            else f"the MCP server {upstream!r} is not available; the call was not made"
        )
        self.upstream = upstream
        self.sent = sent


class NotDeliveredError(Exception):
    """The server does not know the connection any more; nothing was carried out."""


class Connection:
    """A living connection.

    Args:
        spec: whose it is.
        session: negotiated with the server.
        closed: set when nothing more can come from the server.
    """

    def __init__(self, spec: UpstreamSpec, session: ClientSession, closed: anyio.Event) -> None:
        self.spec = spec
        self.session = session
        self.closed = closed
        self.capabilities = session.server_capabilities or types.ServerCapabilities()
        self.is_modern = session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def send(
        self, method: str, params: dict[str, Any], progress: ProgressFnT | None = None
    ) -> RawResult:
        """Send a request once and give back the result as it stands on the wire.

        Raises:
            MCPError: the server's own error.
            UnavailableError: the server went away before it answered.
            NotDeliveredError: the server did not take the request.
        """
        request = types.Request[dict[str, Any], str](method=method, params=params)
        try:
            result: RawResult = await self.session.send_request(
                request, _RAW, progress_callback=progress
            )
        except MCPError as error:
            if self.spec.url and _is_lost_session(error):
                self.closed.set()
                raise NotDeliveredError from error
            # Over HTTP the SDK makes up this code for several ways to lose a connection.
            gone = error.code == types.CONNECTION_CLOSED and (
                bool(self.spec.url) or error.message == "Connection closed"
            )
            if gone or self.closed.is_set():
                self.closed.set()
                raise UnavailableError(self.spec.name, sent=True) from error
            raise
        except ValidationError as error:
            raise MCPError(
                types.INTERNAL_ERROR, f"the MCP server {self.spec.name!r} gave an invalid result"
            ) from error
        return result

    async def list_tools(self) -> list[dict[str, Any]]:
        """Definitions of every tool, as they stand on the wire.

        Raises:
            MCPError: the server's own error.
        """
        if self.capabilities.tools is None:
            return []
        tools: list[dict[str, Any]] = []
        params: types.PaginatedRequestParams | None = None
        for _ in range(MAX_PAGES):
            # Through the session, which keeps what the 2026 HTTP headers of a call need.
            page = await self.session.list_tools(params=params)
            tools.extend(
                tool.model_dump(by_alias=True, mode="json", exclude_none=True)
                for tool in page.tools
            )
            if not page.next_cursor:
                break
            params = types.PaginatedRequestParams(cursor=page.next_cursor)
        return tools

    async def list_all(self, method: str, key: str) -> list[dict[str, Any]]:
        """Every page of another list, such as ``resources/list``.

        Raises:
            MCPError: the server's own error.
            UnavailableError: the server went away.
            NotDeliveredError: the server did not take the request.
        """
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.send(method, {"cursor": cursor} if cursor else {})
            items.extend(item for item in page.get(key, []) if isinstance(item, dict))
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return items

    async def probe(self, seconds: float) -> None:
        """Ask an HTTP server for a sign of life; a busy one that stays silent counts as alive."""
        try:
            with anyio.move_on_after(seconds):
                if self.is_modern:
                    await self.session.send_discover(str(self.session.protocol_version))
                else:
                    await self.session.send_ping()
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED or _is_lost_session(error):
                self.closed.set()


@asynccontextmanager
async def transport_to(spec: UpstreamSpec) -> AsyncIterator[Any]:
    """The SDK's transport to a server."""
    if not spec.command:
        async with (
            create_http_client(spec.headers) as http,
            streamable_http_client(spec.url, http_client=http) as streams,
        ):
            yield streams
        return
    environment = {**os.environ, **spec.env} if spec.inherit_env else dict(spec.env)
    program, *arguments = spec.command
    server = StdioServerParameters(command=program, args=arguments, env=environment, cwd=spec.cwd)
    async with printable_errors() as errors, stdio_client(server, errors) as streams:
        yield streams


def _is_lost_session(error: MCPError) -> bool:
    """Whether an HTTP server no longer knows the session (404), as after its restart."""
    return error.code == types.INVALID_REQUEST and error.message == "Session terminated"


def _drop_unclear_hints(message: Any) -> Any:
    """A message in which hints about tools are true or false, or not there.

    The SDK reads ``1`` and ``"yes"`` as true, and a client may trust a hint that is true.
    """
    answer = getattr(getattr(message, "message", None), "result", None)
    tools = answer.get("tools") if isinstance(answer, dict) else None
    for tool in tools if isinstance(tools, list) else ():
        hints = tool.get("annotations") if isinstance(tool, dict) else None
        if isinstance(hints, dict):
            for name in [name for name in hints if name.endswith("Hint")]:
                if not isinstance(hints[name], bool):
                    del hints[name]
    return message


class _WatchedStream:
    """A read stream that sets an event when it ends."""

    def __init__(self, stream: Any, closed: anyio.Event) -> None:
        self._stream = stream
        self._closed = closed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for message in self._stream:
                yield _drop_unclear_hints(message)
        finally:
            self._closed.set()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        self._closed.set()
        leaves: bool | None = await self._stream.__aexit__(*error)
        return leaves


@asynccontextmanager
async def watch(
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

    The client of the gateway decides how long it waits, and cancels. Of an answer in one piece,
    ``LARGEST_ANSWER`` bytes are read, of a stream that many per event, as the SDK sees to. Other
    answers than event streams may not be compressed, since a megabyte may unfold to a gigabyte.
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
