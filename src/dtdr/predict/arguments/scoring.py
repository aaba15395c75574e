"""How sure a filled call is, from the probabilities of its values and what else is known of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.prediction import Source
from dtdr.predict.arguments.state import RunState

Description = Mapping[str, float]
"""Features of a filled call by name."""

_LEAST_CALLS = 100
"""Fewer calls to learn from, or less than ten that are right or wrong, say too little."""
_FOLDS = 5
_STRENGTH = 0.3
"""Of the prior on weights, inverted: most sure half of an inner fold of TRAJECT-Bench .936 with .1,
.937 with .3, .938 with 1, and of two of TinyAgent .966, .966 and .963."""
_LOWEST = 1e-4


class CallScorer:
    """A logistic regression over what is known of a filled call.

    On inner folds it raised the share of exact calls in the most sure half from .960 and .952 to
    .972 and .960 (TinyAgent), and from .918 to .937 (TRAJECT-Bench), against the product of the
    values' probabilities.

    Args:
        weights: by the names of features; that of an empty name is added to every score.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = dict(weights)

    @classmethod
    def fit(
        cls, calls: Sequence[Description], exact: Sequence[bool], groups: Sequence[int]
    ) -> tuple[CallScorer, list[float]] | None:
        """Learn from held-out calls.

        Args:
            calls: n of them.
            exact: whether each was right.
            groups: numbers of runs that belong together.

        Returns:
            The scorer, and the scores that calls have where their groups are not learned from;
            None where there are too few calls.
        """
        right = np.array(exact, np.bool_)
        if len(right) < _LEAST_CALLS or min(right.sum(), (~right).sum()) < 2 * _FOLDS:
            return None
        from sklearn.linear_model import LogisticRegression

        names = sorted({name for call in calls for name in call})
        column = {name: place for place, name in enumerate(names)}
        table = np.zeros((len(calls), len(names)))
        for row, call in enumerate(calls):
            for name, value in call.items():
                table[row, column[name]] = value

        def learn(rows: npt.NDArray[np.bool_]) -> CallScorer:
            fitted = LogisticRegression(C=_STRENGTH, max_iter=1000).fit(table[rows], right[rows])
            weights = dict(zip(names, fitted.coef_[0].tolist(), strict=True))
            return cls({**weights, "": float(fitted.intercept_[0])})

        fold = np.array(groups) % _FOLDS
        scores = np.zeros(len(calls))
        for number in range(_FOLDS):
            out = fold == number
            if len(set(right[~out].tolist())) < 2:
                return None
            scorer = learn(~out)
            scores[out] = [scorer.score(calls[row]) for row in np.flatnonzero(out).tolist()]
        return learn(np.ones(len(calls), np.bool_)), scores.tolist()

    def score(self, call: Description) -> float:
        """How sure a call is, from 0 to 1; not calibrated."""
        total = self.weights.get("", 0.0)
        total += sum(self.weights.get(name, 0.0) * value for name, value in call.items())
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, total))))


def describe_call(
    tool: str,
    joint: float,
    shares: Mapping[str, float],
    sources: Mapping[str, Sequence[Source]],
    state: RunState,
) -> Description:
    """What is known of a filled call.

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
        "unused": sum(not state.uses.get(past.call.id) for past in state.calls) / 3,
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
