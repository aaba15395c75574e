"""Which tools a plan calls and how often, from what each part of its query asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.data.tools import Tool
from dtdr.errors import ModelError
from dtdr.predict.plans.memory import TermWeights
from dtdr.predict.plans.parts import QuerySplitter

Floats = npt.NDArray[np.float64]

_RIDGE = 1.0
_ROUNDS = 3
"""Times that calls are divided among parts anew. With none, the log loss of which tools held-out
plans of T-Eval have is 4.3 a query, with 3 it is 3.1, with 6 the same."""
_MOST_PARTS = 3_000
"""Parts that are regressed on, of more: time is cubic in them."""
MOST_COUNT = 4
"""More calls of one tool count as so many."""
_LEAST_SHARE = 1e-3
_LEAST_PROBABILITY = 0.002
_MOST_PROBABILITY = 0.99
_MOST_ODDS = 6.0
_LEAST_VARIANCE = 1e-3
_MOST_CALIBRATED = 400_000
"""Pairs of a query and a tool that odds are learned from, of more."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedCalls:
    """What the words of one query let expect of each tool.

    Attributes:
        log_odds: shape (tools,): that the plan has a call of it; 0 where nothing is known.
        counts: shape (tools,): how often it is called.
        precision: shape (tools,): half of one over the variance of the counts; 0 where nothing is
            known.
        by_part: shape (parts, tools): how likely each part of the query asks for a call of it.
    """

    log_odds: Floats
    counts: Floats
    precision: Floats
    by_part: Floats

    def pad(self, tools: int) -> ExpectedCalls:
        """The same with further tools, of which nothing is known."""
        more = tools - len(self.log_odds)
        every = (getattr(self, field.name) for field in fields(self))
        return ExpectedCalls(
            *(np.pad(one, [(0, 0)] * (one.ndim - 1) + [(0, more)]) for one in every)
        )

    def mismatch(self, tool: int, count: int) -> float:
        """How far so many calls are from what is expected, squared, in variances."""
        return float(self.precision[tool] * (min(count, MOST_COUNT) - self.counts[tool]) ** 2)


@dataclass(frozen=True, eq=False)
class PartRegression:
    """Ridge regression of presence and number of calls on the words of each part of a query.

    A demonstration does not say which part of its query asks for which call. Calls are divided
    evenly at first, then by what a regression that has not seen the query says of each part
    (expectation maximisation). Names and descriptions of tools are learned from as if each were a
    part that asks for its tool.

    Attributes:
        splitter: divides queries.
        terms: the weights of words and pairs of words in a part.
        weights: shape (terms, 2, tools), for presence and number.
        mean: shape (2, tools).
        variance: shape (tools,): of the numbers of plans that were left out.
        odds: shape (4,): of logistic regression on what parts say, see ``_evidence``.
    """

    splitter: QuerySplitter
    terms: TermWeights
    weights: npt.NDArray[np.float32]
    mean: Floats
    variance: Floats
    odds: Floats

    @classmethod
    def fit(
        cls,
        queries: Sequence[str],
        plans: Sequence[Sequence[int]],
        tools: Sequence[Tool],
        *,
        seed: int = 0,
    ) -> tuple[Self, list[ExpectedCalls]]:
        """Learn from plans.

        Args:
            queries: of them.
            plans: the tools of each, as places in ``tools``.
            tools: all of them.
            seed: which plans are taken of many.

        Returns:
            The regression, and what it would expect of each query had it not seen its plan, in
            closed form.
        """
        splitter = QuerySplitter.fit(queries)
        texts = [splitter.split(query) for query in queries]
        every = [part for parts in texts for part in parts]
        terms = TermWeights.fit(every)
        described = [f"{tool.name.replace('_', ' ')} {tool.description}" for tool in tools]
        described = described[: _MOST_PARTS // 4]
        sizes = np.array([len(parts) for parts in texts])
        starts = np.cumsum(sizes) - sizes
        targets = _targets(plans, len(tools))
        chosen = _draw(sizes, _MOST_PARTS - len(described), seed)
        learned = np.concatenate([starts[one] + np.arange(sizes[one]) for one in chosen])
        parts = terms.encode(every)
        rows = terms.encode([*(every[place] for place in learned), *described])
        dual, held_out, mean = _divide_calls(rows, sizes[chosen], targets[chosen])
        flat = (rows.T @ dual.reshape(len(dual), -1)).astype(np.float32)
        weights = flat.reshape(-1, 2, len(tools))
        # In single precision: 10,000 plans of many tools fill much memory.
        by_part = (parts @ flat).reshape(-1, *mean.shape) + mean.astype(np.float32)
        by_part[learned] = held_out
        said = np.split(by_part, starts[1:])
        counts = np.stack([one[:, 1].sum(axis=0) for one in said])
        variance = ((targets[:, 1] - counts) ** 2).mean(axis=0) + _LEAST_VARIANCE
        odds = _learn_odds(said, targets[:, 0], seed)
        model = cls(splitter, terms, weights, mean, variance, odds)
        return model, [model.expect(one) for one in said]

    def predict(self, query: str) -> Floats:
        """Presence and number of calls of each tool in each part; shape (parts, 2, tools)."""
        rows = self.terms.encode(self.splitter.split(query))
        flat = rows @ self.weights.reshape(len(self.weights), -1)
        predicted: Floats = self.mean + flat.reshape(-1, *self.mean.shape)
        return predicted

    def expect(self, predicted: Floats) -> ExpectedCalls:
        """What a prediction lets expect; shape (parts, 2, tools)."""
        odds = _evidence(predicted) @ self.odds[1:] + self.odds[0]
        return ExpectedCalls(
            np.clip(odds, -_MOST_ODDS, _MOST_ODDS),
            predicted[:, 1].sum(axis=0),
            0.5 / self.variance,
            np.clip(predicted[:, 0], 0, _MOST_PROBABILITY),
        )

    def with_plans(
        self, queries: Sequence[str], plans: Sequence[Sequence[int]], tools: int
    ) -> PartRegression:
        """After further plans, each learned as if it were the only one (Kaczmarz's projection).

        Args:
            queries: of the further plans.
            plans: their tools.
            tools: how many there are now.
        """
        more = tools - len(self.variance)
        weights = np.pad(self.weights, ((0, 0), (0, 0), (0, more)))
        model = replace(
            self,
            weights=weights,
            mean=np.pad(self.mean, ((0, 0), (0, more))),
            variance=np.pad(self.variance, (0, more), constant_values=1.0),
        )
        for query, target in zip(queries, _targets(plans, tools), strict=True):
            rows = self.terms.encode(self.splitter.split(query))
            predicted = model.predict(query)
            error = (
                target * _shares(predicted[:, 0], np.array([len(predicted)]))[:, None] - predicted
            )
            for number in range(len(predicted)):
                row = csr_array(rows[[number]])
                step = (error[number] / (1 + _RIDGE)).astype(np.float32)
                weights[row.indices] += row.data[:, None, None] * step
        return model

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            **self.terms.arrays(),
            "starts": self.splitter.starts,
            "coefficients": self.weights.astype(np.float16),
            "mean": self.mean.astype(np.float32),
            "variance": self.variance.astype(np.float32),
            "odds": self.odds,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], tools: int) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        weights, mean, variance = (arrays[name] for name in ("coefficients", "mean", "variance"))
        terms = TermWeights.restore(arrays)
        fits = (
            weights.shape == (len(terms), 2, tools)
            and mean.shape == (2, tools)
            and variance.shape == (tools,)
            and (variance > 0).all()
            and arrays["odds"].shape == (4,)
        )
        if not fits:
            raise ModelError("what plans call by words does not fit together; fit the model again")
        return cls(
            QuerySplitter(arrays["starts"].astype(np.uint32)),
            terms,
            weights.astype(np.float32),
            mean.astype(np.float64),
            variance.astype(np.float64),
            arrays["odds"].astype(np.float64),
        )


def _draw(sizes: npt.NDArray[np.intp], most: int, seed: int) -> npt.NDArray[np.intp]:
    """Places of queries, rising, that have so many parts together at most; one at least."""
    order = np.random.default_rng(seed).permutation(len(sizes))
    count = int((np.cumsum(sizes[order]) <= most).sum())
    return np.sort(order[: max(1, count)])


def _divide_calls(
    rows: csr_array, sizes: npt.NDArray[np.intp], targets: Floats
) -> tuple[Floats, Floats, Floats]:
    """Regress on parts, the calls of each plan divided among the parts of its query.

    Args:
        rows: shape (parts + descriptions, terms), the descriptions of the first tools last.
        sizes: parts of each query.
        targets: shape (queries, 2, tools).

    Returns:
        Dual coefficients of the rows, shape (rows, 2, tools); what is said of each part by a
        regression without its query, shape (parts, 2, tools); and the mean.
    """
    ends = np.cumsum(sizes)
    parts, tools = int(ends[-1]), targets.shape[2]
    kernel = (rows @ rows.T).toarray()
    inverse = np.linalg.inv(kernel + np.float32(_RIDGE) * np.eye(len(kernel), dtype=np.float32))
    blocks = [
        slice(end - size, end) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)
    ]
    own = [np.linalg.inv(inverse[block, block].astype(np.float64)) for block in blocks]
    of_plan = np.repeat(targets, sizes, axis=0)
    shares = np.repeat(1 / sizes, sizes)[:, None] * np.ones(tools)
    wanted = np.zeros((len(kernel), 2, tools))
    wanted[parts:] = np.eye(tools)[: len(kernel) - parts, None]
    held_out = np.empty((parts, 2, tools))
    for _ in range(_ROUNDS + 1):
        wanted[:parts] = of_plan * shares[:, None]
        mean = wanted[:parts].mean(axis=0)
        dual = inverse @ (wanted - mean).reshape(len(wanted), -1)
        dual = dual.reshape(wanted.shape)
        for block, matrix in zip(blocks, own, strict=True):
            held_out[block] = wanted[block] - np.tensordot(matrix, dual[block], axes=1)
        shares = _shares(held_out[:, 0], sizes)
    return dual, held_out, mean


def _shares(presence: Floats, sizes: npt.NDArray[np.intp]) -> Floats:
    """How the calls of each tool are divided among the parts of queries; shape (parts, tools)."""
    likely = np.maximum(presence, _LEAST_SHARE)
    sums = np.add.reduceat(likely, np.cumsum(sizes) - sizes, axis=0)
    shares: Floats = likely / np.repeat(sums, sizes, axis=0)
    return shares


def _evidence(predicted: Floats) -> Floats:
    """What the parts of a query say of each tool together; shape (tools, 3).

    The sum over parts, and the log odds of the strongest part and of any (noisy or).
    """
    presence = predicted[:, 0]
    likely = np.clip(presence, 0, _MOST_PROBABILITY)
    any_part = 1 - np.prod(1 - likely, axis=0)
    return np.stack(
        [np.clip(presence, 0, 1).sum(axis=0), _logit(likely.max(axis=0)), _logit(any_part)], axis=1
    )


def _logit(probability: Floats) -> Floats:
    bounded = np.clip(probability, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    odds: Floats = np.log(bounded / (1 - bounded))
    return odds


def _learn_odds(said: Sequence[Floats], present: Floats, seed: int) -> Floats:
    """An intercept and the weights of ``_evidence``; shape (4,)."""
    from sklearn.linear_model import LogisticRegression

    most = max(1, _MOST_CALIBRATED // present.shape[1])
    places = np.random.default_rng(seed).permutation(len(said))[:most]
    is_called = present[places].ravel() > 0
    if is_called.all() or not is_called.any():
        return np.array([0.0, 0.0, 1.0, 0.0])
    evidence = np.concatenate([_evidence(said[place]) for place in places])
    fitted = LogisticRegression(C=100, max_iter=300).fit(evidence, is_called)
    return np.concatenate([fitted.intercept_, fitted.coef_[0]]).astype(np.float64)


def _targets(plans: Sequence[Sequence[int]], tools: int) -> Floats:
    """Presence and number of calls of each tool in each plan; shape (plans, 2, tools)."""
    targets = np.zeros((len(plans), 2, tools))
    for row, plan in zip(targets, plans, strict=True):
        for tool, count in Counter(plan).items():
            row[:, tool] = 1, min(count, MOST_COUNT)
    return targets
