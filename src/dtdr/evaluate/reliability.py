"""How reliable a run's probabilities are: calibration and coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError, check_at_least
from dtdr.evaluate.metrics import top1
from dtdr.evaluate.run_log import COVERAGES, RunLog
from dtdr.evaluate.statistics import rounded

BINS = 15
"""Of equal width, as in Guo et al. 2017."""


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


def confidence_bins(
    confidences: npt.ArrayLike, outcomes: npt.ArrayLike, bins: int = BINS
) -> list[Bin]:
    """Steps by their confidence, in bins of equal width; empty bins are left out.

    Args:
        confidences: shape (n,), each from 0 to 1; one on an edge is in the lower bin.
        outcomes: shape (n,): 1 where the best tool was acceptable, else 0.
        bins: how many.

    Raises:
        InputError: the two differ in length, a confidence is outside of 0 to 1, or there are no
            bins.
    """
    confidence, right = np.asarray(confidences, np.float64), np.asarray(outcomes, np.float64)
    if confidence.shape != right.shape:
        raise InputError(f"{confidence.size} confidences but {right.size} outcomes were given")
    check_at_least(1, bins=bins)
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise InputError("a confidence must be from 0 to 1")
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    counts = np.bincount(place, minlength=bins)
    sums, hits = (np.bincount(place, values, bins) for values in (confidence, right))
    return [
        Bin(float(total / count), float(hit / count), int(count))
        for total, hit, count in zip(sums, hits, counts, strict=True)
        if count
    ]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Mean distance of accuracy from confidence over bins, weighted by their steps.

    Args:
        bins: from ``confidence_bins``.

    Returns:
        From 0 to 1, 0 is best; NaN without steps.
    """
    steps = sum(item.steps for item in bins)
    if not steps:
        return float("nan")
    return sum(item.steps * abs(item.accuracy - item.confidence) for item in bins) / steps


@dataclass(frozen=True, slots=True)
class Coverage:
    """What ``Ranking.select(coverage=…)`` gives on a run's steps.

    Without the fallback for unfamiliar queries: sets of all tools would hide a wrong cut.

    Attributes:
        target: the coverage that was wanted, from 0 to 1.
        hits: share of the steps whose set has an acceptable tool. A set is never empty, so this is
            at least the share of steps whose best tool is acceptable.
        tools: mean size of a set.
    """

    target: float
    hits: float
    tools: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """Calibration of a run's confidence and coverage of its prediction sets.

    Attributes:
        bins: steps by confidence.
        ece: expected calibration error of ``Ranking.confidence``; None if the log has no
            confidence.
        coverages: of the prediction sets, one for each of ``COVERAGES``; empty where the retriever
            was not calibrated.
    """

    bins: tuple[Bin, ...]
    ece: float | None
    coverages: tuple[Coverage, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        sets = [
            {"asked": item.target, "found": item.hits, "tools": item.tools}
            for item in self.coverages
        ]
        record: dict[str, Any] = rounded({"ece": self.ece, "ece_bins": BINS, "coverage": sets})
        return record


def reliability_of(log: RunLog) -> Reliability:
    """The reliability of a run, from its log."""
    is_known = ~np.isnan(log.confidence)
    bins = confidence_bins(log.confidence[is_known], top1(log)[is_known])
    coverages = []
    for percent, sizes in zip(COVERAGES, log.set_sizes.T, strict=False):
        shown = np.maximum(1, sizes)
        hits = float((log.first_rank <= shown).mean())
        coverages.append(Coverage(percent / 100, hits, float(shown.mean())))
    error = expected_calibration_error(bins) if bins else None
    return Reliability(tuple(bins), error, tuple(coverages))
