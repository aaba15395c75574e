"""How often the plan calls each tool, from what a further encoder says of the query's clauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.errors import ModelError
from dtdr.retrievers.factored.blocks.base import Arrays, Block, PlanUpdate, TrainingSet
from dtdr.retrievers.factored.blocks.expected_calls import ExpectedCalls
from dtdr.retrievers.factored.query_features import QueryFeatures
from dtdr.retrievers.factored.ridge import Weights, pick_columns
from dtdr.retrievers.nn import Indices, Matrix
from dtdr.retrievers.vectors import unit

_SCALE = 3.0
"""Length that vectors are given."""
_EPOCHS, _RATE, _DECAY = 100, 0.1, 1e-3
_START = -3.0
"""Bias of every tool: few clauses ask for it."""
_LEAST, _MOST = 1e-6, 1 - 1e-6


class Clauses(ExpectedCalls):
    """Which tools each clause asks for, by a noisy-or over the clauses of a plan's query.

    Demonstrations tell which tools a plan calls, not for which clause (multiple-instance learning;
    noisy-or: Heckerman 1990). A plan is taken to call a tool unless none of its clauses asks for
    it, and each clause asks for it by a logistic regression on the clause's vector. One vector of a
    request for five things says too little of each.

    Args:
        weights: of the numbers of a vector, and the bias last; shape (numbers + 1, seen), float16.
        training: what they were learned from.
    """

    name = "clauses"
    about = "clauses that ask for it"
    names = ("clauses_left", "clauses_likely", "clauses_left_at_end")

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Learn the weights of vectors."""
        clauses = training.queries.clauses
        used = csr_array(training.plans.called[:, training.seen] > 0, dtype=np.float32).toarray()
        weights = _learn(clauses, used) if clauses else np.zeros((1, used.shape[1]), np.float32)
        return cls(weights.astype(np.float16), training)

    def update(self, update: PlanUpdate) -> Block:
        """Nothing is learned: clauses of earlier queries are not kept."""
        return type(self)(self.weights, update.training)

    def renumber(self, training: TrainingSet, slots: Indices) -> Block:
        """Move the tools; no clause asks for new ones."""
        weights = pick_columns(self.weights, slots)
        weights[-1, slots < 0] = 2 * _START
        return type(self)(weights, training)

    def widen(self, training: TrainingSet, first: int, count: int) -> Block:
        """The same weights: words have no part in them."""
        return type(self)(self.weights, training)

    def _expect(self, query: QueryFeatures) -> Matrix:
        clauses = query.clauses
        if clauses is None:
            return self._mean
        logits = _scale(clauses) @ self._weights[:-1] + self._weights[-1]
        expected: Matrix = _sigmoid(logits).sum(axis=0)
        return expected

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The weights that were saved."""
        weights: Weights = arrays["weights"]
        if weights.ndim != 2 or weights.shape[1] != len(training.seen):
            raise ModelError("the weights of clauses do not fit the tools; fit it again")
        return cls(weights, training)


def _scale(vectors: Matrix) -> Matrix:
    return unit(vectors) * np.float32(_SCALE)


def _sigmoid(logits: Matrix) -> Matrix:
    odds: Matrix = np.exp(-np.clip(logits, -30, 30))
    odds += 1
    return np.reciprocal(odds, out=odds)


def _learn(clauses: Sequence[Matrix], used: Matrix) -> Matrix:
    """Weights that make the likelihood of the calls greatest, by Adam over all plans at once.

    Args:
        clauses: one a plan, shape (clauses, numbers).
        used: shape (plans, tools): whether the plan calls the tool.

    Returns:
        Shape (numbers + 1, tools).
    """
    plans = len(clauses)
    vectors = _scale(np.concatenate(clauses))
    vectors = np.concatenate([vectors, np.ones((len(vectors), 1), np.float32)], axis=1)
    sizes = list(map(len, clauses))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    owner = np.repeat(np.arange(plans), sizes)
    weights = np.zeros((vectors.shape[1], used.shape[1]), np.float32)
    weights[-1] = _START
    decay = np.full((len(weights), 1), _DECAY, np.float32)
    decay[-1] = 0
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for epoch in range(1, _EPOCHS + 1):
        asks = _sigmoid(vectors @ weights)
        none: npt.NDArray[Any] = np.add.reduceat(np.log1p(-np.minimum(asks, _MOST)), starts)
        some = np.clip(1 - np.exp(none), _LEAST, _MOST)
        # By the logit of a clause: its own probability, times this of the plan.
        slope = 1 - used - used * (1 - some) / some
        gradient = vectors.T @ (asks * slope[owner]) / plans + decay * weights
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient * gradient - second)
        step = first / (1 - 0.9**epoch) / (np.sqrt(second / (1 - 0.999**epoch)) + 1e-8)
        weights -= np.float32(_RATE) * step
    return weights
