"""How reliable a run's probabilities are: calibration and coverage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError, check_at_least
from dtdr.evaluate.metrics import hit_at
from dtdr.evaluate.run_log import COVERAGES, RunLog
from dtdr.evaluate.statistics import Record

BINS = 15
"""Of equal width, as in Guo et al. 2017."""


def calibration_error(
    confidences: npt.ArrayLike, outcomes: npt.ArrayLike, bins: int = BINS
) -> float:
    """Expected calibration error: mean distance of accuracy from confidence, weighted by steps.

    Args:
        confidences: shape (n,), each from 0 to 1, in bins of equal width; one on an edge is in the
            lower bin.
        outcomes: shape (n,): 1 where the best tool was acceptable, else 0.
        bins: how many.

    Returns:
        From 0 to 1, 0 is best; NaN without steps.

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
    if not confidence.size:
        return float("nan")
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    sums, hits = (np.bincount(place, values, bins) for values in (confidence, right))
    return float(np.abs(hits - sums).sum() / confidence.size)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What ``Ranking.select(coverage=…)`` gives on a run's steps.

    Without the fallback for unfamiliar queries: sets of all tools would hide a wrong cut.

    Attributes:
        asked: the coverage that was wanted, from 0 to 1.
        found: share of the steps whose set has an acceptable tool. A set is never empty, so this is
            at least the share of steps whose best tool is acceptable.
        tools: mean size of a set.
    """

    asked: float
    found: float
    tools: float


@dataclass(frozen=True, slots=True)
class Reliability(Record):
    """Calibration of a run's confidence and coverage of its prediction sets.

    Attributes:
        ece: expected calibration error of ``Ranking.confidence``; None if the log has no
            confidence.
        coverage: of the prediction sets, one for each of ``COVERAGES``; empty where the retriever
            was not calibrated.
        ece_bins: of the calibration error.
    """

    ece: float | None
    coverage: tuple[Coverage, ...]
    ece_bins: int = BINS


def reliability_of(log: RunLog) -> Reliability:
    """The reliability of a run, from its log."""
    is_known = ~np.isnan(log.confidence)
    error = calibration_error(log.confidence[is_known], hit_at(1)(log)[is_known])
    coverage = []
    for percent, sizes in zip(COVERAGES, log.set_sizes.T, strict=False):
        shown = np.maximum(1, sizes)
        hits = float((log.first_rank <= shown).mean())
        coverage.append(Coverage(percent / 100, hits, float(shown.mean())))
    return Reliability(error if is_known.any() else None, tuple(coverage))
