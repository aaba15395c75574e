"""What an upstream tells whoever listens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import mcp_types as types

if TYPE_CHECKING:
    from dtdr.gateway.upstream import Upstream

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

    async def announce(self, upstream: Upstream, note: types.ServerNotification) -> None:
        """The upstream sent a notification that is no progress."""

    async def answer(self, upstream: Upstream, request: types.ServerRequest) -> InputAnswer:
        """The upstream asks the client for something: sampling, elicitation or roots."""
