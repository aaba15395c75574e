"""Metrics in Prometheus' text format, in one registry for each server."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from dtdr.serve.server.models import ServedModel

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """The server's metrics. No label has a text that a client may choose."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def show(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self.requests = count("dtdr_requests", "Requests answered.", "route", "method", "status")
        self.seconds = Histogram(
            "dtdr_request_seconds",
            "From the end of a request's body to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.rankings = count("dtdr_rankings", "Steps ranked.", "model")
        text = "Steps whose query is unlike the demonstrations."
        self.unfamiliar = count("dtdr_unfamiliar_queries", text, "model")
        text = "Tokens of tools' definitions that LLMs were shown, about."
        self.shown_tokens = count("dtdr_shown_definition_tokens", text, "model")
        text = "Tokens of tools' definitions that were kept out of prompts, about."
        self.hidden_tokens = count("dtdr_hidden_definition_tokens", text, "model")
        text = "Demonstrations learned from feedback."
        self.learned = count("dtdr_learned_demonstrations", text, "model")
        text = "Demonstrations from feedback appended to the log."
        self.logged = count("dtdr_logged_demonstrations", text, "model")
        text = "When the served model folder was written; time() minus this is its age."
        self.written = show("dtdr_model_written_timestamp_seconds", text, "model")
        self.reloads = count("dtdr_reloads", "Reloads of a model folder.", "model", "outcome")
        self.generation = show("dtdr_model_generation", "Snapshot that is served.", "model")
        text = "Demonstrations learned and not yet saved."
        self.unsaved = show("dtdr_unsaved_demonstrations", text, "model")
        text = "1 where a folder, the keys or the sessions could not be looked after the last time."
        self.failing = show("dtdr_failing", text, "task")
        self.sessions = show("dtdr_sessions_open", "Open sessions.")
        self.refused_keys = count("dtdr_refused_keys", "Requests without a valid key.")
        text = "Connections that were refused or ended before a request."
        self.refused_connections = count("dtdr_refused_connections", text, "reason")

    def show_model(self, model: ServedModel) -> None:
        """Show the snapshot that a model serves at the time of a look."""
        self.generation.labels(model.name).set_function(lambda: model.current.generation)
        self.unsaved.labels(model.name).set_function(lambda: model.unsaved)
        self.written.labels(model.name).set_function(lambda: model.written)

    def count_ranking(self, model: str, *, familiar: bool) -> None:
        """Count a step that was ranked."""
        self.rankings.labels(model).inc()
        if not familiar:
            self.unfamiliar.labels(model).inc()

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self._registry)
