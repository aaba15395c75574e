"""Means with intervals over splits, paired tests over plans, and Holm's correction."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtdr.evaluation.compare import PERMUTATIONS, bootstrap_interval, permutation_p_value
from dtdr.lab.digest import Digest

LEVEL = 0.05

INTERVALS = "Bars: 95 % intervals, over the splits; of one or two splits, over the plans."
"""What ``mean_of`` gives."""

SPLITS_ONLY = "Bars: 95 % intervals over the splits, from three on."
"""What ``over_splits`` gives."""

FEWEST_SPLITS = 3
"""Student's factor is 12.7 with two splits: such an interval says nothing."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % interval; ``low`` and ``high`` are None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def over_splits(values: Sequence[float]) -> Interval:
    """Mean over splits with Student's 95 % interval, from three splits on.

    The test sides of two splits share records, so the interval is of what another draw of the
    split changes, not of what another data set would.
    """
    from scipy.special import stdtrit  # a tenth of the import of scipy.stats

    count = len(values)
    mean = math.fsum(values) / count
    if count < FEWEST_SPLITS:
        return Interval(mean)
    spread = float(np.std(values, ddof=1)) * float(stdtrit(count - 1, 0.975)) / math.sqrt(count)
    return Interval(mean, mean - spread, mean + spread)


def mean_of(digests: Sequence[Digest], metric: str) -> Interval:
    """A metric's mean over runs that differ in their split only.

    Fewer than three runs get the bootstrap interval over their plans.
    """
    found = over_splits([digest.means[metric] for digest in digests])
    values = np.array(list(plan_means(digests, metric).values()))
    if len(digests) >= FEWEST_SPLITS or len(values) < 2:
        return found
    low, high = bootstrap_interval(values - values.mean(), np.random.default_rng(0), PERMUTATIONS)
    return Interval(found.value, found.value + low, found.value + high)


def plan_means(digests: Sequence[Digest], metric: str) -> dict[str, float]:
    """Each plan's mean over its steps and over the splits in which it was held out."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in digests:
        for plan, value in zip(one.plans, one.by_plan[metric].tolist(), strict=True):
            found[plan].append(value)
    return {plan: math.fsum(values) / len(values) for plan, values in found.items()}


def paired_p_value(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Two-sided p-value of the permutation test over the plans that both were tested on."""
    shared = [plan for plan in first if plan in second]
    if not shared:
        return None
    differences = np.array([second[plan] - first[plan] for plan in shared])
    return permutation_p_value(differences, np.random.default_rng(0), PERMUTATIONS)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values adjusted for multiple comparisons (Holm, 1979); never above 1."""
    ordered = sorted(p_values, key=lambda name: p_values[name])
    adjusted: dict[str, float] = {}
    highest = 0.0
    for place, name in enumerate(ordered):
        highest = max(highest, min(1.0, (len(ordered) - place) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def against_best(runs: Mapping[str, Sequence[Digest]], metric: str) -> tuple[str, dict[str, float]]:
    """The method with the highest mean, and every other's Holm-adjusted p-value against it."""
    best = max(runs, key=lambda name: mean_of_values(runs[name], metric))
    means = plan_means(runs[best], metric)
    p_values = {}
    for name, digests in runs.items():
        if name == best:
            continue
        found = paired_p_value(plan_means(digests, metric), means)
        if found is not None:
            p_values[name] = found
    return best, holm(p_values)


def mean_of_values(digests: Sequence[Digest], metric: str) -> float:
    """The plain mean over runs."""
    return math.fsum(digest.means[metric] for digest in digests) / len(digests)
