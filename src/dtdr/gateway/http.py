"""Serves a gateway over streamable HTTP."""

from __future__ import annotations

import contextlib
import hmac
import logging
import signal
from typing import TYPE_CHECKING

import anyio

from dtdr.errors import InputError
from dtdr.gateway.clients import session_key
from dtdr.gateway.gateway import Gateway
from dtdr.gateway.server import GatewayServer
from dtdr.gateway.stdio import on_signals
from dtdr.server.origins import refuse_page
from dtdr.server.settings import Limits, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("dtdr.mcp")

PATH = "/mcp"
LIMITS = Limits(body_bytes=4 << 20)
"""Of the gateway: a call's arguments can be as long as the SDK takes them."""


async def serve_http(
    gateway: Gateway,
    host: str,
    port: int,
    *,
    key: str = "",
    limits: Limits = LIMITS,
) -> None:
    """Serve clients over streamable HTTP until interrupted, and ``/metrics`` for Prometheus.

    Args:
        gateway: what is served.
        host: address to listen on.
        port: its port.
        key: given, clients must send it as ``Authorization: Bearer …``.
        limits: on connections, heads and bodies; the others are not used here.

    Raises:
        InputError: the address is public and there is no key.
    """
    import uvicorn

    from dtdr.gateway.message_limits import BodyLimits
    from dtdr.gateway.metrics import MetricsPage
    from dtdr.server.connections import Connections

    require_key_for(host, key)
    app: ASGIApp = GatewayServer(gateway).streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        max_request_body_size=limits.body_bytes,
        session_idle_timeout=gateway.options.idle_seconds,
    )
    app = BodyLimits(MetricsPage(_SessionEnd(app, gateway), gateway), limits)
    app = _KeyCheck(app, key) if key else _PageCheck(app)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Connections(limits, lambda _, reason: reason.encode()).protocol,
        ws="none",
        proxy_headers=False,
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
    async with gateway.run(), anyio.create_task_group() as tasks:
        tasks.start_soon(on_signals, stop, signal.SIGINT, signal.SIGTERM)
        logger.info("serving http://%s:%d%s", host, port, PATH)
        await server.serve()
        tasks.cancel_scope.cancel()
    if signal.SIGINT in received:
        raise KeyboardInterrupt


def require_key_for(host: str, key: str) -> None:
    """Refuse to listen on a public address for everybody.

    Raises:
        InputError: the address is public and there is no key.
    """
    if not is_loopback(host) and not key:
        raise InputError(
            f"{host} can be reached by others; set a key in DTDR_MCP_KEY, or serve on 127.0.0.1"
        )


class _SessionEnd:
    """Has the gateway forget a client that ends its session, which the SDK tells nobody of."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def send_and_look(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        await self._app(scope, receive, send_and_look)
        if scope["type"] == "http" and scope["method"] == "DELETE" and status == 200:
            session = dict(scope["headers"]).get(b"mcp-session-id", b"").decode("latin-1")
            self._gateway.clients.forget(session_key(session))


class _PageCheck:
    """Lets no web page through; the SDK lets pages of any port of this machine."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = refuse_page(dict(scope["headers"])) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        from starlette.responses import PlainTextResponse

        status, reason = refusal
        text = f"{reason}; set a key in DTDR_MCP_KEY to use it from elsewhere\n"
        await PlainTextResponse(text, status)(scope, receive, send)


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
