"""OpenTelemetry spans of rankings, where opentelemetry is installed; FastAPI spans the requests.

A ranking is a ``retrieval`` of the GenAI conventions, and the model its data source. Exporters are
set up as for any program, such as with ``opentelemetry-instrument`` and ``OTEL_…`` variables.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dtdr.ranking import Ranking

_tracer: Any = None
with contextlib.suppress(ImportError):
    from opentelemetry import trace

    _tracer = trace.get_tracer("dtdr.server")


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
    with _tracer.start_as_current_span(f"retrieval {model}", attributes=attributes) as span:
        yield RankSpan(span, log_queries=log_queries)
