"""Serves a gateway to clients over stdio or streamable HTTP."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import logging
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import anyio
import mcp_types as types
from mcp.server.caching import CacheableMethod
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions

import dtdr
from dtdr.errors import InputError
from dtdr.gateway.clients import Context
from dtdr.gateway.gateway import Gateway
from dtdr.gateway.passthrough import PassThrough
from dtdr.gateway.pipes import standard_streams
from dtdr.gateway.tools import ToolHandlers

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger("dtdr.mcp")

_CACHEABLE = frozenset(get_args(CacheableMethod))
_CHANGES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


class GatewayServer(Server[Any]):
    """The gateway as an MCP server, in the handshake protocols and in 2026-07-28."""

    def __init__(self, gateway: Gateway) -> None:
        tools = ToolHandlers(gateway)
        rest = PassThrough(gateway)
        super().__init__(
            "dtdr",
            version=dtdr.__version__,
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
            ("logging/setLevel", types.SetLevelRequestParams, rest.set_level),
        )
        for method, params, handler in handlers:
            self.add_request_handler(method, params, partial(_completed, handler))
        self.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, rest.roots_changed
        )

    @property
    def instructions(self) -> str | None:
        """The gateway's and the servers' as they are connected now."""
        return self._gateway.instructions

    @instructions.setter
    def instructions(self, value: str | None) -> None:
        """Taken from the servers; what the base class sets is ignored."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *rest: Any, **more: Any
    ) -> InitializationOptions:
        """As the base class, with every list said to change."""
        return super().create_initialization_options(
            notification_options or _CHANGES, *rest, **more
        )


async def _completed(handler: Any, context: Context, params: Any) -> Any:
    """A handler's result with what 2026-07-28 requires; earlier protocols leave it out again."""
    result = await handler(context, params)
    if not isinstance(result, dict):
        return result
    required: dict[str, Any] = {"resultType": "complete"}
    if context.method in _CACHEABLE:
        required |= {"ttlMs": 0, "cacheScope": "private"}
    return {**required, **result}


async def serve_stdio(gateway: Gateway) -> None:
    """Serve one client over standard input and output, until it closes them."""
    async with gateway.running(), anyio.create_task_group() as tasks:

        async def terminated(number: int) -> None:
            tasks.cancel_scope.cancel()

        tasks.start_soon(_on_signals, terminated, signal.SIGTERM)
        server = GatewayServer(gateway)
        async with standard_streams() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def serve_http(
    gateway: Gateway, host: str, port: int, *, path: str = "/mcp", key: str = ""
) -> None:
    """Serve clients over streamable HTTP until interrupted.

    Args:
        gateway: what is served.
        host: address to listen on.
        port: its port.
        path: of the endpoint.
        key: given, clients must send it as ``Authorization: Bearer …``.

    Raises:
        InputError: the address is public and there is no key.
    """
    import uvicorn

    from dtdr.server.one_write import OneWriteProtocol

    require_key_for(host, key)
    app: ASGIApp = GatewayServer(gateway).streamable_http_app(streamable_http_path=path, host=host)
    if key:
        app = _KeyCheck(app, key)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=OneWriteProtocol,
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    received: list[int] = []

    async def stop(number: int) -> None:
        received.append(number)
        server.should_exit = True

    # uvicorn would raise the signal again and end the process before the last runs are recorded.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    async with gateway.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(_on_signals, stop, signal.SIGINT, signal.SIGTERM)
        logger.info("serving http://%s:%d%s", host, port, path)
        await server.serve()
        tasks.cancel_scope.cancel()
    if signal.SIGINT in received:
        raise KeyboardInterrupt


async def _on_signals(act: Callable[[int], Awaitable[None]], *numbers: signal.Signals) -> None:
    """Call a function with each of these signals that comes."""
    try:
        with anyio.open_signal_receiver(*numbers) as signals:
            async for number in signals:
                await act(number)
    except (NotImplementedError, ValueError):
        # Windows, or not the main thread: there the signals do what they do without us.
        await anyio.sleep_forever()


def require_key_for(host: str, key: str) -> None:
    """Refuse to listen on a public address for everybody.

    Raises:
        InputError: the address is public and there is no key.
    """
    try:
        is_local = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local and not key:
        raise InputError(
            f"{host} can be reached by others; set a key in DTDR_MCP_KEY, or serve on 127.0.0.1"
        )


class _KeyCheck:
    """Lets only requests with the key through."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                from starlette.responses import PlainTextResponse

                refusal = PlainTextResponse(
                    "the key is missing or wrong\n", 401, {"WWW-Authenticate": "Bearer"}
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)
