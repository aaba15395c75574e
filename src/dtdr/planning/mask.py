"""Which tools of a ranking a prompt shows."""

from __future__ import annotations

from dataclasses import dataclass

from dtdr.ranking import Ranking

COVERAGE = 0.95
"""Default where the retriever was calibrated: one step in twenty may lack every acceptable tool,
an error that no LLM can mend, so it must stay well below the LLM's own."""

TOP_K = 5
"""Default where the retriever has neither calibration nor threshold."""


@dataclass(frozen=True, slots=True)
class Mask:
    """How many tools are shown; without any argument, what suits the retriever.

    That is a calibrated coverage of 95 % where the retriever has one, else its own threshold (the
    paper's α), else its five best tools.

    Attributes:
        top_k: at most so many tools.
        threshold: only tools above this probability.
        coverage: the fewest tools that hold an acceptable one this often.
    """

    top_k: int | None = None
    threshold: float | None = None
    coverage: float | None = None

    def shown(self, ranking: Ranking) -> Ranking:
        """The tools to show, best first.

        Raises:
            InputError: an argument is out of range, or the retriever is not calibrated for it.
        """
        if self.top_k is not None or self.threshold is not None or self.coverage is not None:
            return ranking.select(
                top_k=self.top_k, threshold=self.threshold, coverage=self.coverage
            )
        if ranking.guide.held_out is not None and len(ranking.guide.held_out):
            return ranking.select(coverage=COVERAGE)
        if ranking.threshold is not None:
            return ranking.select()
        return ranking.select(top_k=TOP_K)
