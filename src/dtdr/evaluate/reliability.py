"""How reliable a run's probabilities are: calibration, coverage and unfamiliar queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError, check_at_least
from dtdr.evaluate.metrics import top1
from dtdr.evaluate.run_log import COVERAGES, RunLog

BINS = 15
"""Of equal width, as in Guo et al. 2017."""

TARGETS = (80, 90, 95)
"""Per cent of coverage that tables show."""


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

    Attributes:
        target: the coverage that was wanted, from 0 to 1.
        hits: share of the steps whose set has an acceptable tool. A set is never empty, so this is
            at least the share of steps whose best tool is acceptable.
        tools: mean size of a set.
    """

    target: float
    hits: float
    tools: float


def coverage(log: RunLog, percent: int) -> Coverage | None:
    """Prediction sets of a run, from its log.

    Without the fallback for unfamiliar queries: sets of all tools would hide a wrong cut.

    Args:
        log: a run.
        percent: the coverage, a whole number from 1 to 99.

    Returns:
        None if the retriever was not calibrated, or the log has no step.

    Raises:
        InputError: the percentage is out of range.
    """
    if not 1 <= percent <= COVERAGES:
        raise InputError(f"coverage is {percent} %; it must be from 1 to {COVERAGES}")
    if not log.set_sizes.size:
        return None
    shown = np.maximum(1, log.set_sizes[:, percent - 1])
    return Coverage(
        percent / 100,
        float((log.first_rank <= shown).mean()),
        float(shown.mean()),
    )


@dataclass(frozen=True, slots=True)
class Reliability:
    """Calibration of a run's confidence and coverage of its prediction sets.

    Attributes:
        bins: steps by confidence.
        ece: expected calibration error of ``Ranking.confidence``; None if the log has no
            confidence.
        coverages: of the prediction sets, one a target; empty where the retriever was not
            calibrated.
        unfamiliar: share of the plans whose query is unlike the demonstrations; None where the
            retriever cannot tell.
    """

    bins: tuple[Bin, ...]
    ece: float | None
    coverages: tuple[Coverage, ...]
    unfamiliar: float | None

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "ece": None if self.ece is None else round(self.ece, 6),
            "ece_bins": BINS,
            "coverage": [
                {
                    "asked": item.target,
                    "found": round(item.hits, 6),
                    "tools": round(item.tools, 6),
                }
                for item in self.coverages
            ],
            "unfamiliar": None if self.unfamiliar is None else round(self.unfamiliar, 6),
        }


def reliability_of(log: RunLog) -> Reliability:
    """The reliability of a run, from its log."""
    is_known = ~np.isnan(log.confidence)
    bins = confidence_bins(log.confidence[is_known], top1(log)[is_known])
    coverages = (coverage(log, percent) for percent in TARGETS)
    return Reliability(
        tuple(bins),
        expected_calibration_error(bins) if bins else None,
        tuple(item for item in coverages if item is not None),
        _unfamiliar_share(log),
    )


def _unfamiliar_share(log: RunLog) -> float | None:
    """Share of plans, not of steps: a query is one whatever the number of its steps."""
    threshold = log.header.familiarity_threshold
    is_known = ~np.isnan(log.familiarity)
    if threshold is None or not is_known.any():
        return None
    _, first = np.unique(log.plan[is_known], return_index=True)
    return float((log.familiarity[is_known][first] < threshold).mean())
