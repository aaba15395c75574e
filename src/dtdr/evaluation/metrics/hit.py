"""Hit rate at k."""

from __future__ import annotations

from collections.abc import Callable

from dtdr.evaluation.run_log import LoggedStep


def hit_at(k: int) -> Callable[[LoggedStep], float]:
    """1 when an acceptable tool is among the top k: an agent shown those k can go on."""

    def hit(step: LoggedStep) -> float:
        return float(bool(step.ranks) and step.ranks[0] <= k)

    return hit
