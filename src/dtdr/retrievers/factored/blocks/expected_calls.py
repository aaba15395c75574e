"""How often the plan calls each tool, from the words of the query, and what is left of that."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.retrievers.factored.blocks.base import (
    Arrays,
    Begin,
    Block,
    CallEvent,
    PlanUpdate,
    Query,
    TrainingSet,
    read_word_weights,
)
from dtdr.retrievers.factored.query_features import (
    EncodedQueries,
    QueryFeatures,
    QueryFeaturizer,
    Row,
)
from dtdr.retrievers.factored.ridge import (
    RidgeRegression,
    Weights,
    correct_weights,
    insert_rows,
    pick_columns,
)
from dtdr.retrievers.nn import Indices, Matrix

_MOST = 4.0
"""More calls of one tool count as so many."""


class ExpectedCalls(Block):
    """Ridge regression of the number of calls of each tool on words.

    What was called is taken off, so that "nothing is left" says when the plan ends.

    Args:
        weights: of words and pairs of words for the seen tools; shape (words, seen), float16.
        training: what they were learned from.
    """

    name = "expected_calls"
    about = "calls that the words ask for"
    names = ("calls_left", "likely_left", "calls_left_at_end")

    def __init__(self, weights: Weights, training: TrainingSet) -> None:
        self.weights = weights
        self._weights = weights.astype(np.float32)
        self._mean = _mean(training)
        self._seen = None if len(training.seen) == len(training.tools) else training.seen
        self._tools = len(training.tools)

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Learn the weights of words."""
        counts = _counts(training.plans.called, training.seen)
        return cls(cls._regression(training).learn(counts), training)

    def update(self, update: PlanUpdate) -> Block:
        """Learn from each further plan, and anew where all plans are at hand."""
        training = update.training
        if update.is_complete:
            return self.fit(training)
        counts = _counts(update.plans.called, training.seen)
        vectors = self._vectors(update.queries, training.featurizer)
        return type(self)(correct_weights(self.weights, vectors, counts, _mean(training)), training)

    @classmethod
    def _regression(cls, training: TrainingSet) -> RidgeRegression:
        """Of what plans call on ``_vectors``."""
        return training.word_regression

    @classmethod
    def _vectors(cls, queries: EncodedQueries, featurizer: QueryFeaturizer) -> csr_array:
        """What is regressed on; shape (queries, rows of the weights)."""
        return queries.word_vectors

    def _row(self, query: QueryFeatures) -> Row:
        """The same of one query."""
        return query.words

    def _expect(self, query: QueryFeatures) -> Matrix:
        """How many calls of each seen tool the query asks for."""
        columns, values = self._row(query)
        expected: Matrix = values @ self._weights[columns]
        expected += self._mean
        return expected

    def renumber(self, training: TrainingSet, slots: Indices) -> Block:
        """Move the tools; new ones have no weights yet."""
        return type(self)(pick_columns(self.weights, slots), training)

    def widen(self, training: TrainingSet, first: int, count: int) -> Block:
        """Rows of zeros for the new words."""
        return type(self)(insert_rows(self.weights, first, count), training)

    def start(self, query: Query, out: Matrix) -> Begin:
        """Everything is left."""
        expected = self._expect(query.features)
        if self._seen is not None:
            every = np.zeros(self._tools, np.float32)
            every[self._seen] = expected
            expected = every
        expected = query.view.of(expected)
        np.clip(expected, 0, _MOST, out=out[0])
        out[0, -1] = 0
        np.log(out[0] + np.float32(0.02), out=out[1])
        total = float(out[0].sum())
        out[2, -1] = total
        return partial(_ExpectedCallsState, total)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The weights of words."""
        return {"weights": self.weights}

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The weights that were saved."""
        return cls(read_word_weights(arrays, training, "expected calls"), training)


class _ExpectedCallsState:
    __slots__ = ("_at_end", "_left", "_likely", "_total")

    def __init__(self, total: float, rows: Matrix) -> None:
        self._left, self._likely, self._at_end = rows
        self._total = total

    def call(self, event: CallEvent) -> None:
        column = event.column
        if column < 0:
            return
        before = float(self._left[column])
        left = before - 1
        self._total += max(left, 0.0) - max(before, 0.0)
        self._left[column] = max(left, -1.0)
        self._likely[column] = np.log(max(left, 0.0) + 0.02)
        self._at_end[-1] = self._total

    def write(self) -> None:
        """Every call wrote already."""

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        """Nothing about new tools."""


def _counts(called: csr_array, seen: Indices) -> csr_array:
    """Shape (plans, seen): how often each plan calls each tool."""
    return csr_array(called[:, seen])


def _mean(training: TrainingSet) -> Matrix:
    """Mean number of calls in a plan; shape (seen,)."""
    plans = training.plans
    mean = plans.frequency[training.seen] / max(float(plans.weights.sum()), 1e-9)
    return mean.astype(np.float32)
