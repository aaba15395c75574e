"""Is one run better than another? A paired test over plans and an interval of the difference."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError
from dtdr.evaluation.run_log import LoggedStep, RunLog
from dtdr.evaluation.scores import by_plan, mean_score

PERMUTATIONS = 10_000
"""Sign flips, and bootstrap resamples: p-values down to 1e-4, in about a second for 1,000 plans."""


@dataclass(frozen=True, slots=True)
class Comparison:
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

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def compare(
    first: RunLog,
    second: RunLog,
    metric: str = "mrr",
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Comparison:
    """Compare two runs over the same steps.

    Steps of one plan are no independent observations, so plans are what is permuted and resampled.
    The permutation test flips the sign of each plan's difference (Fisher's randomization test for
    matched pairs); the interval is the percentile bootstrap (Efron & Tibshirani, 1993, ch. 13).

    Args:
        first: a run, such as the baseline's.
        second: another.
        metric: a metric's name.
        seed: of the sign flips and of the resampling; the order of the logs' lines is no matter.
        permutations: how many of each.

    Raises:
        InputError: no metric has that name, or the runs differ in their plans, histories or
            acceptable tools.
    """
    _require_same_steps(first, second)
    left, right = by_plan(first, metric), by_plan(second, metric)
    differences = np.array([right[plan].value - left[plan].value for plan in left])
    observed = float(differences.mean())
    random = np.random.default_rng(seed)
    p_value = permutation_p_value(differences, random, permutations)
    low, high = bootstrap_interval(differences, random, permutations)
    return Comparison(
        metric,
        mean_score(first, metric),
        mean_score(second, metric),
        float(np.mean([mean.value for mean in left.values()])),
        float(np.mean([mean.value for mean in right.values()])),
        observed,
        low,
        high,
        p_value,
        len(differences),
        len(first.steps),
        seed,
    )


def permutation_p_value(
    differences: npt.NDArray[np.float64], random: np.random.Generator, permutations: int
) -> float:
    """Two-sided p-value of the mean of paired differences, by flipping their signs."""
    observed = abs(differences.sum())
    # Sums of the same numbers in another order may differ in the last bits.
    bar = observed - 1e-9 * max(1.0, np.abs(differences).sum())
    as_far = 0
    for rows in _chunks(permutations, len(differences)):
        signs = random.integers(0, 2, (rows, len(differences)), dtype=np.int8) * 2.0 - 1.0
        as_far += int((np.abs(signs @ differences) >= bar).sum())
    # The observed labelling is one of the permutations (Phipson & Smyth, 2010): p is never 0.
    return (as_far + 1) / (permutations + 1)


def bootstrap_interval(
    differences: npt.NDArray[np.float64], random: np.random.Generator, resamples: int
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean of values."""
    count = len(differences)
    means = np.concatenate(
        [
            differences[random.integers(0, count, (rows, count))].mean(axis=1)
            for rows in _chunks(resamples, count)
        ]
    )
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _chunks(total: int, width: int) -> list[int]:
    """Row counts that sum to ``total``, each of at most about 8 MB of float64."""
    size = max(1, 1_000_000 // max(1, width))
    return [min(size, total - start) for start in range(0, total, size)]


def _require_same_steps(first: RunLog, second: RunLog) -> None:
    left, right = _by_place(first), _by_place(second)
    if not left and not right:
        raise InputError("the runs hold no step; there is nothing to compare")
    only = sorted(left.keys() ^ right.keys())
    if only:
        plan, number = only[0]
        side = "first" if only[0] in left else "second"
        raise InputError(
            f"the runs are not about the same steps: step {number} of plan {plan!r} is in the "
            f"{side} only; compare runs of one dataset and split"
        )
    for (plan, number), step in left.items():
        other = right[plan, number]
        if (step.history, step.acceptable) != (other.history, other.acceptable):
            raise InputError(
                f"the runs are not about the same steps: step {number} of plan {plan!r} has "
                "another history or other acceptable tools; compare runs of one dataset and split"
            )


def _by_place(log: RunLog) -> dict[tuple[str, int], LoggedStep]:
    return {(step.plan, step.step): step for step in log.steps}
