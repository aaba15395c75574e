"""Calibration: what a ranker learned about its own rankings on held-out plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError
from dtdr.rankers.logistic import fit_logistic

Floats = npt.NDArray[np.float64]

_UNKNOWN_TOKENS = 50
"""Approximate prompt tokens of a tool of which only the name is known."""
_LEAST_CHANCE = 1e-4
"""Logarithms of smaller probabilities count as those of this one."""
_LOG_ODDS = np.linspace(-7, 7, 57)
"""Log odds of the probabilities that a curve is kept at."""
_PULL = 20.0
"""How strongly a curve is drawn to one that changes nothing. See ``fit_confidence``."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration of a fitted ranker, shared by all its rankings.

    Attributes:
        held_out: shape (steps,), ascending: on plans that were held out, the probability of the
            best acceptable tool at each step; what ``select(coverage=…)`` is calibrated on.
        confidence: shape (2, points): probabilities of the best tool, ascending, and how often a
            best tool of that probability was acceptable on held-out plans.
        end_confidence: shape (2, points): the same where the end of plan is best; None: as for
            tools.
        tokens: shape (n,), in the order of the vocabulary: what showing a tool costs in a prompt.
        familiarity_threshold: out-of-distribution threshold; queries less familiar than this are
            unlike the demonstrations.
        added: shape (n,): whether a tool was added after the demonstrations; None: none was.
    """

    held_out: Floats | None = None
    confidence: Floats | None = None
    tokens: npt.NDArray[np.int64] | None = None
    familiarity_threshold: float | None = None
    added: npt.NDArray[np.bool_] | None = None
    end_confidence: Floats | None = None

    @property
    def has_coverage(self) -> bool:
        """Whether ``select(coverage=…)`` can be asked for."""
        return self.held_out is not None and len(self.held_out) > 0

    def probability_for(self, coverage: float) -> float:
        """The cut above which the set of tools has an acceptable one this often.

        Split conformal prediction with the probability of the best acceptable tool as the
        conformity score, which gives the smallest sets on average where probabilities are
        calibrated (Sadinle et al. 2019, Least Ambiguous Set-Valued Classifiers).

        Raises:
            InputError: the coverage is outside (0, 1), or nothing was held out.
        """
        if not 0 < coverage < 1:
            raise InputError(f"coverage is {coverage}; it must be between 0 and 1")
        if self.held_out is None or not len(self.held_out):
            raise InputError(
                "this ranker has no calibrated coverage; use top_k or threshold, or fit dtdr-f"
            )
        # Rank ⌊(m + 1)(1 − c)⌋ of m held-out scores; rank 0 means that no cut is low enough.
        rank = int((len(self.held_out) + 1) * (1 - coverage) + 1e-9)
        return 0.0 if rank == 0 else float(self.held_out[rank - 1])

    def confidence_of(
        self, probability: float, familiarity: float | None = None, *, is_end: bool = False
    ) -> float:
        """How likely a best tool of that probability is an acceptable one.

        Below the out-of-distribution threshold it falls towards 0: what held-out plans say is about
        queries like them. It never falls as either number rises.

        Args:
            probability: of the best tool.
            familiarity: of the query; None where that is not known.
            is_end: whether the best tool is the end of plan.
        """
        curve = self.confidence
        if is_end and self.end_confidence is not None:
            curve = self.end_confidence
        if curve is not None:
            probability = float(np.interp(probability, curve[0], curve[1]))
        threshold = self.familiarity_threshold
        if familiarity is None or not threshold:
            return probability
        # A threshold below 0 is of scores that are minus a distance.
        share = familiarity / threshold
        if threshold < 0:
            share = threshold / min(familiarity, threshold)
        return probability * min(max(share, 0.0), 1.0)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays to save: all but ``tokens``, which follow from the tools."""
        parts = {
            "held_out": self.held_out,
            "confidence": self.confidence,
            "end_confidence": self.end_confidence,
            "threshold": np.array([self.familiarity_threshold or 0.0]),
        }
        return {name: part for name, part in parts.items() if part is not None}

    @classmethod
    def restore(
        cls, arrays: Mapping[str, npt.NDArray[Any]], tokens: npt.NDArray[np.int64]
    ) -> Calibration:
        """Rebuild from the output of ``arrays``."""
        threshold = float(arrays["threshold"][0])
        end = arrays.get("end_confidence")
        held_out, confidence = arrays.get("held_out"), arrays.get("confidence")
        return cls(held_out, confidence, tokens, threshold, end_confidence=end)

    def extend(self, count: int) -> Calibration:
        """The same with this many tools after the vocabulary, which are not in it."""
        tokens = added = None
        if self.tokens is not None:
            tokens = np.append(self.tokens, [_UNKNOWN_TOKENS] * count)
        if self.added is not None:
            added = np.append(self.added, [True] * count)
        return replace(self, tokens=tokens, added=added)

    def of(self, positions: npt.NDArray[np.intp]) -> Calibration:
        """The same for some of the tools, by their positions in the vocabulary."""
        tokens = None if self.tokens is None else self.tokens[positions]
        added = None if self.added is None else self.added[positions]
        return replace(self, tokens=tokens, added=added)


NO_CALIBRATION = Calibration()


def fit_isotonic(
    values: Floats | Sequence[float], outcomes: Floats | Sequence[float] | Sequence[bool]
) -> Floats:
    """The increasing step function nearest to outcomes, by isotonic regression.

    Args:
        values: shape (n,): scores or probabilities, at least one.
        outcomes: shape (n,): 1 where what was scored was right.

    Returns:
        Shape (2, points): both ends of every step, ascending; to be interpolated between.
    """
    from scipy.optimize import isotonic_regression

    points, owner, counts = np.unique(
        np.asarray(values, np.float64), return_inverse=True, return_counts=True
    )
    means = np.bincount(owner, np.asarray(outcomes, np.float64)) / counts
    heights = isotonic_regression(means, weights=counts).x
    # What lies within a step adds nothing to its ends.
    is_end = np.ones(len(points), np.bool_)
    is_end[1:-1] = (heights[1:-1] != heights[:-2]) | (heights[1:-1] != heights[2:])
    return np.stack([points[is_end], heights[is_end]])


def fit_confidence(probabilities: Floats, outcomes: Floats) -> Floats:
    """How often a best tool of each probability was right, by beta calibration (Kull et al., 2017).

    A logistic regression on ``log p`` and ``-log(1 - p)``, whose weights of at least 0 are drawn
    to 1, and its constant to 0, with which the curve changes nothing. A few hundred steps are too
    few for isotonic regression, whose ends say 0 and 1.

    Args:
        probabilities: shape (n,): of the best tool of each step, at least one.
        outcomes: shape (n,): 1 where it was right.

    Returns:
        Shape (2, points): ascending, to be interpolated between.
    """
    unchanged = np.array([1.0, 1.0, 0.0])
    weights = fit_logistic(
        _log_chances(probabilities),
        outcomes,
        unchanged,
        decay=_PULL,
        positive=np.array([True, True, False]),
    )
    points = 1 / (1 + np.exp(-_LOG_ODDS))
    return np.stack([points, 1 / (1 + np.exp(-(_log_chances(points) @ weights)))])


def _log_chances(probabilities: Floats) -> Floats:
    """``log p``, ``-log(1 - p)`` and 1, of which a curve is made; shape (n, 3)."""
    chances = np.clip(probabilities, _LEAST_CHANCE, 1 - _LEAST_CHANCE)
    return np.stack([np.log(chances), -np.log1p(-chances), np.ones(len(chances))], axis=1)
