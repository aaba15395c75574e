"""Serves a gateway over streamable HTTP."""

from __future__ import annotations

import contextlib
import hmac
import logging
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import anyio

from dtdr.agents.gateway.clients import session_key
from dtdr.agents.gateway.gateway import Gateway
from dtdr.agents.gateway.server import GatewayServer
from dtdr.agents.gateway.stdio import on_signals
from dtdr.errors import InputError
from dtdr.net.limits import Limits, is_loopback, listen
from dtdr.net.metrics import HIDDEN_TOKENS, SHOWN_TOKENS
from dtdr.net.origins import refuse_page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("dtdr.mcp")

PATH = "/mcp"
LIMITS = Limits(body_bytes=4 << 20)
"""Defaults of the gateway; the SDK takes arguments of this size."""


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
        key: if set, clients must send it as ``Authorization: Bearer …``.
        limits: on connections, heads and bodies; the others are ignored.

    Raises:
        InputError: the address is public and there is no key, or it cannot listen there.
    """
    import uvicorn
    from starlette.routing import Route

    from dtdr.net.connections import limit_connections
    from dtdr.net.message_limits import BodyLimits

    if not is_loopback(host) and not key:
        raise InputError(
            f"{host} can be reached by others; set a key in DTDR_MCP_KEY, or serve on 127.0.0.1"
        )
    app: ASGIApp = GatewayServer(gateway).streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        max_request_body_size=limits.body_bytes,
        session_idle_timeout=gateway.options.idle_seconds,
        custom_starlette_routes=[Route("/metrics", _metrics_page(gateway), methods=["GET"])],
    )
    app = _check_access(BodyLimits(_forget_ended_sessions(app, gateway), limits), key)
    config = uvicorn.Config(
        app,
        http=limit_connections(limits, lambda _, reason: reason.encode()),
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
    with listen(host, port) as listener:
        async with gateway.run(), anyio.create_task_group() as tasks:
            tasks.start_soon(on_signals, stop, signal.SIGINT, signal.SIGTERM)
            logger.info("serving http://%s:%d%s", host, port, PATH)
            await server.serve([listener])
            tasks.cancel_scope.cancel()
    if signal.SIGINT in received:
        raise KeyboardInterrupt


def _metrics_page(gateway: Gateway) -> Callable[[Request], Response]:
    """A gateway's counts in Prometheus' text format."""
    from prometheus_client import (
        CollectorRegistry,
        PlatformCollector,
        ProcessCollector,
        generate_latest,
    )
    from prometheus_client.core import CounterMetricFamily
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector
    from starlette.responses import Response

    class Counts(Collector):
        def collect(self) -> Iterator[CounterMetricFamily]:
            for metric, kind in ((SHOWN_TOKENS, "shown"), (HIDDEN_TOKENS, "hidden")):
                yield CounterMetricFamily(*metric, value=gateway.tokens[kind])

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(Counts())
    return lambda _: Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _forget_ended_sessions(app: ASGIApp, gateway: Gateway) -> ASGIApp:
    """Forget a client that ends its session, which the SDK does not report."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def send_and_look(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        await app(scope, receive, send_and_look)
        if scope["type"] == "http" and scope["method"] == "DELETE" and status == 200:
            session = dict(scope["headers"]).get(b"mcp-session-id", b"").decode("latin-1")
            gateway.clients.forget(session_key(session))

    return served


def _check_access(app: ASGIApp, key: str) -> ASGIApp:
    """Let only requests with the key through, or without a key no web page.

    The SDK lets pages of any port of this machine through.
    """
    from starlette.responses import PlainTextResponse

    def refusal_of(headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        if key:
            sent, expected = headers.get(b"authorization", b""), f"Bearer {key}".encode()
            is_right = hmac.compare_digest(sent, expected)
            return None if is_right else (401, "the key is missing or wrong")
        if (refusal := refuse_page(headers)) is None:
            return None
        return refusal[0], f"{refusal[1]}; set a key in DTDR_MCP_KEY to use it from elsewhere"

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        answer = app
        if scope["type"] == "http" and (refusal := refusal_of(dict(scope["headers"]))):
            status, text = refusal
            headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            answer = PlainTextResponse(f"{text}\n", status, headers)
        await answer(scope, receive, send)

    return checked
