"""Expected calibration error: how far confidence is from how often it is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError

BINS = 15
"""Of equal width, as in Guo et al. 2017."""

_95_PERCENT = 1.96
"""Standard deviations to either side that hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Steps of about one confidence.

    Attributes:
        confidence: their mean confidence.
        accuracy: share of them whose best tool was acceptable.
        steps: how many.
    """

    confidence: float
    accuracy: float
    steps: int

    def interval(self) -> tuple[float, float]:
        """95 % interval of the accuracy (Wilson 1927), each step counted as an observation."""
        squared = _95_PERCENT**2
        centre = (self.accuracy + squared / (2 * self.steps)) / (1 + squared / self.steps)
        reach = sqrt(
            self.accuracy * (1 - self.accuracy) / self.steps + squared / (4 * self.steps**2)
        )
        reach *= _95_PERCENT / (1 + squared / self.steps)
        # Rounding must not leave the accuracy itself outside.
        return (
            max(0.0, min(centre - reach, self.accuracy)),
            min(1.0, max(centre + reach, self.accuracy)),
        )


def reliability(confidences: npt.ArrayLike, outcomes: npt.ArrayLike, bins: int = BINS) -> list[Bin]:
    """Steps by their confidence, in bins of equal width; empty bins are left out.

    Args:
        confidences: shape (n,), each from 0 to 1; one on an edge is in the lower bin.
        outcomes: shape (n,): 1 where the best tool was acceptable, else 0.
        bins: how many.

    Raises:
        InputError: the two differ in length, a confidence is outside of 0 to 1, or there are no
            bins.
    """
    said, right = np.asarray(confidences, np.float64), np.asarray(outcomes, np.float64)
    if said.shape != right.shape:
        raise InputError(f"{said.size} confidences but {right.size} outcomes were given")
    if bins < 1:
        raise InputError(f"bins is {bins}; it must be at least 1")
    if not ((said >= 0) & (said <= 1)).all():
        raise InputError("a confidence must be from 0 to 1")
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], said)
    counts = np.bincount(place, minlength=bins)
    sums, hits = (np.bincount(place, values, bins) for values in (said, right))
    return [
        Bin(float(total / count), float(hit / count), int(count))
        for total, hit, count in zip(sums, hits, counts, strict=True)
        if count
    ]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Mean distance of accuracy from confidence over bins, weighted by their steps.

    Args:
        bins: what ``reliability`` gave.

    Returns:
        From 0 to 1, 0 is best; NaN without steps.
    """
    steps = sum(item.steps for item in bins)
    if not steps:
        return float("nan")
    return sum(item.steps * abs(item.accuracy - item.confidence) for item in bins) / steps
