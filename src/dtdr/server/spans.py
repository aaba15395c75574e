"""OpenTelemetry spans of rankings, where opentelemetry is set up; FastAPI spans the requests.

A ranking is a ``retrieval`` of the GenAI conventions, and the model its data source. With
``OTEL_EXPORTER_OTLP_ENDPOINT`` FastAPI sends all spans there; a program that sets up providers
itself is left alone.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi.telemetry import TelemetryConfig

from dtdr.errors import MissingExtraError
from dtdr.ranking import Ranking

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class RankSpan:
    """What is known about one ranking, written to its span; to none where there is none."""

    __slots__ = ("_log_queries", "_span")

    def __init__(self, span: Any = None, *, log_queries: bool = False) -> None:
        self._span = span
        self._log_queries = log_queries

    def done(
        self, query: str, calls: int, ranking: Ranking, shown: Sequence[Mapping[str, Any]]
    ) -> None:
        """Note the result; the query and the tools only where queries may be logged."""
        span = self._span
        if span is None or not span.is_recording():
            return
        span.set_attribute("gen_ai.request.top_k", float(len(shown)))
        span.set_attribute("dtdr.history.length", calls)
        span.set_attribute("dtdr.confidence", ranking.confidence)
        span.set_attribute("dtdr.familiar", ranking.is_familiar)
        if self._log_queries:
            span.set_attribute("gen_ai.retrieval.query.text", query)
            documents = [{"id": item["tool"], "score": item["probability"]} for item in shown]
            span.set_attribute("gen_ai.retrieval.documents", json.dumps(documents))


_NO_SPAN = contextlib.nullcontext(RankSpan())


class Spans:
    """Starts spans of rankings, and says how FastAPI spans requests.

    Args:
        provider: of spans; None takes the program's own, where it has set one up, or has FastAPI
            set one up when the environment names a collector.
        log_queries: whether spans may hold the text of queries.

    Raises:
        MissingExtraError: spans are to be sent, and the exporter is not installed.
    """

    def __init__(self, provider: Any = None, *, log_queries: bool = False) -> None:
        self._log_queries = log_queries
        self._provider = provider
        self._tracer: Any = None
        wanted = any(os.environ.get(name) for name in _ENDPOINTS)
        self._export = wanted and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"
        if self._export:
            try:
                importlib.import_module("opentelemetry.exporter.otlp.proto.http")
            except ImportError as error:
                raise MissingExtraError(
                    "sending spans", "otel", "opentelemetry-exporter-otlp-proto-http"
                ) from error
        with contextlib.suppress(ImportError):
            from opentelemetry import trace

            set_up = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
            if provider is not None or self._export or set_up:
                self._tracer = trace.get_tracer("dtdr.server", tracer_provider=provider)

    @property
    def active(self) -> bool:
        """Whether there are any spans."""
        return self._tracer is not None

    @property
    def telemetry(self) -> TelemetryConfig:
        """What FastAPI is told: spans of requests where there are any spans, and nothing else.

        Spans of its single steps would drown rankings, and its log records would hold the text of
        exceptions.
        """
        return {
            "tracer_provider": self._provider,
            "tracing": self.active,
            "metrics": self.active,
            "logs": False,
            "operation_spans": False,
            "auto_configure": self._export,
        }

    def ranking(self, model: str, retriever: str) -> contextlib.AbstractContextManager[RankSpan]:
        """A span around one ranking."""
        return _NO_SPAN if self._tracer is None else self._started(model, retriever)

    @contextlib.contextmanager
    def _started(self, model: str, retriever: str) -> Iterator[RankSpan]:
        attributes = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.provider.name": "dtdr",
            "gen_ai.data_source.id": model,
            "gen_ai.request.model": retriever,
        }
        # An exception's text may repeat the query, so only its type is noted.
        with self._tracer.start_as_current_span(
            f"retrieval {model}",
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield RankSpan(span, log_queries=self._log_queries)
            except Exception as error:
                from opentelemetry.trace import StatusCode

                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise
