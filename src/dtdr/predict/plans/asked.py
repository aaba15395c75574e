"""Which tools a query asks for and how often, by what dtdr-f reads in each of its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from dtdr.errors import ModelError
from dtdr.predict.plans.beam import Multiset, StepState

Floats = npt.NDArray[np.float64]

MOST_COUNT = 4
"""More calls of one tool count as this many."""
MOST_ODDS = 6.0
_LEAST_PROBABILITY, _MOST_PROBABILITY = 0.002, 0.99
_LEAST_VARIANCE = 0.02
_MOST_LEARNED = 400_000
"""Pairs of a query and a tool that odds are learned from, of more."""
_BY_STRONGEST_PART = np.array([0.0, 0.0, 1.0, 0.0])


@runtime_checkable
class ReadsParts(Protocol):
    """A state that knows what each part of its query asks for, as dtdr-f's does."""

    def asked(self) -> npt.NDArray[np.float32] | None:
        """Presence and number of calls of each tool in each part; shape (2, parts, tools)."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedCalls:
    """What the parts of one query ask for.

    Attributes:
        log_odds: shape (tools,): that the plan has a call of each tool; 0 where nothing is known.
        counts: shape (tools,): how often it is called.
        precision: shape (tools,): half of one over the variance of the counts; 0 where nothing is
            known.
        by_part: shape (parts, tools): how likely each part asks for a call of it.
    """

    log_odds: Floats
    counts: Floats
    precision: Floats
    by_part: Floats

    def prefers(self, tool: int, count: int, other: int) -> float:
        """By how much parts prefer this many calls of a tool to another number of them, in nats."""
        if not count or not other:
            odds = float(self.log_odds[tool])
            return odds if count else -odds
        mean = float(self.counts[tool])
        away, before = min(count, MOST_COUNT) - mean, min(other, MOST_COUNT) - mean
        return float(self.precision[tool]) * (before**2 - away**2)


@dataclass(frozen=True, eq=False)
class AskedReader:
    """Turns what parts say into odds and counts, as they were right on held-out plans.

    Attributes:
        odds: shape (4,): of a logistic regression on what parts say, see ``_evidence``.
        variance: shape (tools,): of the numbers of calls.
    """

    odds: Floats
    variance: Floats

    @classmethod
    def fit(
        cls,
        asked: Sequence[npt.NDArray[np.float32] | None],
        plans: Sequence[Multiset],
        tools: int,
    ) -> Self:
        """Learn from held-out plans.

        Args:
            asked: what the parts of each query ask for, by a model that has not seen the plan;
                see ``ReadsParts``. None where the ranker reads no parts.
            plans: the right tools.
            tools: how many there are.
        """
        from sklearn.linear_model import LogisticRegression

        read = [
            (one[:, :, :tools].astype(np.float64), _count(plan, tools))
            for one, plan in zip(asked, plans, strict=True)
            if one is not None
        ]
        if not read:
            return cls(_BY_STRONGEST_PART, np.ones(tools))
        errors = [np.minimum(counts, MOST_COUNT) - said[1].sum(axis=0) for said, counts in read]
        variance = np.maximum((np.array(errors) ** 2).mean(axis=0), _LEAST_VARIANCE)
        read = read[: max(1, _MOST_LEARNED // tools)]
        is_called = np.concatenate([counts > 0 for _, counts in read])
        if is_called.all() or not is_called.any():
            return cls(_BY_STRONGEST_PART, variance)
        evidence = np.concatenate([_evidence(said[0]) for said, _ in read])
        fitted = LogisticRegression(C=100, max_iter=300).fit(evidence, is_called)
        return cls(np.append(fitted.intercept_, fitted.coef_[0]).astype(np.float64), variance)

    def read(self, state: StepState, numbers: Sequence[int], size: int) -> AskedCalls:
        """What the query of a run asks for.

        Args:
            state: of the run.
            numbers: of each tool of the retriever, its number in the plan model.
            size: one more than the greatest of these; of those that were never demonstrated
                nothing is known.
        """
        known = len(self.variance)
        precision, odds = np.zeros(size), np.zeros(size)
        asked = state.asked() if isinstance(state, ReadsParts) else None
        if asked is None:
            return AskedCalls(odds, np.zeros(size), precision, np.zeros((0, size)))
        said = np.zeros((2, asked.shape[1], size))
        said[:, :, list(numbers)] = asked[:, :, : len(numbers)]
        precision[:known] = 0.5 / self.variance
        odds[:known] = _evidence(said[0, :, :known]) @ self.odds[1:] + self.odds[0]
        return AskedCalls(
            np.clip(odds, -MOST_ODDS, MOST_ODDS),
            said[1].sum(axis=0),
            precision,
            np.clip(said[0], 0, _MOST_PROBABILITY),
        )

    def with_tools(self, tools: int) -> AskedReader:
        """For this many tools: the counts of further ones vary as those of others do."""
        usual = np.median(self.variance) if len(self.variance) else 1.0
        more = np.full(tools - len(self.variance), usual)
        return AskedReader(self.odds, np.append(self.variance, more))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {"odds": self.odds, "variance": self.variance}

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], tools: int) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        odds, variance = arrays["odds"], arrays["variance"]
        if odds.shape != (4,) or variance.shape != (tools,) or not (variance > 0).all():
            raise ModelError("what plans call by words does not fit together; fit the model again")
        return cls(odds.astype(np.float64), variance.astype(np.float64))


def _evidence(presence: Floats) -> Floats:
    """What the parts of a query say of each tool together; shape (tools, 3).

    The sum over parts, and the log odds of the strongest part and of any (noisy or).
    """
    likely = np.clip(presence, 0, _MOST_PROBABILITY)
    any_part = 1 - np.prod(1 - likely, axis=0)
    total = np.clip(presence, 0, 1).sum(axis=0)
    return np.stack([total, _logit(likely.max(axis=0)), _logit(any_part)], axis=1)


def _logit(probability: Floats) -> Floats:
    bounded = np.clip(probability, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    odds: Floats = np.log(bounded / (1 - bounded))
    return odds


def _count(plan: Multiset, tools: int) -> Floats:
    counts = np.zeros(tools)
    for tool, count in Counter(plan).items():
        counts[tool] = count
    return counts
