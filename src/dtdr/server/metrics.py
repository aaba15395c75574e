"""Metrics in Prometheus' text format, in a registry of the server's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

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

from dtdr.arguments.prediction import CallPrediction

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

SHOWN_TOKENS = (
    "dtdr_shown_definition_tokens",
    "Tokens of tools' definitions that LLMs were shown, about.",
)
HIDDEN_TOKENS = (
    "dtdr_hidden_definition_tokens",
    "Tokens of tools' definitions that were kept out of prompts, about.",
)
INPUT_PRICE = (
    "dtdr_input_price_dollars",
    "What a million tokens of an LLM's input cost, as it was told; 0 where it was not.",
)
JUDGED_CALLS = (
    "dtdr_judged_calls",
    "Calls that were judged: odd at a p-value of .01, usual, or nothing was said.",
)
"""Name and meaning of a metric that the MCP gateway has, too."""


class Metrics:
    """What the server counts. No label ever holds what a client chose freely."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._registry = registry
        self.requests = Counter(
            "dtdr_requests",
            "Requests answered.",
            ["route", "method", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "dtdr_request_seconds",
            "From the end of a request's body to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.rankings = Counter("dtdr_rankings", "Steps ranked.", ["model"], registry=registry)
        self.rank_seconds = Histogram(
            "dtdr_rank_seconds",
            "Time to rank one step, waiting included.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.unfamiliar = Counter(
            "dtdr_unfamiliar_queries",
            "Steps whose query is unlike the demonstrations.",
            ["model"],
            registry=registry,
        )
        self.search_seconds = Histogram(
            "dtdr_search_seconds",
            "Time to answer a search for tools, waiting included.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.odd_calls = Counter(*JUDGED_CALLS, ["model", "judgement"], registry=registry)
        self.shown_tokens = Counter(*SHOWN_TOKENS, ["model"], registry=registry)
        self.hidden_tokens = Counter(*HIDDEN_TOKENS, ["model"], registry=registry)
        self.input_price = Gauge(*INPUT_PRICE, registry=registry)
        self.calls = Counter(
            "dtdr_predicted_calls",
            "Calls predicted with their arguments, by whether every one was known.",
            ["model", "complete"],
            registry=registry,
        )
        self.call_seconds = Histogram(
            "dtdr_call_seconds",
            "Time to rank one step and to predict its calls, waiting included.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.plan_seconds = Histogram(
            "dtdr_plan_seconds",
            "Time to predict whole plans, waiting included.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.learned = Counter(
            "dtdr_learned_demonstrations",
            "Demonstrations learned from feedback.",
            ["model"],
            registry=registry,
        )
        self.logged = Counter(
            "dtdr_logged_demonstrations",
            "Demonstrations from feedback appended to the log.",
            ["model"],
            registry=registry,
        )
        self.written = Gauge(
            "dtdr_model_written_timestamp_seconds",
            "When the model folder that is served was written; time() minus this is its age.",
            ["model"],
            registry=registry,
        )
        self.reloads = Counter(
            "dtdr_reloads", "Reloads of a model folder.", ["model", "outcome"], registry=registry
        )
        self.generation = Gauge(
            "dtdr_model_generation", "Snapshot that is served.", ["model"], registry=registry
        )
        self.unsaved = Gauge(
            "dtdr_unsaved_demonstrations",
            "Demonstrations learned and not yet saved.",
            ["model"],
            registry=registry,
        )
        self.failing = Gauge(
            "dtdr_failing",
            "1 where a folder, the keys or the sessions could not be looked after the last time.",
            ["task"],
            registry=registry,
        )
        self.sessions = Gauge("dtdr_sessions_open", "Open sessions.", registry=registry)
        self.expired = Counter("dtdr_sessions_expired", "Sessions expired.", registry=registry)
        self.refused_keys = Counter(
            "dtdr_refused_keys", "Requests without a valid key.", registry=registry
        )
        self.refused_connections = Counter(
            "dtdr_refused_connections",
            "Connections that were refused or ended before a request.",
            ["reason"],
            registry=registry,
        )

        # Finding a metric by its labels costs more than counting.
        self._ranked = lru_cache(
            lambda model: (self.rankings.labels(model), self.rank_seconds.labels(model))
        )
        self._answered = lru_cache(1_024)(
            lambda route, method, status: (
                self.requests.labels(route, method, status),
                self.seconds.labels(route),
            )
        )

    def count_ranking(self, model: str, seconds: float, *, familiar: bool) -> None:
        """Count a step that was ranked."""
        counter, histogram = self._ranked(model)
        counter.inc()
        histogram.observe(seconds)
        if not familiar:
            self.unfamiliar.labels(model).inc()

    def count_calls(self, model: str, seconds: float, calls: Sequence[CallPrediction]) -> None:
        """Count calls that were predicted for one step."""
        for call in calls:
            self.calls.labels(model, "no" if call.unknown else "yes").inc()
        self.call_seconds.labels(model).observe(seconds)

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        counter, histogram = self._answered(route, method, str(status))
        counter.inc()
        histogram.observe(seconds)

    def count_sessions(self, count: Callable[[], int]) -> None:
        """Read the number of open sessions when metrics are asked for."""
        self.sessions.set_function(count)

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self._registry)
