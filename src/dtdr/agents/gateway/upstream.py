"""One MCP server behind the gateway: connected, listed, watched, and connected again."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError

from dtdr.agents.gateway.config import GatewayOptions, UpstreamSpec
from dtdr.agents.gateway.connection import (
    Connection,
    NotDeliveredError,
    RawResult,
    UnavailableError,
    transport_to,
    watch,
)

logger = logging.getLogger("dtdr.mcp")

MAX_TRIES = 3
"""How often a request is sent that an HTTP server does not take because it lost the session."""

FIRST_DELAY = 0.2
LONGEST_DELAY = 30.0
"""Seconds before a dead upstream is tried again: doubled from the first to the longest."""

STEADY_SECONDS = 10.0
"""An upstream that lived this long before it died is tried again at once."""

PROBE_SECONDS = 5.0
"""How often an HTTP upstream is asked whether it is there; a pipe says so by closing."""

AGAIN_SECONDS = 5.0
"""Before a stream of changes that ended is opened again."""

InputAnswer = (
    types.CreateMessageResult
    | types.CreateMessageResultWithTools
    | types.ElicitResult
    | types.ListRootsResult
    | types.ErrorData
)
"""What a client answers to a server's question; ``ErrorData`` where it does not."""


class Listener(Protocol):
    """Who hears from an upstream."""

    async def tools_changed(self, upstream: Upstream) -> None:
        """The upstream's tools are others than before, or it came or went."""

    async def notify(self, upstream: Upstream, note: types.ServerNotification) -> None:
        """The upstream sent a notification other than progress."""

    async def answer(self, upstream: Upstream, request: types.ServerRequest) -> InputAnswer:
        """The upstream asks the client for something: sampling, elicitation or roots."""


class Upstream:
    """Keeps one server connected; ``run`` is its task, everything else may be called at any time.

    Attributes:
        tools: the server's tool definitions as they stand on the wire; those last seen while it
            is away.
        callers: requests of the clients whose calls it is working on, oldest first.
        open_calls: calls that wait for their client's answer to a question, by client and state.
        subscriptions: what clients asked of it for all its connections.
    """

    def __init__(self, spec: UpstreamSpec, listener: Listener, options: GatewayOptions) -> None:
        self.spec = spec
        self.name = spec.name
        self.tools: list[dict[str, Any]] = []
        self.callers: list[Any] = []
        self.open_calls: dict[tuple[str, Any], Any] = {}
        self.tried = anyio.Event()
        self._listener = listener
        self._options = options
        self._connection: Connection | None = None
        self._changed = anyio.Event()
        self.subscriptions = Subscriptions(spec.name)
        self._listing = anyio.Lock()
        self._listings_waiting = 0

    @property
    def is_up(self) -> bool:
        """Whether it is connected and listed."""
        return self._connection is not None

    @property
    def is_modern(self) -> bool:
        """Whether it is connected by protocol 2026-07-28."""
        return self._connection is not None and self._connection.is_modern

    @property
    def capabilities(self) -> types.ServerCapabilities:
        """What the server says it can do; nothing while it is away."""
        return (
            types.ServerCapabilities()
            if self._connection is None
            else self._connection.capabilities
        )

    @property
    def instructions(self) -> str:
        """The server's instructions; empty while it is away."""
        return "" if self._connection is None else self._connection.session.instructions or ""

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
            scope.deadline = anyio.current_time() + self._options.connect_seconds
            try:
                async with self._client(closed) as client:
                    connection = Connection(self.spec, client.session, closed)
                    self.tools = await connection.list_tools()
                    scope.deadline = float("inf")
                    try:
                        await self._serve(connection)
                    finally:
                        self._set_connection(None)
                        with anyio.CancelScope(shield=True):
                            await self._listener.tools_changed(self)
            except Exception as error:  # noqa: BLE001  # whatever ends one upstream ends only it
                return _sentence(error)
        if scope.cancelled_caught:
            return f"no connection within {self._options.connect_seconds:g} s"
        return "the connection was closed"

    async def _serve(self, connection: Connection) -> None:
        self._set_connection(connection)
        logger.info("upstream %r: connected, %d tools", self.name, len(self.tools))
        await self._listener.tools_changed(self)
        self.tried.set()
        async with anyio.create_task_group() as tasks:
            if connection.is_modern:
                tasks.start_soon(self.subscriptions.listen, connection)
            else:
                tasks.start_soon(self.subscriptions.restore, connection)
            while not connection.closed.is_set():
                with anyio.move_on_after(PROBE_SECONDS if self.spec.url else None):
                    await connection.closed.wait()
                if self.spec.url and not connection.closed.is_set():
                    await connection.probe(PROBE_SECONDS)
            tasks.cancel_scope.cancel()

    def _set_connection(self, connection: Connection | None) -> None:
        self._connection = self.subscriptions.connection = connection
        self._changed.set()
        self._changed = anyio.Event()

    def _client(self, closed: anyio.Event) -> Client:
        return Client(
            watch(transport_to(self.spec), closed),
            mode="auto",
            cache=None,
            message_handler=self._handle,
            sampling_callback=self._callback(types.CreateMessageRequest),
            elicitation_callback=self._callback(types.ElicitRequest),
            list_roots_callback=self._callback(types.ListRootsRequest),
            client_info=types.Implementation(name="dtdr-mcp", version="1"),
        )

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
        for _ in range(MAX_TRIES):
            connection = await self._ready()
            sent = self.subscriptions.stamp(params, connection)
            try:
                return await connection.send(method, sent, progress)
            except NotDeliveredError:
                logger.info("upstream %r: lost the session; connecting again", self.name)
        raise UnavailableError(self.name, sent=False)

    async def _ready(self) -> Connection:
        """The living connection, for which a request waits a moment.

        Raises:
            UnavailableError: there is none.
        """
        if self._connection is not None and not self._connection.closed.is_set():
            return self._connection
        with anyio.move_on_after(self._options.wait_seconds):
            while True:
                await self._changed.wait()
                if self._connection is not None and not self._connection.closed.is_set():
                    return self._connection
        raise UnavailableError(self.name, sent=False)

    async def list_all(self, method: str, key: str) -> list[dict[str, Any]]:
        """Every page of a list, such as ``resources/list``; empty while the server is away.

        Raises:
            MCPError: the server's own error.
        """
        if self._connection is None:
            return []
        try:
            return await self._connection.list_all(method, key)
        except (UnavailableError, NotDeliveredError):
            return []

    # -- notifications and requests of the server ----------------------------------------------

    async def _handle(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            await self._refresh()
        elif isinstance(message, types.ServerNotification) and not isinstance(
            message, types.ProgressNotification
        ):
            await self._listener.notify(self, message)

    async def _refresh(self) -> None:
        """List the tools again; a burst of changes is one listing."""
        connection = self._connection
        if connection is None or self._listings_waiting:
            return
        self._listings_waiting += 1
        async with self._listing:
            self._listings_waiting -= 1
            try:
                self.tools = await connection.list_tools()
            except MCPError as error:
                logger.warning("upstream %r: cannot list its tools (%s)", self.name, error)
                return
        await self._listener.tools_changed(self)

    async def roots_changed(self) -> None:
        """Tell the server that the client's roots changed."""
        if self._connection is not None and not self._connection.is_modern:
            await self._connection.session.send_notification(types.RootsListChangedNotification())

    def _callback(self, kind: Any) -> Any:
        """A callback for the server's questions of one kind."""

        async def ask(context: ClientRequestContext, params: Any = None) -> Any:
            return await self._listener.answer(self, kind(params=params))

        return ask


class Subscriptions:
    """What clients asked of one server for all its connections: updates of resources, log messages.

    Each new connection is told, as its protocol version requires.

    Args:
        upstream: the server's name.

    Attributes:
        connection: the connection that there is now.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self.connection: Connection | None = None
        self._uris: dict[str, int] = {}
        self._log_level: types.LoggingLevel | None = None
        self._relisten = anyio.Event()

    async def subscribe(self, uri: str) -> None:
        """Receive updates of a resource, on this connection and later ones."""
        self._uris[uri] = self._uris.get(uri, 0) + 1
        if self._uris[uri] == 1:
            await self._tell("resources/subscribe", uri)

    async def unsubscribe(self, uri: str) -> None:
        """Take back one ``subscribe``."""
        count = self._uris.get(uri, 0)
        if count > 1:
            self._uris[uri] = count - 1
        elif count == 1:
            del self._uris[uri]
            await self._tell("resources/unsubscribe", uri)

    async def _tell(self, method: str, uri: str) -> None:
        if self.connection is None:
            return
        if self.connection.is_modern:
            self._relisten.set()
        else:
            await self.connection.send(method, {"uri": uri})

    async def set_log_level(self, level: types.LoggingLevel) -> None:
        """Ask for log messages of this level and above, on this connection and later ones."""
        self._log_level = level
        connection = self.connection
        if connection is None or connection.is_modern:
            return
        if connection.capabilities.logging is not None:
            await connection.send("logging/setLevel", {"level": level})

    def stamp(self, params: Mapping[str, Any], connection: Connection) -> dict[str, Any]:
        """A request's parameters; 2026-07-28 asks for log messages in each request."""
        if not connection.is_modern or self._log_level is None:
            return dict(params)
        meta = {types.LOG_LEVEL_META_KEY: self._log_level, **(params.get("_meta") or {})}
        return {**params, "_meta": meta}

    async def restore(self, connection: Connection) -> None:
        """Tell a new connection of a handshake protocol."""
        try:
            if self._log_level is not None:
                await self.set_log_level(self._log_level)
            for uri in tuple(self._uris):
                await connection.send("resources/subscribe", {"uri": uri})
        except (MCPError, UnavailableError, NotDeliveredError) as error:
            logger.debug("upstream %r: %s", self._upstream, error)

    async def listen(self, connection: Connection) -> None:
        """Hear of changes from a 2026-07-28 server, which tells only those who listen."""
        while True:
            self._relisten = relisten = anyio.Event()
            try:
                async with (
                    listen(
                        connection.session,
                        tools_list_changed=True,
                        prompts_list_changed=True,
                        resources_list_changed=True,
                        resource_subscriptions=tuple(self._uris),
                    ) as events,
                    anyio.create_task_group() as tasks,
                ):

                    async def drain() -> None:
                        async for _ in events:  # each also goes to the client's message handler
                            pass
                        tasks.cancel_scope.cancel()

                    tasks.start_soon(drain)
                    await relisten.wait()
                    tasks.cancel_scope.cancel()
            except* (MCPError, SubscriptionLost) as error:
                logger.debug("upstream %r: does not tell of changes (%r)", self._upstream, error)
            if not relisten.is_set():
                await anyio.sleep(AGAIN_SECONDS)


def _sentence(error: BaseException) -> str:
    """The first reason in a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename!r}"
    return " ".join(str(error).split()) or type(error).__name__
