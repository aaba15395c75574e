"""OpenTelemetry spans of requests and rankings.

A ranking is a ``retrieval`` of the GenAI conventions, and the model its data source. With
``OTEL_EXPORTER_OTLP_ENDPOINT`` spans are sent there; else the program's own provider gets them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from dtdr.errors import MissingExtraError
from dtdr.serve.server.schemas import RankResponse

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Tracing:
    """Starts spans; without a provider each span is None.

    Args:
        provider: of spans; None takes the program's, or sets one up if the environment names a
            collector.
        log_queries: whether spans may have the text of queries.

    Raises:
        MissingExtraError: the environment names a collector, and the exporter is not installed.
    """

    def __init__(self, provider: Any = None, *, log_queries: bool = False) -> None:
        self._log_queries = log_queries
        self._tracer: Any = None
        self._exporting: Any = None
        is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if provider is None and not is_disabled and any(map(os.environ.get, _ENDPOINTS)):
            provider = self._exporting = _exporting_provider()
        with contextlib.suppress(ImportError):
            from opentelemetry import trace

            is_set_up = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
            if provider is not None or is_set_up:
                self._tracer = trace.get_tracer("dtdr.server", tracer_provider=provider)

    def shut_down(self) -> None:
        """Send the spans that wait."""
        if self._exporting is not None:
            self._exporting.shutdown()

    def request(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> Any:
        """A span around one request, below the caller's; ``note_answer`` completes it."""
        if self._tracer is None:
            return contextlib.nullcontext()
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        return self._tracer.start_as_current_span(
            scope["method"],
            context=propagate.extract(texts),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": scope["method"], "url.scheme": scope["scheme"]},
        )

    def note_answer(self, span: Any, method: str, route: str, status: int) -> None:
        """Add route and status to a request's span."""
        if span is not None:
            span.update_name(f"{method} {route}")
            span.set_attributes({"http.route": route, "http.response.status_code": status})
            if status >= 500:
                _mark_failed(span)

    @contextlib.contextmanager
    def ranking(self, model: str, retriever: str) -> Iterator[Any]:
        """A span around one ranking; ``note_ranking`` completes it."""
        if self._tracer is None:
            yield None
            return
        # An exception's text may repeat the query, so only its type is noted.
        with self._tracer.start_as_current_span(
            f"retrieval {model}",
            attributes={
                "gen_ai.operation.name": "retrieval",
                "gen_ai.provider.name": "dtdr",
                "gen_ai.data_source.id": model,
                "gen_ai.request.model": retriever,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                _mark_failed(span)
                raise

    def note_ranking(self, span: Any, query: str, calls: int, response: RankResponse) -> None:
        """Add a ranking to its span."""
        if span is None:
            return
        attributes: dict[str, Any] = {
            "gen_ai.request.top_k": float(len(response.tools)),
            "dtdr.history.length": calls,
            "dtdr.confidence": response.confidence,
            "dtdr.familiar": response.familiar,
        }
        if self._log_queries:
            documents = [{"id": item.tool, "score": item.probability} for item in response.tools]
            attributes["gen_ai.retrieval.query.text"] = query
            attributes["gen_ai.retrieval.documents"] = json.dumps(documents)
        span.set_attributes(attributes)


def _mark_failed(span: Any) -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR)


def _exporting_provider() -> Any:
    """A provider that sends spans to the environment's collector.

    Raises:
        MissingExtraError: the exporter is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        package = "opentelemetry-exporter-otlp-proto-http"
        raise MissingExtraError("sending spans", "otel", package) from error
    name = os.environ.get("OTEL_SERVICE_NAME", "dtdr")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
