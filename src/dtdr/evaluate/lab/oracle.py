"""A ranker that knows the gold plans: the upper bound of what a ranking can do for an LLM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.rankers.base import Ranker
from dtdr.rankers.calibration import Floats

NAME = "dtdr.evaluate.lab.oracle:Oracle"
"""Its name in suites."""


class Oracle(Ranker):
    """Ranks the acceptable next tools of a gold plan, and nothing else.

    Calls that the gold plan does not make change nothing.

    Attributes:
        plans: by query, of the demonstrations that are tested.
    """

    name = "oracle"
    may_end_at_once = True  # where the gold plan does
    cut = 0.0

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}

    def fit(self, demonstrations: Sequence[Demonstration], tools: Sequence[Tool]) -> None:
        """Take the vocabulary."""
        self.index = {tool.name: at for at, tool in enumerate(tools)}

    def prepare(self, query: str) -> Any:
        """See ``Ranker.prepare``."""
        return self.plans[query]

    def probabilities(self, prepared: Any, run: Run) -> Floats:
        """See ``Ranker.probabilities``."""
        plan: Plan = prepared
        done: set[int] = set()
        for name in run.history:
            left = (i for i, tool in enumerate(plan.tools) if tool == name and i not in done)
            done.update([next(left, len(plan))])
        scores = np.zeros(len(self.index))
        scores[[self.index[name] for name in plan.acceptable_next(done) if name in self.index]] = 1
        return scores
