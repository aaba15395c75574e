"""OpenTelemetry spans of rankings, where opentelemetry is installed; FastAPI spans the requests.

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

_tracer: Any = None
with contextlib.suppress(ImportError):
    from opentelemetry import trace

    _tracer = trace.get_tracer("dtdr.server")


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def telemetry() -> TelemetryConfig:
    """What FastAPI is told about telemetry.

    Raises:
        MissingExtraError: spans are to be sent, and the exporter is not installed.
    """
    wanted = any(os.environ.get(name) for name in _ENDPOINTS)
    if wanted and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
        try:
            importlib.import_module("opentelemetry.exporter.otlp.proto.http")
        except ImportError as error:
            raise MissingExtraError(
                "sending spans", "otel", "opentelemetry-exporter-otlp-proto-http"
            ) from error
    # Rankings have spans of their own; spans of FastAPI's single steps would drown them. Its log
    # records would hold the text of exceptions.
    return {"operation_spans": False, "logs": False, "auto_configure": wanted}


class RankSpan:
    """What is known about one ranking, written to its span."""

    __slots__ = ("_log_queries", "_span")

    def __init__(self, span: Any, *, log_queries: bool) -> None:
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


@contextlib.contextmanager
def ranking_span(model: str, retriever: str, *, log_queries: bool) -> Iterator[RankSpan]:
    """A span around one ranking; nothing where opentelemetry is not installed."""
    if _tracer is None:
        yield RankSpan(None, log_queries=log_queries)
        return
    attributes = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.provider.name": "dtdr",
        "gen_ai.data_source.id": model,
        "gen_ai.request.model": retriever,
    }
    # An exception's text may repeat the query, so only its type is noted.
    with _tracer.start_as_current_span(
        f"retrieval {model}",
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield RankSpan(span, log_queries=log_queries)
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR)
            raise
