"""Metrics in Prometheus' text format, in a registry of the server's own."""

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

from dtdr.net.metrics import HIDDEN_TOKENS, SHOWN_TOKENS

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """What the server counts. No label ever holds what a client chose freely."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def show(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def time(name: str, text: str, label: str = "model") -> Histogram:
            text += ", waiting included." if label == "model" else ""
            return Histogram(name, text, [label], buckets=_SECONDS, registry=registry)

        text = "From the end of a request's body to the end of its answer."
        self.requests = count("dtdr_requests", "Requests answered.", "route", "method", "status")
        self.seconds = time("dtdr_request_seconds", text, "route")
        self.rankings = count("dtdr_rankings", "Steps ranked.", "model")
        self.rank_seconds = time("dtdr_rank_seconds", "Time to rank one step")
        text = "Steps whose query is unlike the demonstrations."
        self.unfamiliar = count("dtdr_unfamiliar_queries", text, "model")
        self.search_seconds = time("dtdr_search_seconds", "Time to answer a search for tools")
        self.shown_tokens = count(*SHOWN_TOKENS, "model")
        self.hidden_tokens = count(*HIDDEN_TOKENS, "model")
        text = "Calls predicted with their arguments, by whether every one was known."
        self.calls = count("dtdr_predicted_calls", text, "model", "complete")
        self.call_seconds = time("dtdr_call_seconds", "Time to predict the calls of a step")
        self.plan_seconds = time("dtdr_plan_seconds", "Time to predict whole plans")
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
        self.expired = count("dtdr_sessions_expired", "Sessions expired.")
        self.refused_keys = count("dtdr_refused_keys", "Requests without a valid key.")
        text = "Connections that were refused or ended before a request."
        self.refused_connections = count("dtdr_refused_connections", text, "reason")

    def count_ranking(self, model: str, seconds: float, *, familiar: bool) -> None:
        """Count a step that was ranked."""
        self.rankings.labels(model).inc()
        self.rank_seconds.labels(model).observe(seconds)
        if not familiar:
            self.unfamiliar.labels(model).inc()

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self._registry)
