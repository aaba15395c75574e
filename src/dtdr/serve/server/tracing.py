"""OpenTelemetry spans of rankings: each a ``retrieval`` of the GenAI conventions.

They go to the provider of the program, such as ``opentelemetry-instrument`` sets up.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from dtdr.serve.server.schemas import RankResponse

trace: Any = None
with contextlib.suppress(ImportError):
    from opentelemetry import propagate, trace


@contextlib.contextmanager
def ranking_span(headers: Mapping[bytes, bytes], model: str, ranker: str) -> Iterator[Any]:
    """A span around one ranking, in the request's or its caller's; None without a provider."""
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield None
        return
    context = None
    if not trace.get_current_span().get_span_context().is_valid:
        texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        context = propagate.extract(texts)
    # An exception's text may repeat the query, so only its type is noted.
    with trace.get_tracer("dtdr.server").start_as_current_span(
        f"retrieval {model}",
        context=context,
        attributes={
            "gen_ai.operation.name": "retrieval",
            "gen_ai.provider.name": "dtdr",
            "gen_ai.data_source.id": model,
            "gen_ai.request.model": ranker,
        },
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR)
            raise


def note_ranking(span: Any, query: str | None, calls: int, response: RankResponse) -> None:
    """Add a ranking after this many calls to its span, with the query if there is one."""
    if span is None:
        return
    attributes: dict[str, Any] = {
        "gen_ai.request.top_k": float(len(response.tools)),
        "dtdr.history.length": calls,
        "dtdr.confidence": response.confidence,
        "dtdr.familiar": response.familiar,
    }
    if query is not None:
        documents = [{"id": item.tool, "score": item.probability} for item in response.tools]
        attributes["gen_ai.retrieval.query.text"] = query
        attributes["gen_ai.retrieval.documents"] = json.dumps(documents)
    span.set_attributes(attributes)
