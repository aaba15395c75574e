"""What a gateway counted, in Prometheus' text format, as its HTTP server answers ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from dtdr.net.metrics import HIDDEN_TOKENS, SHOWN_TOKENS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from dtdr.agents.gateway.gateway import Gateway

PATH = "/metrics"


class MetricsPage:
    """Answers ``/metrics`` beside an application; all else goes to that."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(_Counts(gateway))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        from starlette.responses import Response

        page = Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
        await page(scope, receive, send)


class _Counts(Collector):
    """Reads what the gateway counted of definitions, when it is asked for."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(*SHOWN_TOKENS, value=self._gateway.tokens["shown"])
        yield CounterMetricFamily(*HIDDEN_TOKENS, value=self._gateway.tokens["hidden"])
