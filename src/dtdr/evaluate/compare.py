"""Is one run better than another? A paired test over plans and an interval of the difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtdr.errors import InputError
from dtdr.evaluate.metrics import by_plan, mean, mean_score
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.statistics import PERMUTATIONS, Record, bootstrap_interval, permutation_p_value


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """How the second run differs from the first on the steps that they share.

    Attributes:
        metric: its name.
        first, second: means over all steps, as ``dtdr evaluate`` shows them.
        first_by_plan, second_by_plan: means over plans of each plan's mean over its steps.
        difference: ``second_by_plan - first_by_plan``; what is tested.
        low, high: 95 % bootstrap interval of the difference.
        p_value: two-sided, of the paired permutation test.
        plans, steps: how many were compared.
        seed: of the sign flips and of the resampling.
    """

    metric: str
    first: float
    second: float
    first_by_plan: float
    second_by_plan: float
    difference: float
    low: float
    high: float
    p_value: float
    plans: int
    steps: int
    seed: int


def compare(
    first: RunLog,
    second: RunLog,
    metric: str = "mrr",
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Comparison:
    """Compare two runs over the same steps.

    Steps of one plan are not independent observations, so plans are what is permuted and resampled.
    See ``permutation_p_value`` and ``bootstrap_interval``.

    Args:
        first: a run, such as the baseline's.
        second: another.
        metric: a metric's name.
        seed: of the sign flips and of the resampling; the order of the steps does not matter.
        permutations: how many of each.

    Raises:
        InputError: no metric has that name, or the runs differ in their plans, histories or
            acceptable tools.
    """
    _require_same_steps(first, second)
    left, right = by_plan(first, metric), by_plan(second, metric)
    differences = np.array([right[plan].value - left[plan].value for plan in sorted(left)])
    observed = float(differences.mean())
    random = np.random.default_rng(seed)
    p_value = permutation_p_value(differences, random, permutations)
    low, high = bootstrap_interval(differences, random, permutations)
    return Comparison(
        metric,
        mean_score(first, metric),
        mean_score(second, metric),
        mean(item.value for item in left.values()),
        mean(item.value for item in right.values()),
        observed,
        low,
        high,
        p_value,
        len(differences),
        len(first),
        seed,
    )


def _require_same_steps(first: RunLog, second: RunLog) -> None:
    left, right = _steps(first), _steps(second)
    if not left and not right:
        raise InputError("the runs have no step; there is nothing to compare")
    for plan, step in sorted(left.keys() | right.keys()):
        if left.get((plan, step)) != right.get((plan, step)):
            raise InputError(
                f"the runs are not about the same steps: step {step} of plan {plan!r} is in one "
                "of them only, or has another call or other acceptable tools; compare runs of one "
                "dataset and split"
            )


def _steps(log: RunLog) -> dict[tuple[str, int], tuple[str, ...]]:
    """By plan and step: the tool called next, then the acceptable ones."""
    names = log.names
    return {
        (log.plan_ids[plan], step): (names[called], *(names[i] for i in acceptable if i >= 0))
        for plan, step, called, acceptable in zip(
            log.plan.tolist(),
            log.step.tolist(),
            log.called.tolist(),
            log.acceptable.tolist(),
            strict=True,
        )
    }
