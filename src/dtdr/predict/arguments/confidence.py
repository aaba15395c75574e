"""How often a call with a probability was exactly right, counted on held-out runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dtdr.rankers.calibration import fit_isotonic

_DESCRIBED = (0.9, 0.95, 0.98)
_SLOPE = 1e-3
"""So that of two calls that are right as often, the one that was more probable stays so."""
_LEAST_CALLS = 20
"""Fewer held-out calls say too little."""


class Confidence:
    """Calibrates the scores of calls.

    Args:
        curve: shape (4, points): scores, rising; how often such a call was right;
            and of the held-out calls from that point to the next, how many there were and how
            many of them were right.
    """

    def __init__(self, curve: npt.NDArray[np.float64]) -> None:
        self.curve = curve

    @classmethod
    def fit(cls, shares: Sequence[float], exact: Sequence[bool]) -> Confidence | None:
        """Isotonic regression; None where there are too few calls.

        Args:
            shares: the score of each held-out call, from 0 to 1.
            exact: whether they were all right.
        """
        if len(shares) < _LEAST_CALLS:
            return None
        points, _ = fit_isotonic(shares, exact)
        place = np.maximum(np.searchsorted(points, shares, side="right") - 1, 0)
        calls = np.bincount(place, minlength=len(points))
        right = np.bincount(place, np.array(exact, np.float64), len(points))
        # One more call counts as wrong: a few that were right by chance make no call sure.
        heights = np.maximum.accumulate(right / (calls + 1))
        chances = (1 - _SLOPE) * heights + _SLOPE * points
        return cls(np.stack([points, chances, calls, right]))

    def probability(self, share: float) -> float:
        """How often a call was right that has this score."""
        return float(np.interp(share, self.curve[0], self.curve[1]))

    def threshold(self, exact: float) -> float | None:
        """The least probability from which on at least so many of the held-out calls were right.

        One more call counts as wrong, so that a few that were right by chance do not suffice.

        Args:
            exact: a share, such as 0.95.

        Returns:
            The probability; None where no probability is enough.
        """
        _, chances, calls, right = self.curve
        above = np.cumsum(calls[::-1])[::-1]
        shares = np.cumsum(right[::-1])[::-1] / (above + 1)
        enough = np.flatnonzero((shares >= exact) & (right > 0))
        return float(chances[enough[0]]) if len(enough) else None

    def coverage(self, probability: float) -> float:
        """The share of the held-out calls that have at least this probability."""
        _, chances, calls, _ = self.curve
        return float(calls[chances >= probability].sum() / max(1.0, calls.sum()))

    def describe(self) -> list[dict[str, float]]:
        """Thresholds for some shares of exact calls, with the share of calls that reach them."""
        thresholds = [(exact, self.threshold(exact)) for exact in _DESCRIBED]
        return [
            {
                "exact": exact,
                "probability": round(least, 4),
                "calls": round(self.coverage(least), 4),
            }
            for exact, least in thresholds
            if least is not None
        ]

    @staticmethod
    def is_curve(array: npt.NDArray[np.float64]) -> bool:
        """Whether a constructor could take an array."""
        return (
            array.ndim == 2
            and array.shape[0] == 4
            and bool(np.isfinite(array).all())
            and bool((np.diff(array[:2], axis=1) >= 0).all())
        )
