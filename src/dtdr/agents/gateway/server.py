"""The gateway as an MCP server, for any transport."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

import mcp_types as types
from mcp.server.caching import CacheableMethod
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions

from dtdr.agents.gateway.clients import Context
from dtdr.agents.gateway.gateway import Gateway
from dtdr.agents.gateway.passthrough import PassThrough
from dtdr.agents.gateway.tools import ToolHandlers
from dtdr.net import VERSION

_CACHEABLE = frozenset(get_args(CacheableMethod))
_CHANGES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


class GatewayServer(Server[Any]):
    """The gateway as an MCP server, in the handshake protocols and in 2026-07-28."""

    def __init__(self, gateway: Gateway) -> None:
        tools = ToolHandlers(gateway)
        rest = PassThrough(gateway)
        super().__init__(
            "dtdr",
            version=VERSION,
            title="dtdr gateway",
            get_tool_input_schema=tools.input_schema,
        )
        self._gateway = gateway
        page = types.PaginatedRequestParams
        handlers: tuple[tuple[str, type[types.RequestParams], Any], ...] = (
            ("tools/list", page, tools.list_tools),
            ("tools/call", types.CallToolRequestParams, tools.call_tool),
            ("resources/list", page, rest.list_resources),
            ("resources/templates/list", page, rest.list_templates),
            ("resources/read", types.ReadResourceRequestParams, rest.read_resource),
            ("resources/subscribe", types.SubscribeRequestParams, rest.subscribe),
            ("resources/unsubscribe", types.UnsubscribeRequestParams, rest.unsubscribe),
            ("subscriptions/listen", types.SubscriptionsListenRequestParams, rest.listen),
            ("prompts/list", page, rest.list_prompts),
            ("prompts/get", types.GetPromptRequestParams, rest.get_prompt),
            ("completion/complete", types.CompleteRequestParams, rest.complete),
        )
        for method, params, handler in handlers:
            self.add_request_handler(method, params, partial(_complete, handler))
        self.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, rest.roots_changed
        )

    @property
    def instructions(self) -> str | None:
        """The gateway's and those of the servers that are connected now."""
        return self._gateway.instructions

    @instructions.setter
    def instructions(self, value: str | None) -> None:
        """What the base class sets is ignored."""

    def create_initialization_options(self, *options: Any, **more: Any) -> InitializationOptions:
        """As in the base class, but every list may change."""
        return super().create_initialization_options(*(options or (_CHANGES,)), **more)


async def _complete(handler: Any, context: Context, params: Any) -> Any:
    """A handler's result with fields of 2026-07-28; the SDK drops them for earlier protocols."""
    result = await handler(context, params)
    if not isinstance(result, dict):
        return result
    required: dict[str, Any] = {"resultType": "complete"}
    if context.method in _CACHEABLE:
        required |= {"ttlMs": 0, "cacheScope": "private"}
    return {**required, **result}
