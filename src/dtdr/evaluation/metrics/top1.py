"""Top-1 accuracy (paper, Table "Top-1 tool retrieval accuracy")."""

from __future__ import annotations

from dtdr.evaluation.run_log import LoggedStep


def top1(step: LoggedStep) -> float:
    """1 when the best tool is acceptable, else 0."""
    return float(bool(step.ranks) and step.ranks[0] == 1)
