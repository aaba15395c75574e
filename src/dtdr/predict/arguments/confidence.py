"""How sure a filled call is: how often calls whose values were as probable were right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtdr.errors import InputError
from dtdr.rankers.calibration import Floats, fit_isotonic

_LEAST_COUNTED = 20
"""Fewer calls say too little about how often calls of a score are right."""
_SLOPE = 1e-3
"""So that of two calls that are right as often, the one that was more probable stays so."""
_DESCRIBED = (0.9, 0.95, 0.98)


class Confidence:
    """How likely a filled call is right, by the product of its values' probabilities.

    Args:
        curve: shape (4, points): products, sorted; how often such a call was right; and of the
            held-out calls from that point to the next, how many there were and how many of them
            were right. Without points, the product is the probability.

    Raises:
        ValueError: the curve cannot be one.
    """

    def __init__(self, curve: Floats | None = None) -> None:
        self.curve = np.zeros((4, 0)) if curve is None else curve
        is_table = self.curve.ndim == 2 and len(self.curve) == 4 and np.isfinite(self.curve).all()
        if not is_table or (np.diff(self.curve[:2], axis=1) < 0).any():
            raise ValueError("not a curve")

    @classmethod
    def fit(cls, products: Sequence[float], exact: Sequence[bool]) -> Confidence:
        """Learn from held-out calls: products, 0 with an unknown value, and which are right."""
        if len(products) < _LEAST_COUNTED:
            return cls()
        scores = np.array(products)
        points, _ = fit_isotonic(scores, exact)
        position = np.maximum(np.searchsorted(points, scores, side="right") - 1, 0)
        counts = np.bincount(position, minlength=len(points))
        right = np.bincount(position, np.array(exact, np.float64), len(points))
        # One more call counts as wrong: a few that were right by chance make no call sure.
        heights = np.maximum.accumulate(right / (counts + 1))
        chances = (1 - _SLOPE) * heights + _SLOPE * points
        return cls(np.stack([points, chances, counts, right]))

    def probability(self, product: float) -> float:
        """How often calls with such a product were right."""
        return float(np.interp(product, *self.curve[:2])) if self.curve.size else product

    def threshold(self, exact: float = 0.95) -> float | None:
        """The least probability from which on calls are exactly right this often.

        One more call counts as wrong, so that a few that were right by chance do not suffice.

        Args:
            exact: a share of the held-out calls, above 0 and at most 1.

        Returns:
            What ``CallPrediction.probability`` has to reach, the right tool given; None where no
            probability is enough, or where too few demonstrations were there to tell.

        Raises:
            InputError: the share is not one.
        """
        if not 0 < exact <= 1:
            raise InputError(f"exact is {exact}; give a share above 0 and at most 1, such as 0.95")
        _, chances, calls, right = self.curve
        above = np.cumsum(calls[::-1])[::-1]
        shares = np.cumsum(right[::-1])[::-1] / (above + 1)
        enough = np.flatnonzero((shares >= exact) & (right > 0))
        return float(chances[enough[0]]) if len(enough) else None

    def describe(self) -> list[dict[str, float]]:
        """Thresholds for some shares of exact calls, with the share of calls that reach them."""
        _, chances, calls, _ = self.curve
        rows = []
        for exact in _DESCRIBED:
            if (least := self.threshold(exact)) is not None:
                covered = round(float(calls[chances >= least].sum() / calls.sum()), 4)
                rows.append({"exact": exact, "probability": round(least, 4), "calls": covered})
        return rows
