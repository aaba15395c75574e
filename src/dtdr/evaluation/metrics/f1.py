"""F1 of the top tools against the acceptable ones (paper, Appendix "Metric Details")."""

from __future__ import annotations

from dtdr.evaluation.run_log import LoggedStep


def f1(step: LoggedStep) -> float:
    """Harmonic mean of precision and recall of the top k tools, k the number of acceptable ones.

    Where fewer than k tools are known, all of them count as retrieved.
    """
    k = len(step.acceptable)
    hits = sum(place <= k for place in step.ranks)
    if not hits:
        return 0.0
    precision, recall = hits / min(k, len(step.ranking)), hits / k
    return 2 * precision * recall / (precision + recall)
