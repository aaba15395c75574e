"""One MCP server behind the gateway: connected, listed, watched, and connected again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.client import Client
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from dtdr.agents.gateway.clients import Clients, ClientState, Context
from dtdr.agents.gateway.config import UpstreamSpec
from dtdr.agents.gateway.listing import first_reason, list_items
from dtdr.agents.gateway.pins import Pins
from dtdr.agents.gateway.questions import (
    ASKING,
    OpenCall,
    RawResult,
    answer_inputs,
    ask,
    refuse,
    select_params,
)
from dtdr.agents.gateway.streams import open_transport

logger = logging.getLogger("dtdr.mcp")

CONNECT_SECONDS = 30.0
"""How long a server may take to connect."""

WAIT_SECONDS = 5.0
"""How long a request waits for a disconnected server before it fails."""

MAX_TRIES = 3
"""How often a request is sent if an HTTP server refuses it because it lost the session."""

FIRST_DELAY = 0.2
LONGEST_DELAY = 30.0
"""Seconds before a dead upstream is tried again: doubled from the first to the longest."""

STEADY_SECONDS = 10.0
"""An upstream that lived this long before it died is tried again at once."""

PROBE_SECONDS = 5.0
"""How often an HTTP upstream is asked for a sign of life; a pipe closes if its server dies."""

AGAIN_SECONDS = 5.0
"""Before a stream of changes that ended is opened again."""

_RAW: Any = TypeAdapter(RawResult)


class ServerUnavailableError(MCPError):
    """An upstream is disconnected; ``sent`` if the request may have reached it."""

    def __init__(self, upstream: str, *, sent: bool) -> None:
        super().__init__(
            types.INTERNAL_ERROR,
            f"the MCP server {upstream!r} went away before it answered; "
            "whether the call was carried out is not known"
            if sent
            else f"the MCP server {upstream!r} is not available; the call was not made",
        )
        self.upstream, self.sent = upstream, sent


class _UpstreamConnection(NamedTuple):
    """A living connection; ``closed`` is set when nothing more can come from the server."""

    session: ClientSession
    closed: anyio.Event

    @property
    def is_modern(self) -> bool:
        return self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    def has(self, capability: str) -> bool:
        return getattr(self.session.server_capabilities, capability, None) is not None


class Upstream:
    """Keeps one server connected; ``run`` is its task, everything else may be called at any time.

    Errors of the server itself are raised as MCPError.

    Args:
        spec: which server.
        pins: accept the server's tools.
        clients: receive what the server sends on its own.
        tools_changed: called when the server's tools changed, or it connected or disconnected.

    Attributes:
        tools: the server's tool definitions that are accepted; those last seen while it is
            disconnected.
        tried: set once the first connection was made or failed.
    """

    def __init__(
        self,
        spec: UpstreamSpec,
        pins: Pins,
        clients: Clients,
        tools_changed: Callable[[], Awaitable[None]],
    ) -> None:
        self.spec = spec
        self._pins = pins
        self.name = spec.name
        self.tools: list[dict[str, Any]] = []
        self._listed: list[dict[str, Any]] = []
        self.tried = anyio.Event()
        # The clients' requests that the server is working on.
        self._callers: list[tuple[ClientState, Context, OpenCall | None]] = []
        self._clients = clients
        self._tools_changed = tools_changed
        self._connection: _UpstreamConnection | None = None
        self._changed = anyio.Event()
        self._listing = anyio.Lock()

    @property
    def is_up(self) -> bool:
        """Whether it is connected and listed."""
        return self._connection is not None

    @property
    def has_resources(self) -> bool:
        """Whether the server that is connected has resources."""
        return self._connection is not None and self._connection.has("resources")

    @property
    def instructions(self) -> str:
        """The server's instructions; empty while it is disconnected."""
        return (self._connection and self._connection.session.instructions) or ""

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
            await anyio.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY)

    async def _live_once(self) -> str:
        """One connection from beginning to end; the reason it ended."""
        closed = anyio.Event()
        client = Client(
            open_transport(self.spec, closed),
            mode="auto",
            cache=None,
            message_handler=self._handle,
            sampling_callback=self._callback(types.CreateMessageRequest),
            elicitation_callback=self._callback(types.ElicitRequest),
            list_roots_callback=self._callback(types.ListRootsRequest),
            client_info=types.Implementation(name="dtdr-mcp", version="1"),
        )
        with anyio.move_on_after(CONNECT_SECONDS) as scope:
            try:
                async with client:
                    connection = _UpstreamConnection(client.session, closed)
                    await self._list_tools(connection)
                    scope.deadline = float("inf")
                    try:
                        await self._serve(connection)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await self._set_connection(None)
            except Exception as error:  # noqa: BLE001  # whatever ends one upstream ends only it
                return first_reason(error)
        if scope.cancelled_caught:
            return f"no connection within {CONNECT_SECONDS:g} s"
        return "the connection was closed"

    async def _serve(self, connection: _UpstreamConnection) -> None:
        logger.info("upstream %r: connected, %d tools", self.name, len(self.tools))
        await self._set_connection(connection)
        self.tried.set()
        async with anyio.create_task_group() as tasks:
            if connection.is_modern:
                tasks.start_soon(self._listen, connection)
            if self.spec.url:
                tasks.start_soon(self._probe, connection)
            await connection.closed.wait()
            tasks.cancel_scope.cancel()

    async def _probe(self, connection: _UpstreamConnection) -> None:
        """Ask an HTTP server for signs of life; a busy one that stays silent counts as alive."""
        method = "server/discover" if connection.is_modern else "ping"
        while True:
            await anyio.sleep(PROBE_SECONDS)
            with suppress(MCPError), anyio.move_on_after(PROBE_SECONDS):
                await self._send(connection, method, {})

    async def _set_connection(self, connection: _UpstreamConnection | None) -> None:
        self._connection = connection
        self._changed.set()  # wakes all that wait for a connection; the next wait needs a new event
        self._changed = anyio.Event()
        await self._tools_changed()

    # -- requests ------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Mapping[str, Any], progress: ProgressFnT | None = None
    ) -> RawResult:
        """Send a request once and return the result as it came over the wire.

        A request that comes while the server is disconnected waits for it, unsent.

        Raises:
            UnavailableError: it is disconnected, or disconnected before it answered.
        """
        for _ in range(MAX_TRIES):
            connection = await self._ready()
            try:
                return await self._send(connection, method, dict(params), progress)
            except ServerUnavailableError as error:
                if error.sent:
                    raise
                logger.info("upstream %r: lost the session; connecting again", self.name)
        raise ServerUnavailableError(self.name, sent=False)

    async def forward(
        self, context: Context, changed: Mapping[str, Any] | None = None
    ) -> RawResult:
        """The result of a client's request, as it came over the wire.

        Progress and questions of the server reach the client while it waits. If the client cancels,
        the server's call is cancelled. ``changed`` replaces some of the client's parameters, such
        as the tool's name. Errors are those of ``request``.
        """
        client = self._clients.of(context)
        sent = {**select_params(context), **(changed or {})}
        is_asked = "progressToken" in ((context.params or {}).get("_meta") or {})
        progress = context.session.report_progress if is_asked else None

        async def send(added: Mapping[str, Any]) -> RawResult:
            return await self.request(context.method, {**sent, **added}, progress)

        call: OpenCall | None = None
        is_handshake = self._connection is None or not self._connection.is_modern
        if client.is_modern and is_handshake and context.method in ASKING:
            waiting = client.open_calls.pop(sent.get("requestState", ""), None)
            call = waiting.answer(sent) if waiting else OpenCall(send({}), client.open_calls)
        caller = (client, context, call)
        self._callers.append(caller)
        try:
            result = await (call.outcome() if call else send({}))
            return result if client.is_modern else await answer_inputs(context, result, send)
        finally:
            self._callers.remove(caller)

    async def _ready(self) -> _UpstreamConnection:
        """The living connection, for which a request waits a moment."""
        with anyio.move_on_after(WAIT_SECONDS):
            while self._connection is None or self._connection.closed.is_set():
                await self._changed.wait()
            return self._connection
        raise ServerUnavailableError(self.name, sent=False)

    async def _send(
        self,
        connection: _UpstreamConnection,
        method: str,
        params: dict[str, Any],
        progress: ProgressFnT | None = None,
    ) -> RawResult:
        request = types.Request[dict[str, Any], str](method=method, params=params)
        try:
            result: RawResult = await connection.session.send_request(
                request, _RAW, progress_callback=progress
            )
        except MCPError as error:
            is_lost = bool(self.spec.url) and _is_lost_session(error)
            # Over HTTP the SDK gives this code for several ways to lose a connection.
            is_gone = error.code == types.CONNECTION_CLOSED and (
                bool(self.spec.url) or error.message == "Connection closed"
            )
            if is_lost or is_gone or connection.closed.is_set():
                connection.closed.set()
                raise ServerUnavailableError(self.name, sent=not is_lost) from error
            raise
        except ValidationError as error:
            raise MCPError(
                types.INTERNAL_ERROR, f"the MCP server {self.name!r} gave an invalid result"
            ) from error
        return result

    async def list_all(self, method: str, key: str) -> list[dict[str, Any]]:
        """Every page of a list, such as ``resources/list``; empty if the server does not answer."""
        try:
            return await self._list(self._connection, method, key) if self._connection else []
        except MCPError as error:
            logger.info("upstream %r: %s", self.name, error)
            return []

    async def _list(
        self, connection: _UpstreamConnection, method: str, key: str
    ) -> list[dict[str, Any]]:
        async def ask(cursor: str | None) -> RawResult:
            if key == "tools":
                # Through the session, which keeps what the 2026 HTTP headers of a call need.
                params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
                tools = await connection.session.list_tools(params=params)
                return tools.model_dump(by_alias=True, mode="json", exclude_none=True)
            return await self._send(connection, method, {"cursor": cursor} if cursor else {})

        if not connection.has(method.partition("/")[0]):
            return []
        return await list_items(self.name, method, ask)

    # -- notifications and requests of the server ----------------------------------------------

    async def _handle(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            await self._refresh()
        elif isinstance(message, types.LoggingMessageNotification):
            logger.info("upstream %r says: %s", self.name, message.params.data)
        elif isinstance(message, types.ServerNotification) and not isinstance(
            message, (types.ProgressNotification, types.ResourceUpdatedNotification)
        ):
            for client in self._clients:
                await client.notify(message)

    async def _refresh(self) -> None:
        """List the tools again; a burst of changes is one or two listings."""
        connection = self._connection
        if connection is None or self._listing.statistics().tasks_waiting:
            return
        async with self._listing:
            try:
                await self._list_tools(connection)
            except MCPError as error:
                logger.warning("upstream %r: cannot list its tools (%s)", self.name, error)
                return
        await self._tools_changed()

    async def _list_tools(self, connection: _UpstreamConnection) -> None:
        self._listed = await self._list(connection, "tools/list", "tools")
        await self.check_pins()

    async def check_pins(self) -> None:
        """Accept the tools that the server listed last."""
        self.tools = await anyio.to_thread.run_sync(self._pins.accept, self.name, self._listed)

    def _callback(self, kind: Any) -> Any:
        """Passes the server's questions of one kind on to the client whose call it works on."""

        async def answer(_: ClientRequestContext, params: Any = None) -> Any:
            callers = {client.key: (context, call) for client, context, call in self._callers}
            if len(callers) != 1:
                reason = "calls of several clients are" if callers else "no client's call is"
                return refuse(f"the gateway cannot tell whom to ask: {reason} being worked on")
            ((context, call),) = callers.values()
            question = kind(params=params)
            return await (call.ask(question) if call else ask(context, question))

        return answer

    async def roots_changed(self) -> None:
        """Tell the server that the client's roots changed."""
        if self._connection is not None and not self._connection.is_modern:
            await self._connection.session.send_notification(types.RootsListChangedNotification())

    async def _listen(self, connection: _UpstreamConnection) -> None:
        """Receive changes from a 2026-07-28 server, which reports them only to listeners."""
        while True:
            try:
                async with listen(
                    connection.session,
                    tools_list_changed=True,
                    prompts_list_changed=True,
                    resources_list_changed=True,
                ) as events:
                    async for _ in events:  # each also goes to the message handler
                        pass
            except (MCPError, SubscriptionLost) as error:
                logger.debug("upstream %r: does not report changes (%r)", self.name, error)
            await anyio.sleep(AGAIN_SECONDS)


def _is_lost_session(error: MCPError) -> bool:
    """Whether an HTTP server no longer knows the session (404), as after its restart."""
    return error.code == types.INVALID_REQUEST and error.message == "Session terminated"
