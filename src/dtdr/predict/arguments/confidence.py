"""How sure a filled call is: its score, and how often calls of such a score were right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.prediction import Source
from dtdr.predict.arguments.state import RunState
from dtdr.rankers.calibration import fit_isotonic

Description = Mapping[str, float]
"""Features of a filled call by name."""
Floats = npt.NDArray[np.float64]

_LEAST_CALLS = 100
"""Fewer calls to learn a score from, or less than ten that are right or wrong, say too little."""
_LEAST_COUNTED = 20
"""Fewer calls say too little about how often calls of a score are right."""
_FOLDS = 5
_STRENGTH = 0.3
"""Of the prior on weights, inverted: most sure half of an inner fold of TRAJECT-Bench .936 with .1,
.937 with .3, .938 with 1, and of two of TinyAgent .966, .966 and .963."""
_LOWEST = 1e-4
_SLOPE = 1e-3
"""So that of two calls that are right as often, the one that was more probable stays so."""
_DESCRIBED = (0.9, 0.95, 0.98)


class Confidence:
    """How likely a filled call is right: a logistic regression over its features, calibrated.

    On inner folds the regression raised the share of exact calls in the most sure half from .960
    and .952 to .972 and .960 (TinyAgent), and from .918 to .937 (TRAJECT-Bench), against the
    product of the values' probabilities.

    Args:
        weights: by the names of features; that of an empty name is added to every score. Without
            any, the product of the values' probabilities is the score.
        curve: shape (4, points): scores, sorted; how often such a call was right; and of the
            held-out calls from that point to the next, how many there were and how many of them
            were right. Without points the score is the probability.

    Raises:
        ValueError: the curve or a weight cannot be one.
    """

    def __init__(
        self, weights: Mapping[str, float] | None = None, curve: Floats | None = None
    ) -> None:
        self.weights = dict(weights or {"joint": 1.0})
        self.curve = np.zeros((4, 0)) if curve is None else curve
        is_sound = (
            self.curve.ndim == 2
            and len(self.curve) == 4
            and np.isfinite(self.curve).all()
            and (np.diff(self.curve[:2], axis=1) >= 0).all()
            and all(map(math.isfinite, self.weights.values()))
        )
        if not is_sound:
            raise ValueError("no weights and curve")

    @classmethod
    def fit(
        cls, calls: Sequence[Description | None], exact: Sequence[bool], groups: Sequence[int]
    ) -> Confidence:
        """Learn from held-out calls.

        Args:
            calls: n of them; None for one with an unknown value.
            exact: whether each was right.
            groups: numbers of runs that belong together.
        """
        known = np.array([call is not None for call in calls], np.bool_)
        described = [call for call in calls if call is not None]
        scores = np.zeros(len(calls))
        weights, scores[known] = _fit_weights(
            described, np.array(exact)[known], np.array(groups)[known]
        )
        if len(scores) < _LEAST_COUNTED:
            return cls(weights)
        points, _ = fit_isotonic(scores, exact)
        place = np.maximum(np.searchsorted(points, scores, side="right") - 1, 0)
        counts = np.bincount(place, minlength=len(points))
        right = np.bincount(place, np.array(exact, np.float64), len(points))
        # One more call counts as wrong: a few that were right by chance make no call sure.
        heights = np.maximum.accumulate(right / (counts + 1))
        chances = (1 - _SLOPE) * heights + _SLOPE * points
        return cls(weights, np.stack([points, chances, counts, right]))

    def score(self, call: Description) -> float:
        """How sure a call is, from 0 to 1; not calibrated."""
        total = self.weights.get("", 0.0)
        total += sum(self.weights.get(name, 0.0) * value for name, value in call.items())
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, total))))

    def probability(self, call: Description) -> float:
        """How often a call with such a score was right."""
        score = self.score(call)
        return float(np.interp(score, *self.curve[:2])) if self.curve.size else score

    def threshold(self, exact: float) -> float | None:
        """The least probability from which on at least this many of the held-out calls were right.

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
        rows = []
        for exact in _DESCRIBED:
            if (least := self.threshold(exact)) is not None:
                row = {"exact": exact, "probability": least, "calls": self.coverage(least)}
                rows.append({name: round(value, 4) for name, value in row.items()})
        return rows


def _fit_weights(
    calls: Sequence[Description], right: npt.NDArray[np.bool_], groups: npt.NDArray[np.int64]
) -> tuple[dict[str, float] | None, Floats]:
    """Weights, and the scores that calls have where their groups are not learned from.

    The weights are None where there are too few calls.
    """
    folds = groups % _FOLDS
    is_enough = len(right) >= _LEAST_CALLS and min(right.sum(), (~right).sum()) >= 2 * _FOLDS
    sides = [right[folds != fold].tolist() for fold in set(folds.tolist())]
    if not is_enough or any(len(set(side)) < 2 for side in sides):
        return None, np.array([Confidence().score(call) for call in calls])
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(DictVectorizer(), LogisticRegression(C=_STRENGTH, max_iter=1000))
    scores = cross_val_predict(
        model, calls, right, cv=PredefinedSplit(folds), method="predict_proba"
    )[:, 1]
    vectors, fitted = (step for _, step in model.fit(calls, right).steps)
    weights = dict(zip(vectors.get_feature_names_out(), fitted.coef_[0].tolist(), strict=True))
    return {**weights, "": float(fitted.intercept_[0])}, scores


def describe_call(
    tool: str,
    joint: float,
    shares: Mapping[str, float],
    sources: Mapping[str, Sequence[Source]],
    state: RunState,
) -> Description:
    """Features of a filled call.

    Args:
        tool: its name.
        joint: the product of the probabilities of its decisions.
        shares: the probability of each value, by parameter.
        sources: where each value comes from.
        state: what was known before the call.
    """
    logits = [_logit(share) for share in shares.values()] or [_logit(1.0)]
    current = [past.call for past in state.calls if not past.is_earlier]
    features = {
        "joint": _logit(joint),
        "least": min(logits),
        "mean": sum(logits) / len(logits),
        "calls": len(state.calls) / 5,
        "same": float(sum(call.tool == tool for call in current)),
        "unused": sum(past.call.id not in state.used for past in state.calls) / 3,
        "quotations": min(_free_quoted_tokens(state), 5) / 5,
        f"tool {tool}": 1.0,
    }
    for name, items in sources.items():
        features[f"{tool}\x00{name} {items[0].kind if items else 'constant'}"] = 1.0
    return features


def _free_quoted_tokens(state: RunState) -> int:
    """Words between quotation marks that no argument used."""
    is_free = state.texts.is_quoted.copy()
    for first, last in state.spans.get(("", ""), ()):
        is_free[first : last + 1] = False
    return int(is_free.sum())


def _logit(share: float) -> float:
    bounded = min(max(share, _LOWEST), 1 - _LOWEST)
    return math.log(bounded / (1 - bounded))
