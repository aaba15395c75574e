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
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from dtdr.retrievers.surprise import JUDGEMENTS
from dtdr.server.metrics import HIDDEN_TOKENS, INPUT_PRICE, JUDGED_CALLS, SHOWN_TOKENS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from dtdr.gateway.gateway import Gateway

PATH = "/metrics"


class MetricsPage:
    """Answers ``/metrics`` beside an application; all else goes to that."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(_Judged(gateway))
        self._registry.register(_Tokens(gateway))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        from starlette.responses import Response

        page = Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
        await page(scope, receive, send)


class _Judged(Collector):
    """Reads the gateway's count when it is asked for; each judgement is there from the start."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(*JUDGED_CALLS, labels=["judgement"])
        for judgement in JUDGEMENTS:
            family.add_metric([judgement], self._gateway.judged[judgement])
        yield family


class _Tokens(Collector):
    """Definitions that clients' LLMs read and were spared, and what a token costs."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        yield CounterMetricFamily(*SHOWN_TOKENS, value=self._gateway.tokens["shown"])
        yield CounterMetricFamily(*HIDDEN_TOKENS, value=self._gateway.tokens["hidden"])
        yield GaugeMetricFamily(*INPUT_PRICE, value=self._gateway.options.input_price)
