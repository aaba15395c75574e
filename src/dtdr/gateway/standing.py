"""What clients asked of a server for all its connections: subscriptions, and how much it logs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError

from dtdr.gateway.link import Link, NotDeliveredError, UnavailableError

logger = logging.getLogger("dtdr.mcp")

AGAIN_SECONDS = 5.0
"""Before a stream of changes that ended is opened again."""


class Standing:
    """Told to each new connection of one server, in the way of the protocol that it speaks.

    Args:
        upstream: the server's name.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._uris: dict[str, int] = {}
        self._log_level: types.LoggingLevel | None = None
        self._relisten = anyio.Event()

    async def subscribe(self, uri: str, link: Link | None) -> None:
        """Hear of updates of a resource; ``link`` is the connection that there is now."""
        self._uris[uri] = self._uris.get(uri, 0) + 1
        if self._uris[uri] == 1:
            await self._changed("resources/subscribe", uri, link)

    async def unsubscribe(self, uri: str, link: Link | None) -> None:
        """Take back one ``subscribe``."""
        count = self._uris.get(uri, 0)
        if count > 1:
            self._uris[uri] = count - 1
        elif count == 1:
            del self._uris[uri]
            await self._changed("resources/unsubscribe", uri, link)

    async def _changed(self, method: str, uri: str, link: Link | None) -> None:
        if link is None:
            return
        if link.is_modern:
            self._relisten.set()
        else:
            await link.send(method, {"uri": uri})

    async def set_log_level(self, level: types.LoggingLevel, link: Link | None) -> None:
        """Ask for log messages of this level and above."""
        self._log_level = level
        if link is not None and not link.is_modern and link.capabilities.logging is not None:
            await link.send("logging/setLevel", {"level": level})

    def stamped(self, params: Mapping[str, Any], link: Link) -> dict[str, Any]:
        """A request's parameters; 2026-07-28 asks for log messages in each request."""
        if not link.is_modern or self._log_level is None:
            return dict(params)
        meta = {types.LOG_LEVEL_META_KEY: self._log_level, **(params.get("_meta") or {})}
        return {**params, "_meta": meta}

    async def restore(self, link: Link) -> None:
        """Tell a new connection of a handshake protocol."""
        try:
            if self._log_level is not None:
                await self.set_log_level(self._log_level, link)
            for uri in tuple(self._uris):
                await link.send("resources/subscribe", {"uri": uri})
        except (MCPError, UnavailableError, NotDeliveredError) as error:
            logger.debug("upstream %r: %s", self._upstream, error)

    async def listen(self, link: Link) -> None:
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
