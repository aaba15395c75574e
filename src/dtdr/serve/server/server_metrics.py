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
            return Counter(name, text, labels, namespace="dtdr", registry=registry)

        def show(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, namespace="dtdr", registry=registry)

        self.requests = count("requests", "Requests answered.", "route", "method", "status")
        self.seconds = Histogram(
            "dtdr_request_seconds",
            "From the end of a request's body to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.rankings = count("rankings", "Steps ranked.", "model")
        self.unfamiliar = count("unfamiliar_queries", "Steps unlike the demonstrations.", "model")
        self.shown_tokens = count("shown_definition_tokens", "Tokens LLMs were shown.", "model")
        self.hidden_tokens = count("hidden_definition_tokens", "Tokens kept from prompts.", "model")
        self.waiting = show("waiting_changes", "Feedback and tools to learn.", "model")
        self.logged = count("logged_demonstrations", "Feedback appended to the log.", "model")
        self.written = show("model_written_timestamp_seconds", "Date of the folder.", "model")
        self.reloads = count("reloads", "Reloads of a model folder.", "model", "outcome")
        self.generation = show("model_generation", "Snapshot that is served.", "model")
        self.unsaved = show("unsaved_demonstrations", "Learned and not yet saved.", "model")
        self.failing = show("failing", "1 where the last look at a task failed.", "task")
        self.refused_keys = count("refused_keys", "Requests without a valid key.")
        self.refused_connections = count("refused_connections", "Refused, or ended.", "reason")

    def show_model(self, model: ServedModel) -> None:
        """Show the snapshot that a model serves at the time of a look."""
        self.generation.labels(model.name).set_function(lambda: model.current.generation)
        self.unsaved.labels(model.name).set_function(lambda: model.unsaved)
        self.waiting.labels(model.name).set_function(lambda: len(model.learning.after_current))
        self.written.labels(model.name).set_function(lambda: model.written)

    def count_ranking(self, model: str, *, familiar: bool) -> None:
        """Count a step that was ranked."""
        self.rankings.labels(model).inc()
        if not familiar:
            self.unfamiliar.labels(model).inc()

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self._registry)
