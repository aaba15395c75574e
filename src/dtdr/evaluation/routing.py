"""From which confidence on is the best tool nearly always right, so that a cheaper LLM would do?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.evaluation.statistics import Proportion, proportion
from dtdr.integrations.advice import rank_steps
from dtdr.retrievers.base import Retriever

LEVELS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Route:
    """The steps from one confidence on.

    Attributes:
        confidence: the lowest of them.
        share: of all steps.
        right: share of them whose best tool is acceptable, the end of the plan included.
    """

    confidence: float
    share: float
    right: Proportion

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; of no step, nothing is right or wrong."""
        shares = (self.right.value, self.right.low, self.right.high)
        right, low, high = (round(one, 6) if self.right.count else None for one in shares)
        return {
            "confidence": round(self.confidence, 6),
            "share_of_steps": round(self.share, 6),
            "steps": self.right.count,
            "right": right,
            "interval": [low, high],
        }


@dataclass(frozen=True, slots=True)
class StepConfidences:
    """How sure rankings were at the steps of runs, and whether they were right.

    Attributes:
        confidences: shape (steps,).
        right: shape (steps,): whether the best tool was acceptable.
    """

    confidences: Sequence[float]
    right: Sequence[bool]

    @classmethod
    def of_runs(
        cls, retriever: Retriever, demonstrations: Sequence[Demonstration]
    ) -> StepConfidences:
        """Those of runs that a retriever ranks, each with its own calls."""
        confidences: list[float] = []
        right: list[bool] = []
        for item, rankings in rank_steps(retriever, demonstrations):
            for step, ranking in zip(item.plan.steps(), rankings, strict=True):
                confidences.append(ranking.confidence)
                right.append(ranking.best in step.acceptable)
        return cls(confidences, right)

    def routes(self, levels: Sequence[float] = LEVELS) -> list[Route]:
        """The steps from each confidence on."""
        return [self._route(level) for level in levels]

    def cheapest(self, accuracy: float = 0.95) -> Route | None:
        """The most steps from a confidence on of which so many are right.

        Args:
            accuracy: that the lower end of the 95 % interval of the share has; between 0 and 1.

        Returns:
            None where no confidence does.

        Raises:
            InputError: the accuracy is out of range.
        """
        if not 0 < accuracy < 1:
            raise InputError(f"accuracy is {accuracy}; it must be between 0 and 1")
        order = np.argsort(-np.array(self.confidences), kind="stable")
        values = np.array(self.confidences)[order]
        right = np.cumsum(np.array(self.right, dtype=float)[order])
        for place in range(len(order) - 1, -1, -1):
            is_last = place + 1 == len(order) or values[place + 1] < values[place]
            # The interval's lower end is below the share, which is cheaper to look at.
            if is_last and right[place] >= accuracy * (place + 1):
                route = self._route(float(values[place]))
                if route.right.low >= accuracy:
                    return route
        return None

    def _route(self, level: float) -> Route:
        chosen = [
            right
            for confidence, right in zip(self.confidences, self.right, strict=True)
            if confidence >= level
        ]
        share = len(chosen) / len(self.right) if self.right else 0.0
        return Route(level, share, proportion(chosen))
