"""One MCP server behind the gateway: connected, listed, watched, and connected again."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from dtdr.gateway.specs import UpstreamSpec
from dtdr.gateway.watch import create_http_client, watched

logger = logging.getLogger("dtdr.mcp")

FIRST_DELAY = 0.2
LONGEST_DELAY = 30.0
"""Seconds before a dead upstream is tried again: doubled from the first to the longest."""

STEADY_SECONDS = 10.0
"""An upstream that lived this long before it died is tried again at once."""

PROBE_SECONDS = 5.0
"""How often an HTTP upstream is asked whether it is there; a pipe says so by closing."""

MAX_PAGES = 1_000

RawResult = dict[str, Any]
_RAW: Any = TypeAdapter(dict[str, Any])
InputAnswer = (
    types.CreateMessageResult
    | types.CreateMessageResultWithTools
    | types.ElicitResult
    | types.ListRootsResult
    | types.ErrorData
)


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


class _NotDeliveredError(Exception):
    """The server does not know the connection any more; nothing was carried out."""


class Listener(Protocol):
    """Who hears from an upstream."""

    async def tools_changed(self, upstream: Upstream) -> None:
        """The upstream's tools are others than before, or it came or went."""

    async def announce(self, upstream: Upstream, note: types.ServerNotification) -> None:
        """The upstream sent a notification that is no progress."""

    async def answer(self, upstream: Upstream, request: types.ServerRequest) -> InputAnswer:
        """The upstream asks the client for something: sampling, elicitation or roots."""


@dataclass
class _Link:
    """A living connection."""

    session: ClientSession
    capabilities: types.ServerCapabilities
    closed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_modern(self) -> bool:
        return self.session.protocol_version in MODERN_PROTOCOL_VERSIONS


class Upstream:
    """Keeps one server connected; ``run`` is its task, everything else may be called at any time.

    Attributes:
        tools: the server's tool definitions as they stand on the wire; those last seen while it
            is away.
        callers: request contexts of the clients whose calls it is working on, oldest first.
    """

    def __init__(
        self, spec: UpstreamSpec, listener: Listener, *, connect_seconds: float, wait_seconds: float
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.tools: list[dict[str, Any]] = []
        self.callers: list[Any] = []
        self.tried = anyio.Event()
        self._listener = listener
        self._connect_seconds = connect_seconds
        self._wait_seconds = wait_seconds
        self._link: _Link | None = None
        self._changed = anyio.Event()
        self._uris: dict[str, int] = {}
        self._relisten = anyio.Event()
        self._log_level: types.LoggingLevel | None = None
        self._listing = anyio.Lock()
        self._listings_waiting = 0

    @property
    def is_up(self) -> bool:
        """Whether it is connected and listed."""
        return self._link is not None

    @property
    def capabilities(self) -> types.ServerCapabilities:
        """What the server says it can do; nothing while it is away."""
        return types.ServerCapabilities() if self._link is None else self._link.capabilities

    @property
    def instructions(self) -> str:
        """The server's instructions; empty while it is away."""
        return "" if self._link is None else self._link.session.instructions or ""

    # -- life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, and connect again whenever the connection ends; until cancelled."""
        delay = FIRST_DELAY
        while True:
            began = anyio.current_time()
            reason = await self._live_once()
            self.tried.set()
            if anyio.current_time() - began > STEADY_SECONDS:
                delay = FIRST_DELAY
            logger.warning("upstream %r: %s; trying again in %.1f s", self.name, reason, delay)
            # Drawn at random so that clients of one server do not all come back at once.
            await anyio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, LONGEST_DELAY)

    async def _live_once(self) -> str:
        """One connection from beginning to end; the reason it ended."""
        closed = anyio.Event()
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + self._connect_seconds
            try:
                async with self._client(closed) as client:
                    link = _Link(client.session, client.server_capabilities, closed)
                    self.tools = await self._list_tools(link)
                    scope.deadline = float("inf")
                    try:
                        await self._serve(link)
                    finally:
                        self._set_link(None)
            except Exception as error:  # noqa: BLE001  # whatever ends one upstream ends only it
                return _sentence(error)
            finally:
                if not self.is_up:
                    with anyio.CancelScope(shield=True):
                        await self._listener.tools_changed(self)
        if scope.cancelled_caught:
            return f"no connection within {self._connect_seconds:g} s"
        return "the connection was closed"

    async def _serve(self, link: _Link) -> None:
        self._set_link(link)
        logger.info("upstream %r: connected, %d tools", self.name, len(self.tools))
        await self._listener.tools_changed(self)
        self.tried.set()
        async with anyio.create_task_group() as tasks:
            if link.is_modern:
                tasks.start_soon(self._listen, link)
            else:
                tasks.start_soon(self._restore, link)
            while not link.closed.is_set():
                with anyio.move_on_after(PROBE_SECONDS if self.spec.url else None):
                    await link.closed.wait()
                if self.spec.url and not link.closed.is_set():
                    await self._probe(link)
            tasks.cancel_scope.cancel()

    def _set_link(self, link: _Link | None) -> None:
        self._link = link
        self._changed.set()
        self._changed = anyio.Event()

    def _client(self, closed: anyio.Event) -> Client:
        return Client(
            watched(self._transport(), closed),
            mode="auto",
            cache=None,
            message_handler=self._heard,
            sampling_callback=self._asked_sampling,
            elicitation_callback=self._asked_elicitation,
            list_roots_callback=self._asked_roots,
            client_info=types.Implementation(name="dtdr-mcp", version="1"),
        )

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        spec = self.spec
        if spec.command:
            environment = {**os.environ, **spec.env} if spec.inherit_env else dict(spec.env)
            return stdio_client(
                StdioServerParameters(
                    command=spec.command[0],
                    args=list(spec.command[1:]),
                    env=environment,
                    cwd=spec.cwd,
                )
            )
        return self._http()

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        async with (
            create_http_client(self.spec.headers) as http,
            streamable_http_client(self.spec.url, http_client=http) as streams,
        ):
            yield streams

    async def _probe(self, link: _Link) -> None:
        """Ask an HTTP server for a sign of life; a busy one that stays silent counts as alive."""
        try:
            with anyio.move_on_after(PROBE_SECONDS):
                if link.is_modern:
                    await link.session.send_discover(str(link.session.protocol_version))
                else:
                    await link.session.send_ping()
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED or _is_lost_session(error):
                link.closed.set()

    # -- requests ------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Mapping[str, Any], progress: ProgressFnT | None = None
    ) -> RawResult:
        """Send a request once and give back the result as it stands on the wire.

        A request that comes while the server is away waits a moment for it, unsent.

        Raises:
            MCPError: the server's own error.
            UnavailableError: it is away, or went away before it answered.
        """
        with anyio.move_on_after(self._wait_seconds) as waiting:
            while True:
                link = self._link
                while link is None or link.closed.is_set():
                    await self._changed.wait()
                    link = self._link
                waiting.deadline = float("inf")
                try:
                    return await self._send(link, method, dict(params), progress)
                except _NotDeliveredError:
                    waiting.deadline = anyio.current_time() + self._wait_seconds
        raise UnavailableError(self.name, sent=False)

    async def _send(
        self, link: _Link, method: str, params: dict[str, Any], progress: ProgressFnT | None = None
    ) -> RawResult:
        if link.is_modern and self._log_level is not None:
            meta = {types.LOG_LEVEL_META_KEY: self._log_level, **(params.get("_meta") or {})}
            params = {**params, "_meta": meta}
        request = types.Request[dict[str, Any], str](method=method, params=params)
        try:
            found: RawResult = await link.session.send_request(
                request, _RAW, progress_callback=progress
            )
            return found
        except MCPError as error:
            if _is_lost_session(error) and self.spec.url:
                link.closed.set()
                raise _NotDeliveredError from error
            gone = error.code == types.CONNECTION_CLOSED and (
                bool(self.spec.url) or error.message == "Connection closed"
            )
            if gone or link.closed.is_set():
                link.closed.set()
                raise UnavailableError(self.name, sent=True) from error
            raise
        except ValidationError as error:
            raise MCPError(
                types.INTERNAL_ERROR, f"the MCP server {self.name!r} gave an invalid result"
            ) from error

    async def list_all(self, method: str, key: str) -> list[dict[str, Any]]:
        """Every page of a list, such as ``resources/list``; empty while the server is away.

        Raises:
            MCPError: the server's own error.
        """
        link = self._link
        if link is None:
            return []
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await self._send(link, method, {"cursor": cursor} if cursor else {})
            except (UnavailableError, _NotDeliveredError):
                return []
            found.extend(item for item in page.get(key, []) if isinstance(item, dict))
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return found

    async def _list_tools(self, link: _Link) -> list[dict[str, Any]]:
        if link.capabilities.tools is None:
            return []
        found: list[dict[str, Any]] = []
        params: types.PaginatedRequestParams | None = None
        for _ in range(MAX_PAGES):
            # Through the session, which keeps what the 2026 HTTP headers of a call need.
            page = await link.session.list_tools(params=params)
            found.extend(
                tool.model_dump(by_alias=True, mode="json", exclude_none=True)
                for tool in page.tools
            )
            if not page.next_cursor:
                break
            params = types.PaginatedRequestParams(cursor=page.next_cursor)
        return found

    # -- what the server says on its own ---------------------------------------------------------

    async def _heard(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            await self._refresh()
        elif isinstance(message, types.ServerNotification) and not isinstance(
            message, types.ProgressNotification
        ):
            await self._listener.announce(self, message)

    async def _refresh(self) -> None:
        """List the tools again; a burst of changes is one listing."""
        link = self._link
        if link is None or self._listings_waiting:
            return
        self._listings_waiting += 1
        async with self._listing:
            self._listings_waiting -= 1
            try:
                self.tools = await self._list_tools(link)
            except MCPError as error:
                logger.warning("upstream %r: cannot list its tools (%s)", self.name, error)
                return
        await self._listener.tools_changed(self)

    async def _listen(self, link: _Link) -> None:
        """Hear of changes from a 2026-07-28 server, which tells only those who listen."""
        while True:
            self._relisten = relisten = anyio.Event()
            try:
                async with (
                    listen(
                        link.session,
                        tools_list_changed=True,
                        prompts_list_changed=True,
                        resources_list_changed=True,
                        resource_subscriptions=tuple(self._uris),
                    ) as events,
                    anyio.create_task_group() as tasks,
                ):

                    async def drain() -> None:
                        async for _ in events:  # each event is also handed to ``_heard``
                            pass
                        tasks.cancel_scope.cancel()

                    tasks.start_soon(drain)
                    await relisten.wait()
                    tasks.cancel_scope.cancel()
            except* (MCPError, SubscriptionLost) as error:
                logger.debug("upstream %r: does not tell of changes (%r)", self.name, error)
            if not relisten.is_set():
                await anyio.sleep(PROBE_SECONDS)

    # -- what outlives a connection --------------------------------------------------------------

    async def subscribe(self, uri: str) -> None:
        """Hear of updates of a resource, on this connection and later ones."""
        self._uris[uri] = self._uris.get(uri, 0) + 1
        if self._uris[uri] == 1:
            await self._subscription("resources/subscribe", uri)

    async def unsubscribe(self, uri: str) -> None:
        """Take back one ``subscribe``."""
        count = self._uris.get(uri, 0)
        if count > 1:
            self._uris[uri] = count - 1
        elif count == 1:
            del self._uris[uri]
            await self._subscription("resources/unsubscribe", uri)

    async def _subscription(self, method: str, uri: str) -> None:
        link = self._link
        if link is None:
            return
        if link.is_modern:
            self._relisten.set()
        else:
            await self._send(link, method, {"uri": uri})

    async def set_log_level(self, level: types.LoggingLevel) -> None:
        """Ask for log messages of this level and above, on this connection and later ones."""
        self._log_level = level
        link = self._link
        if link is not None and not link.is_modern and link.capabilities.logging is not None:
            await self._send(link, "logging/setLevel", {"level": level})

    async def roots_changed(self) -> None:
        """Tell the server that the client's roots changed."""
        if self._link is not None and not self._link.is_modern:
            await self._link.session.send_notification(types.RootsListChangedNotification())

    async def _restore(self, link: _Link) -> None:
        try:
            if self._log_level is not None:
                await self.set_log_level(self._log_level)
            for uri in tuple(self._uris):
                await self._send(link, "resources/subscribe", {"uri": uri})
        except (MCPError, UnavailableError, _NotDeliveredError) as error:
            logger.debug("upstream %r: %s", self.name, error)

    # -- what the server asks the client ---------------------------------------------------------

    async def _asked_sampling(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        answer: Any = await self._listener.answer(self, types.CreateMessageRequest(params=params))
        return answer  # type: ignore[no-any-return]

    async def _asked_elicitation(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        answer: Any = await self._listener.answer(self, types.ElicitRequest(params=params))
        return answer  # type: ignore[no-any-return]

    async def _asked_roots(
        self, context: ClientRequestContext
    ) -> types.ListRootsResult | types.ErrorData:
        answer: Any = await self._listener.answer(self, types.ListRootsRequest())
        return answer  # type: ignore[no-any-return]


def _is_lost_session(error: MCPError) -> bool:
    """Whether an HTTP server no longer knows the session (404), as after its restart."""
    return error.code == types.INVALID_REQUEST and error.message == "Session terminated"


def _sentence(error: BaseException) -> str:
    """The first reason in a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename!r}"
    return " ".join(str(error).split()) or type(error).__name__
