"""Summaries of one experiment, and of several that differ in their split only."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtdr.errors import InputError
from dtdr.evaluate import metrics
from dtdr.evaluate.run_log import RunHeader, RunLog
from dtdr.evaluate.statistics import (
    FEWEST_SPLITS,
    Floats,
    Interval,
    bootstrap_interval,
    holm,
    over_splits,
    paired_p_value,
)

LEVEL = 0.05
"""Level of significance."""

DEEPEST = 100
"""The share of next tools among the first k is computed up to this k."""

INTERVALS = (
    "Means over splits ± half of the 95 % interval (Student's; of one or two splits, the "
    "bootstrap's over plans)."
)
"""Intervals that ``mean_of`` returns."""


@dataclass(frozen=True)
class ExperimentSummary:
    """One experiment, without its steps.

    Attributes:
        header: of the log.
        steps: how many.
        means: of the default metrics, over all steps.
        by_plan: for each metric and plan, the mean over the plan's steps.
        top1_by_length: by number of calls, top-1 accuracy and number of steps.
        next_shown: shape (k,): of the steps that make a call, the share whose next tool in the log
            is among the first 1, 2, ... k.
    """

    header: RunHeader
    steps: int
    means: Mapping[str, float]
    by_plan: Mapping[str, Mapping[str, float]]
    top1_by_length: Mapping[int, metrics.Mean]
    next_shown: Floats


Summaries = Mapping[str, Sequence[ExperimentSummary]]
"""By method, of its splits."""


def summarize(log: RunLog) -> ExperimentSummary:
    """The summary of an experiment.

    Raises:
        InputError: the log has no steps.
    """
    if not len(log):
        raise InputError("the run log has no steps; run it again with an empty --cache")
    depth = max(1, min(DEEPEST, len(log.header.tools)))
    return ExperimentSummary(
        log.header,
        len(log),
        {name: metrics.mean_score(log, name) for name in metrics.DEFAULT},
        {
            name: {plan: mean.value for plan, mean in metrics.by_plan(log, name).items()}
            for name in metrics.DEFAULT
        },
        metrics.by_plan_length(log, "top1"),
        np.array([metrics.mean_score(log, f"tool_recall@{k}") for k in range(1, depth + 1)]),
    )


def mean_of(experiments: Sequence[ExperimentSummary], metric: str) -> Interval:
    """A metric's mean over experiments that differ in their split only.

    Fewer than three experiments get the bootstrap interval over their plans.
    """
    mean = over_splits([experiment.means[metric] for experiment in experiments])
    values = np.array(list(plan_means(experiments, metric).values()))
    if len(experiments) >= FEWEST_SPLITS or len(values) < 2:
        return mean
    low, high = bootstrap_interval(values - values.mean(), np.random.default_rng(0))
    return Interval(mean.value, mean.value + low, mean.value + high)


def plan_means(experiments: Sequence[ExperimentSummary], metric: str) -> dict[str, float]:
    """Each plan's mean over its steps and over the splits in which it was held out."""
    by_plan: dict[str, list[float]] = defaultdict(list)
    for experiment in experiments:
        for plan, value in experiment.by_plan[metric].items():
            by_plan[plan].append(value)
    return {plan: math.fsum(values) / len(values) for plan, values in by_plan.items()}


def against_best(experiments: Summaries, metric: str) -> tuple[str, dict[str, float]]:
    """The method with the highest mean, and every other's Holm-adjusted p-value against it."""
    best = max(
        experiments,
        key=lambda name: metrics.mean(experiment.means[metric] for experiment in experiments[name]),
    )
    means = plan_means(experiments[best], metric)
    p_values = {
        name: paired_p_value(plan_means(others, metric), means)
        for name, others in experiments.items()
        if name != best
    }
    return best, holm({name: p for name, p in p_values.items() if p is not None})
