"""Recall at k."""

from __future__ import annotations

from collections.abc import Callable

from dtdr.evaluation.run_log import LoggedStep


def recall_at(k: int) -> Callable[[LoggedStep], float]:
    """Share of the acceptable tools that are among the top k.

    The divisor is the number of acceptable tools, as usual in retrieval, so a step with more than
    k of them cannot reach 1; ``hit@k`` asks for one of them only.
    """

    def recall(step: LoggedStep) -> float:
        return sum(place <= k for place in step.ranks) / len(step.acceptable)

    return recall
