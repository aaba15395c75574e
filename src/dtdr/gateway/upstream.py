"""One MCP server behind the gateway: connected, listed, watched, and connected again."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError

from dtdr.gateway.link import (
    Link,
    NotDeliveredError,
    RawResult,
    UnavailableError,
    transport_to,
)
from dtdr.gateway.listener import Listener
from dtdr.gateway.specs import UpstreamSpec
from dtdr.gateway.standing import Standing
from dtdr.gateway.watch import watched

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
        self._link: Link | None = None
        self._changed = anyio.Event()
        self._standing = Standing(spec.name)
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
                    link = Link(self.spec, client.session, closed)
                    self.tools = await link.list_tools()
                    scope.deadline = float("inf")
                    try:
                        await self._serve(link)
                    finally:
                        self._set_link(None)
                        with anyio.CancelScope(shield=True):
                            await self._listener.tools_changed(self)
            except Exception as error:  # noqa: BLE001  # whatever ends one upstream ends only it
                return _sentence(error)
        if scope.cancelled_caught:
            return f"no connection within {self._connect_seconds:g} s"
        return "the connection was closed"

    async def _serve(self, link: Link) -> None:
        self._set_link(link)
        logger.info("upstream %r: connected, %d tools", self.name, len(self.tools))
        await self._listener.tools_changed(self)
        self.tried.set()
        async with anyio.create_task_group() as tasks:
            if link.is_modern:
                tasks.start_soon(self._standing.listen, link)
            else:
                tasks.start_soon(self._standing.restore, link)
            while not link.closed.is_set():
                with anyio.move_on_after(PROBE_SECONDS if self.spec.url else None):
                    await link.closed.wait()
                if self.spec.url and not link.closed.is_set():
                    await link.probe(PROBE_SECONDS)
            tasks.cancel_scope.cancel()

    def _set_link(self, link: Link | None) -> None:
        self._link = link
        self._changed.set()
        self._changed = anyio.Event()

    def _client(self, closed: anyio.Event) -> Client:
        return Client(
            watched(transport_to(self.spec), closed),
            mode="auto",
            cache=None,
            message_handler=self._heard,
            sampling_callback=self._asking(types.CreateMessageRequest),
            elicitation_callback=self._asking(types.ElicitRequest),
            list_roots_callback=self._asking(types.ListRootsRequest),
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
            link = await self._ready()
            sent = self._standing.stamped(params, link)
            try:
                return await link.send(method, sent, progress)
            except NotDeliveredError:
                logger.info("upstream %r: lost the session; connecting again", self.name)
        raise UnavailableError(self.name, sent=False)

    async def _ready(self) -> Link:
        """The living connection, for which a request waits a moment.

        Raises:
            UnavailableError: there is none.
        """
        if self._link is not None and not self._link.closed.is_set():
            return self._link
        with anyio.move_on_after(self._wait_seconds):
            while True:
                await self._changed.wait()
                if self._link is not None and not self._link.closed.is_set():
                    return self._link
        raise UnavailableError(self.name, sent=False)

    async def list_all(self, method: str, key: str) -> list[dict[str, Any]]:
        """Every page of a list, such as ``resources/list``; empty while the server is away.

        Raises:
            MCPError: the server's own error.
        """
        if self._link is None:
            return []
        try:
            return await self._link.list_all(method, key)
        except (UnavailableError, NotDeliveredError):
            return []

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
                self.tools = await link.list_tools()
            except MCPError as error:
                logger.warning("upstream %r: cannot list its tools (%s)", self.name, error)
                return
        await self._listener.tools_changed(self)

    # -- what outlives a connection --------------------------------------------------------------

    async def subscribe(self, uri: str) -> None:
        """Hear of updates of a resource, on this connection and later ones."""
        await self._standing.subscribe(uri, self._link)

    async def unsubscribe(self, uri: str) -> None:
        """Take back one ``subscribe``."""
        await self._standing.unsubscribe(uri, self._link)

    async def set_log_level(self, level: types.LoggingLevel) -> None:
        """Ask for log messages of this level and above, on this connection and later ones."""
        await self._standing.set_log_level(level, self._link)

    async def roots_changed(self) -> None:
        """Tell the server that the client's roots changed."""
        if self._link is not None and not self._link.is_modern:
            await self._link.session.send_notification(types.RootsListChangedNotification())

    def _asking(self, kind: Any) -> Any:
        """A callback for the server's questions of one kind."""

        async def ask(context: ClientRequestContext, params: Any = None) -> Any:
            return await self._listener.answer(self, kind(params=params))

        return ask


def _sentence(error: BaseException) -> str:
    """The first reason in a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename!r}"
    return " ".join(str(error).split()) or type(error).__name__
