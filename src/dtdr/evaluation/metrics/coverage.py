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
        found: share of the steps whose set holds an acceptable tool.
        tools: mean size of a set.
    """

    asked: float
    found: float
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
    sizes = [max(1, int((step.probabilities >= cut).sum())) for step in log.steps]
    held = [
        bool(step.ranks) and step.ranks[0] <= size
        for step, size in zip(log.steps, sizes, strict=True)
    ]
    return Coverage(percent / 100, float(np.mean(held)), float(np.mean(sizes)))
