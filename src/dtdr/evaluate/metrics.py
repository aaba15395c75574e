"""Metrics by the names that users type: ``mrr``, ``f1``, ``top1``, ``recall@5``, ``log_mrr``.

Tools are right that are acceptable by dependency, as in the paper; for the metrics that begin with
``log_`` and ``tool_``, those that the log called next. ``tool_`` asks which tool, given that one
is called: the end of the plan is set aside, and steps where the log ends do not count.

A metric is a function from a run log of n steps to scores from 0 to 1, shape (n,); 1 is best, and
NaN is a step that does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dtdr.errors import InputError, check_lists, unknown_choice
from dtdr.evaluate.plugins import METRICS, find_plugin
from dtdr.evaluate.run_log import Floats, Ints, RunLog

Metric: TypeAlias = Callable[[RunLog], Floats]


def reciprocal_rank(log: RunLog) -> Floats:
    """One over the rank of the best acceptable tool (paper, Appendix "Metric Details")."""
    return np.reciprocal(log.first_rank)


def f1(log: RunLog) -> Floats:
    """F1 of the top k tools, k the number of acceptable ones (paper, Appendix "Metric Details").

    Where fewer than k tools are known, all of them count as retrieved.
    """
    hits = hits_at(log, log.accepted)
    # Harmonic mean of hits / retrieved and hits / accepted.
    retrieved = np.minimum(log.accepted, len(log.header.tools))
    scores: Floats = 2 * hits / (retrieved + log.accepted)
    return scores


def tool_top1(log: RunLog) -> Floats:
    """Whether the best tool, the end of the plan aside, is what the log called next."""
    return np.where(log.ends, np.nan, (_tool_ranks(log) == 1).any(axis=1))


def tool_recall_at(k: int) -> Metric:
    """Share of the tools that the log called next among the top k, the end of the plan aside."""

    def recall(log: RunLog) -> Floats:
        hits = (_tool_ranks(log) <= k).sum(axis=1)
        return np.where(log.ends, np.nan, hits / np.maximum(1, log.in_log.sum(axis=1)))

    return recall


def _tool_ranks(log: RunLog) -> Floats:
    """Shape (n, a): of what the log called next, the rank without the end of the plan."""
    end = log.end_rank[:, None]
    ranks = log.ranks - ((end > 0) & (end < log.ranks))
    return np.where((log.in_log > 0) & (log.ranks > 0), ranks, np.inf)


def recall_at(k: int) -> Metric:
    """Share of the acceptable tools that are among the top k.

    The divisor is the number of acceptable tools, as usual in retrieval, so a step with more than
    k of them cannot reach 1; ``hit@k`` asks for one of them only.
    """
    return lambda log: hits_at(log, k) / log.accepted


def hit_at(k: int) -> Metric:
    """Whether an acceptable tool is among the top k: an agent shown those k can go on."""
    return lambda log: np.where(log.first_rank <= k, 1.0, 0.0)


def hits_at(log: RunLog, k: int | Ints) -> Ints:
    """Shape (n,): how many acceptable tools are among the top k; ``k`` may differ by step."""
    limit = np.broadcast_to(k, len(log))[:, None]
    hits: Ints = ((log.ranks > 0) & (log.ranks <= limit)).sum(axis=1)
    return hits


# One line per metric; the second kind takes a number of tools after an @.
_METRICS: dict[str, Metric] = {
    "mrr": reciprocal_rank,
    "f1": f1,
    "top1": hit_at(1),  # paper, Table "Top-1 tool retrieval accuracy"
    "log_top1": lambda log: np.where(log.log_rank == 1, 1.0, 0.0),
    "log_mrr": lambda log: np.reciprocal(log.log_rank),
    "tool_top1": tool_top1,
}
_METRICS_AT: dict[str, Callable[[int], Metric]] = {
    "recall": recall_at,
    "hit": hit_at,
    "tool_recall": tool_recall_at,
}

NAMES = (*_METRICS, *(f"{name}@k" for name in _METRICS_AT))

DEFAULT = ("mrr", "f1", "top1", "recall@5", "log_top1", "log_mrr")
"""The columns of the retrieval table: the paper's two, what a user of the top tools asks, and how
often the ranking agrees with the log."""


def metric(name: str) -> Metric:
    """The metric behind a name such as ``"mrr"``, ``"recall@5"`` or ``"my_module:late"``.

    Raises:
        InputError: no metric has that name or entry point, or k is not a whole number from 1.
    """
    if name in _METRICS:
        return _METRICS[name]
    base, at, k = name.partition("@")
    if base not in _METRICS_AT or not at:
        if (plugin := find_plugin(METRICS, name)) is not None:
            return plugin
        raise unknown_choice("metric", name, NAMES)
    if not (k.isascii() and k.isdigit()) or int(k) < 1:
        raise InputError(f"metric {name!r} needs a whole number from 1 after the @: {base}@5")
    return _METRICS_AT[base](int(k))


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a metric over some steps."""

    value: float
    steps: int


def mean_score(log: RunLog, name: str) -> float:
    """Mean over all steps that count; NaN for a log without any.

    Raises:
        InputError: no metric has that name.
    """
    return mean(metric(name)(log).tolist())


def by_step(log: RunLog, name: str) -> dict[int, Mean]:
    """Means by the number of calls made before the step."""
    return _by_group(log, name, log.step)


def by_plan_length(log: RunLog, name: str) -> dict[int, Mean]:
    """Means by the number of calls of the whole plan (paper, Table "Top-1 … plan length")."""
    return _by_group(log, name, log.plan_length)


def by_plan(log: RunLog, name: str) -> dict[str, Mean]:
    """Means by plan, in the order of the log; what the significance tests resample."""
    means = _by_group(log, name, log.plan)
    return {log.plan_ids[plan]: value for plan, value in means.items()}


def summary(log: RunLog, names: Sequence[str] = DEFAULT) -> dict[str, Any]:
    """One row of the retrieval table, as ``dtdr evaluate --json`` prints it."""
    check_lists(names=names)
    header = log.header
    return {
        "ranker": header.ranker,
        "encoder": None if header.encoder is None else str(header.encoder.get("name")),
        **{name: round(mean_score(log, name), 6) for name in names},
        "steps": len(log),
        "fit_seconds": round(header.fit_seconds, 4),
        "rank_microseconds_median": round(header.rank_microseconds_median, 1),
    }


def mean(values: Iterable[float]) -> float:
    """Mean that does not depend on the order of the values, as it is rounded once.

    NaN does not count; the mean of nothing is NaN.
    """
    listed = [value for value in values if not math.isnan(value)]
    return math.fsum(listed) / len(listed) if listed else math.nan


def _by_group(log: RunLog, name: str, keys: Ints) -> dict[int, Mean]:
    scores = metric(name)(log)
    counts_too = ~np.isnan(scores)
    scores, keys = scores[counts_too], keys[counts_too]
    if not len(scores):
        return {}
    # Sums of the same scores in the same order, whatever the order of the steps.
    order = np.lexsort((scores, keys))
    groups, starts, counts = np.unique(keys[order], return_index=True, return_counts=True)
    means = np.add.reduceat(scores[order], starts) / counts
    return {
        group: Mean(value, steps)
        for group, value, steps in zip(
            groups.tolist(), means.tolist(), counts.tolist(), strict=True
        )
    }
