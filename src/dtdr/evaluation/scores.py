"""Means of a metric over a run log: overall, by step, by plan length, by plan."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dtdr.evaluation import metrics
from dtdr.evaluation.run_log import LoggedStep, RunLog


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a metric over some steps."""

    value: float
    steps: int


def mean_score(log: RunLog, metric: str) -> float:
    """Mean over all steps, end of plan included; NaN for a log without steps.

    Raises:
        InputError: no metric has that name.
    """
    return _mean(map(metrics.metric(metric), log.steps))


def by_step(log: RunLog, metric: str) -> dict[int, Mean]:
    """Means by the number of calls made before the step."""
    return _grouped(log, metric, lambda step: step.step)


def by_plan_length(log: RunLog, metric: str) -> dict[int, Mean]:
    """Means by the number of calls of the whole plan (paper, Table "Top-1 … plan length")."""
    return _grouped(log, metric, lambda step: step.plan_length)


def by_plan(log: RunLog, metric: str) -> dict[str, Mean]:
    """Means by plan; what the significance tests resample."""
    return _grouped(log, metric, lambda step: step.plan)


def result(log: RunLog, names: Sequence[str] = metrics.DEFAULT) -> dict[str, Any]:
    """One row of the retrieval table, as ``dtdr evaluate --json`` prints it."""
    header = log.header
    speed = header.rank_microseconds_median
    return {
        "retriever": header.retriever,
        "encoder": None if header.encoder is None else str(header.encoder.get("name")),
        **{name: round(mean_score(log, name), 6) for name in names},
        "steps": len(log.steps),
        "fit_seconds": round(header.fit_seconds, 4),
        "rank_microseconds_median": None if speed is None else round(speed, 1),
    }


def _grouped(log: RunLog, metric: str, key: Callable[[LoggedStep], Any]) -> dict[Any, Mean]:
    score = metrics.metric(metric)
    groups: dict[Any, list[float]] = defaultdict(list)
    for step in log.steps:
        groups[key(step)].append(score(step))
    return {name: Mean(_mean(groups[name]), len(groups[name])) for name in sorted(groups)}


def _mean(values: Iterable[float]) -> float:
    # fsum rounds once, so that the order of a log's lines changes no digit.
    found = list(values)
    return math.fsum(found) / len(found) if found else math.nan
