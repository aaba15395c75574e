"""OpenTelemetry spans of requests and rankings, where OpenTelemetry is set up.

A ranking is a ``retrieval`` of the GenAI conventions, and the model its data source. With
``OTEL_EXPORTER_OTLP_ENDPOINT`` spans are sent there; a program that sets up a provider itself is
left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dtdr.errors import MissingExtraError
from dtdr.serve.server import schemas

NoteRanking = Callable[[str, int, schemas.RankResponse], None]
"""Takes a query, the number of calls so far, and the ranking."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Tracing:
    """Starts spans.

    Args:
        provider: of spans; None takes the program's own where it has set one up, and sets one up
            when the environment names a collector.
        log_queries: whether spans may hold the text of queries.

    Raises:
        MissingExtraError: spans are to be sent, and the exporter is not installed.
    """

    def __init__(self, provider: Any = None, *, log_queries: bool = False) -> None:
        self._log_queries = log_queries
        self._tracer: Any = None
        self._exporting: Any = None
        if provider is None and _is_export_wanted():
            provider = self._exporting = _exporting_provider()
        with contextlib.suppress(ImportError):
            from opentelemetry import trace

            is_set_up = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
            if provider is not None or is_set_up:
                self._tracer = trace.get_tracer("dtdr.server", tracer_provider=provider)

    def shut_down(self) -> None:
        """Send what waits to be sent."""
        if self._exporting is not None:
            self._exporting.shutdown()

    @contextlib.contextmanager
    def request(
        self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]
    ) -> Iterator[Callable[[str, int], None]]:
        """A span around one request, below the caller's; gives what notes its route and status."""
        if self._tracer is None:
            yield lambda route, status: None
            return
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind, StatusCode

        carrier = {
            name: headers[name.encode()].decode("latin-1")
            for name in propagate.get_global_textmap().fields
            if name.encode() in headers
        }
        with self._tracer.start_as_current_span(
            scope["method"],
            context=propagate.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": scope["method"], "url.scheme": scope["scheme"]},
        ) as span:

            def record(route: str, status: int) -> None:
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(StatusCode.ERROR)

            yield record

    @contextlib.contextmanager
    def trace_ranking(self, model: str, retriever: str) -> Iterator[NoteRanking]:
        """A span around one ranking; gives what notes the query, the calls and the result."""
        if self._tracer is None:
            yield lambda query, calls, response: None
            return
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

            def note(query: str, calls: int, response: schemas.RankResponse) -> None:
                span.set_attribute("gen_ai.request.top_k", float(len(response.tools)))
                span.set_attribute("dtdr.history.length", calls)
                span.set_attribute("dtdr.confidence", response.confidence)
                span.set_attribute("dtdr.familiar", response.familiar)
                if self._log_queries:
                    found = [
                        {"id": item.tool, "score": item.probability} for item in response.tools
                    ]
                    span.set_attribute("gen_ai.retrieval.query.text", query)
                    span.set_attribute("gen_ai.retrieval.documents", json.dumps(found))

            try:
                yield note
            except Exception as error:
                from opentelemetry.trace import StatusCode

                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise


def _is_export_wanted() -> bool:
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not is_disabled and any(os.environ.get(name) for name in _ENDPOINTS)


def _exporting_provider() -> Any:
    """A provider that sends spans to the collector that the environment names.

    Raises:
        MissingExtraError: the exporter is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtraError(
            "sending spans", "otel", "opentelemetry-exporter-otlp-proto-http"
        ) from error
    name = os.environ.get("OTEL_SERVICE_NAME", "dtdr")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
