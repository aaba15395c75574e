"""Serves a gateway over streamable HTTP."""

from __future__ import annotations

import contextlib
import hmac
import logging
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import anyio

from dtdr.agents.gateway.clients import IDLE_SECONDS
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
    from starlette.types import ASGIApp, Receive, Scope, Send

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
        session_idle_timeout=IDLE_SECONDS,
        custom_starlette_routes=[Route("/metrics", _metrics_page(gateway), methods=["GET"])],
    )
    app = _check_access(BodyLimits(app, limits), key)
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
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
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
    registry.register(Counts())
    return lambda _: Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _check_access(app: ASGIApp, key: str) -> ASGIApp:
    """Let only requests with the key through, or without a key no web page.

    The SDK lets pages of any port of this machine through.
    """
    from starlette.responses import PlainTextResponse

    def refuse(headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        if not key:
            refusal = refuse_page(headers)
            advice = "set a key in DTDR_MCP_KEY to use it from elsewhere"
            return refusal and (refusal[0], f"{refusal[1]}; {advice}")
        sent, expected = headers.get(b"authorization", b""), f"Bearer {key}".encode()
        return None if hmac.compare_digest(sent, expected) else (401, "the key is missing or wrong")

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        answer = app
        if scope["type"] == "http" and (refusal := refuse(dict(scope["headers"]))):
            status, text = refusal
            headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            answer = PlainTextResponse(f"{text}\n", status, headers)
        await answer(scope, receive, send)

    return checked
