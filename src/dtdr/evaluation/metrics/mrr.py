"""Mean reciprocal rank (paper, Appendix "Metric Details")."""

from __future__ import annotations

from dtdr.evaluation.run_log import LoggedStep


def reciprocal_rank(step: LoggedStep) -> float:
    """One over the place of the first acceptable tool; 0 when none of them is ranked."""
    return 1 / step.ranks[0] if step.ranks else 0.0
