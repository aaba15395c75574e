"""Do a run's probabilities mean something? Calibration, coverage and unfamiliar queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtdr.evaluation.metrics.coverage import ASKED, Coverage, coverage
from dtdr.evaluation.metrics.ece import BINS, Bin, expected_calibration_error, reliability
from dtdr.evaluation.metrics.top1 import top1
from dtdr.evaluation.run_log import RunLog


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far a run's confidence can be believed.

    Attributes:
        bins: steps by confidence.
        ece: expected calibration error of ``Ranking.confidence``; None where the log holds no
            confidence.
        coverages: of the prediction sets, one a coverage that was asked for; empty where the
            retriever was not calibrated.
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
                    "asked": item.asked,
                    "found": round(item.found, 6),
                    "conformal": round(item.conformal, 6),
                    "tools": round(item.tools, 6),
                }
                for item in self.coverages
            ],
            "unfamiliar": None if self.unfamiliar is None else round(self.unfamiliar, 6),
        }


def reliability_of(log: RunLog) -> Reliability:
    """The reliability of a run, from its log; one of version 1 holds no confidence."""
    known = [(step.confidence, top1(step)) for step in log.steps if step.confidence is not None]
    bins = reliability([said for said, _ in known], [right for _, right in known])
    coverages = (coverage(log, percent) for percent in ASKED)
    return Reliability(
        tuple(bins),
        expected_calibration_error(bins) if bins else None,
        tuple(item for item in coverages if item is not None),
        _unfamiliar(log),
    )


def _unfamiliar(log: RunLog) -> float | None:
    floor = log.header.familiarity_floor
    queries = {step.plan: step.familiarity for step in log.steps if step.familiarity is not None}
    if floor is None or not queries:
        return None
    return sum(value < floor for value in queries.values()) / len(queries)
