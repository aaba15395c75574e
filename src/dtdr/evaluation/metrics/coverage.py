"""Coverage of prediction sets: how often they hold an acceptable tool, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtdr.errors import InputError
from dtdr.evaluation.run_log import COVERAGES, RunLog

ASKED = (80, 90, 95)
"""Per cent of coverage that tables show."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What ``Ranking.select(coverage=…)`` gives on a run's steps.

    Attributes:
        asked: from 0 to 1.
        found: share of the steps whose set holds an acceptable tool. A set is never empty, so that
            this is at least the share of steps whose best tool is acceptable.
        conformal: that share where sets may be empty: what split conformal prediction promises to
            be ``asked``.
        tools: mean size of a set.
    """

    asked: float
    found: float
    conformal: float
    tools: float


def coverage(log: RunLog, percent: int) -> Coverage | None:
    """Sets of a run, from its log.

    The fallback for unfamiliar queries is left out: sets of all tools would hide a cut that is too
    high.

    Args:
        log: a run.
        percent: coverage that is asked for, a whole number from 1 to 99.

    Returns:
        None where the retriever was not calibrated, or the log holds no step.

    Raises:
        InputError: the percentage is out of range.
    """
    if not 1 <= percent <= COVERAGES:
        raise InputError(f"coverage is {percent} %; it must be from 1 to {COVERAGES}")
    cuts = log.header.coverage_cuts
    if cuts is None or not log.steps:
        return None
    cut = cuts[percent - 1]
    sizes = [int((step.probabilities >= cut).sum()) for step in log.steps]
    firsts = [step.ranks[0] if step.ranks else np.inf for step in log.steps]
    return Coverage(
        percent / 100,
        float(np.mean([first <= max(1, size) for first, size in zip(firsts, sizes, strict=True)])),
        float(np.mean([first <= size for first, size in zip(firsts, sizes, strict=True)])),
        float(np.mean([max(1, size) for size in sizes])),
    )
