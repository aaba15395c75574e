"""Intervals, paired tests and records: what all results of an evaluation share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError

Floats = npt.NDArray[np.float64]

PERMUTATIONS = 10_000
"""Sign flips, and bootstrap resamples: p-values down to 1e-4, in about a second for 1,000 plans."""

BINS = 15
"""Bins of confidence, of equal width, as in Guo et al. 2017."""

FEWEST_SPLITS = 3
"""Student's factor is 12.7 with two splits: such an interval is useless."""

_Z = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % interval; ``low`` and ``high`` are None without one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Proportion:
    """A share of ``count`` cases and its 95 % interval (Wilson 1927); NaN without cases."""

    value: float
    low: float
    high: float
    count: int


def proportion(outcomes: Iterable[bool]) -> Proportion:
    """The share of true outcomes, which are taken as independent."""
    listed = list(outcomes)
    if not listed:
        return Proportion(math.nan, math.nan, math.nan, 0)
    count, value = len(listed), sum(listed) / len(listed)
    centre = value + _Z**2 / (2 * count)
    spread = _Z * math.sqrt(value * (1 - value) / count + _Z**2 / (4 * count**2))
    scale = 1 + _Z**2 / count
    # Rounding must leave neither 0 to 1 nor the share itself outside.
    low = max(0.0, min((centre - spread) / scale, value))
    return Proportion(value, low, min(1.0, max((centre + spread) / scale, value)), count)


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


def bootstrap_interval(
    values: Floats, random: np.random.Generator, resamples: int = PERMUTATIONS
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of a mean (Efron & Tibshirani, 1993, ch. 13).

    Args:
        values: shape (n,).
        random: draws the resamples.
        resamples: how many.
    """
    count = len(values)
    means = np.concatenate(
        [
            values[random.integers(0, count, (rows, count))].mean(axis=1)
            for rows in _chunks(resamples, count)
        ]
    )
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def permutation_p_value(
    differences: Floats, random: np.random.Generator, permutations: int = PERMUTATIONS
) -> float:
    """Two-sided p-value of the mean of paired differences.

    Signs are flipped at random (Fisher's randomization test for matched pairs).

    Args:
        differences: shape (n,).
        random: flips the signs.
        permutations: how many times.
    """
    observed = abs(differences.sum())
    # Sums of the same numbers in another order may differ in the last bits.
    bar = observed - 1e-9 * max(1.0, np.abs(differences).sum())
    as_far = 0
    for rows in _chunks(permutations, len(differences)):
        signs = random.integers(0, 2, (rows, len(differences)), dtype=np.int8) * 2.0 - 1.0
        as_far += int((np.abs(signs @ differences) >= bar).sum())
    # The observed labelling is one of the permutations (Phipson & Smyth, 2010): p is never 0.
    return (as_far + 1) / (permutations + 1)


def paired_p_value(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """p-value of the permutation test over the plans that both have; None where they share none."""
    shared = [plan for plan in first if plan in second]
    if not shared:
        return None
    differences = np.array([second[plan] - first[plan] for plan in shared])
    return permutation_p_value(differences, np.random.default_rng(0))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values adjusted for multiple comparisons (Holm, 1979); never above 1."""
    ordered = sorted(p_values, key=lambda name: p_values[name])
    adjusted: dict[str, float] = {}
    highest = 0.0
    for index, name in enumerate(ordered):
        highest = max(highest, min(1.0, (len(ordered) - index) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def calibration_error(
    confidences: npt.ArrayLike, outcomes: npt.ArrayLike, bins: int = BINS
) -> float:
    """Expected calibration error: mean distance of accuracy from confidence, weighted by steps.

    Args:
        confidences: shape (n,), each from 0 to 1.
        outcomes: shape (n,): 1 where the best tool was acceptable, else 0.
        bins: that the confidences are sorted into, of equal width; one on an edge is in the lower
            bin.

    Returns:
        From 0 to 1, 0 is best; NaN without steps.

    Raises:
        InputError: the two differ in length, or a confidence is outside of 0 to 1.
    """
    confidence, right = np.asarray(confidences, np.float64), np.asarray(outcomes, np.float64)
    if confidence.shape != right.shape:
        raise InputError(f"{confidence.size} confidences but {right.size} outcomes were given")
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise InputError("a confidence must be from 0 to 1")
    if not confidence.size:
        return float("nan")
    bin_of_step = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    sums, hits = (np.bincount(bin_of_step, values, bins) for values in (confidence, right))
    return float(np.abs(hits - sums).sum() / confidence.size)


def _chunks(total: int, width: int) -> list[int]:
    """Row counts that sum to ``total``, each of at most about 8 MB of float64."""
    size = max(1, 1_000_000 // max(1, width))
    return [min(size, total - start) for start in range(0, total, size)]


class Record:
    """Base of the dataclasses whose fields are their JSON object."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; numbers have six decimals."""
        record: dict[str, Any] = rounded(asdict(self))  # type: ignore[call-overload]
        return record


def rounded(value: Any) -> Any:
    """A value with six decimals in each number; named tuples become mappings, keys texts."""
    if isinstance(value, float):
        return round(value, 6)
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, (list, tuple)) else value
