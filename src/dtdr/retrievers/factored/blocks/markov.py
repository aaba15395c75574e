"""Markov chains in which every demonstration counts as much as its query is like the query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from dtdr.retrievers.factored.blocks.base import (
    Arrays,
    Begin,
    Block,
    CallEvent,
    PlanUpdate,
    Query,
    TrainingSet,
    View,
)
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.query_features import Row
from dtdr.retrievers.nn import Indices, Matrix

Floats = npt.NDArray[np.float64]

_ORDER = 4
_POWER = 3
"""Sharpness of the kernel: weights are cosines to this power."""
_NEIGHBOURS = 128
"""Demonstrations that are less alike than so many others count a tenth."""
_BACK_OFF, _BACK_OFF_ALL = 0.3, 2.0
"""Weight of the next shorter history, with and without the kernel."""


class Markov(Block):
    """What followed a history of up to four calls, with back-off to shorter ones.

    The soft form of the paper's DTDR-C: instead of one cluster's demonstrations, all are counted,
    weighted by the similarity of their queries. Cost grows with the steps that share the last
    calls, not with the log; but every query costs a product with all demonstrations.

    Args:
        plans: of the demonstrations.
        queries: shape (plans, words): vectors of their queries.
    """

    name = "markov"
    about = "chains of similar demonstrations"
    names = ("kernel", "markov")
    shortlist: ClassVar = {"kernel": 0.5}

    def __init__(self, plans: EncodedPlans, queries: csr_array) -> None:
        self._queries = queries
        self._tools = plans.tools
        weights = plans.weights.tolist()
        entries: dict[tuple[int, ...], list[tuple[int, int, float]]] = defaultdict(list)
        for step in plans.steps():
            share = weights[step.plan] / len(step.acceptable)
            after = [(step.plan, tool, share) for tool in step.acceptable]
            padded = self._pad(step.history)
            for length in range(len(padded) + 1):
                entries[padded[len(padded) - length :]] += after
        self._after = {suffix: _columns(rows) for suffix, rows in entries.items()}
        _, tools, shares = self._after[()]
        overall = np.bincount(tools, shares, self._tools) + 0.5
        self._overall: Floats = overall / overall.sum()

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Index what followed each history."""
        return cls(training.plans, training.queries.word_vectors)

    def update(self, update: PlanUpdate) -> Block:
        """With further plans."""
        queries = vstack([self._queries, update.queries.word_vectors], format="csr")
        return Markov(update.training.plans, csr_array(queries))

    def renumber(self, training: TrainingSet, slots: Indices) -> Block:
        """The same queries with renumbered plans."""
        return Markov(training.plans, self._queries)

    def widen(self, training: TrainingSet, first: int, count: int) -> Block:
        """The same queries, none of which holds a new word."""
        old = self._queries
        shape = (old.shape[0], old.shape[1] + count)
        queries = csr_array((old.data, old.indices, old.indptr), shape=shape)
        return Markov(training.plans, queries)

    def _pad(self, history: Sequence[int]) -> tuple[int, ...]:
        """The last calls that are looked at; one further index stands for the start."""
        if len(history) < _ORDER:
            return (self._tools, *history)
        return tuple(history[-_ORDER:])

    def start(self, query: Query, out: Matrix) -> Begin:
        """The similarity of the demonstrations."""
        weights = self._similarity(query.features.words)
        plans, tools, shares = self._after[()]
        counts = np.bincount(tools, weights[plans] * shares, self._tools)
        alike = (counts + 0.05 * self._overall) / (counts.sum() + 0.05)
        return partial(_MarkovState, self, weights, alike, query.view)

    def _similarity(self, row: Row) -> Floats:
        """How much each demonstration counts for a query."""
        dense = np.zeros(self._queries.shape[1], np.float32)
        dense[row[0]] = row[1]
        weights = np.maximum(self._queries @ dense, 0).astype(np.float64) + 1e-6
        weights = (weights / weights.max()) ** _POWER
        if len(weights) > _NEIGHBOURS:
            weights[weights < np.partition(weights, -_NEIGHBOURS)[-_NEIGHBOURS]] *= 0.1
        # The ten most alike count as three calls, whatever the scale of the similarities.
        nearest = np.partition(weights, -10)[-10:] if len(weights) > 10 else weights
        similarity: Floats = weights / nearest.sum() * 3
        return similarity

    def log_probabilities(
        self, weights: Floats, alike: Floats, history: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """Of every tool after a history, with the kernel and without it.

        Args:
            weights: of the demonstrations.
            alike: probabilities of every tool whatever the history.
            history: the calls made.
        """
        overall = self._overall
        padded = self._pad(history)
        for length in range(1, len(padded) + 1):
            entry = self._after.get(padded[len(padded) - length :])
            if entry is None:
                break
            plans, tools, shares = entry
            counts = np.bincount(tools, weights[plans] * shares, self._tools)
            alike = (counts + _BACK_OFF * alike) / (counts.sum() + _BACK_OFF)
            counts = np.bincount(tools, shares, self._tools)
            overall = (counts + _BACK_OFF_ALL * overall) / (counts.sum() + _BACK_OFF_ALL)
        return np.log(alike + 1e-7), np.log(overall + 1e-7)

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The vectors of the queries."""
        return {
            "columns": self._queries.indices.astype(np.int32),
            "starts": self._queries.indptr.astype(np.int64),
            "values": self._queries.data.astype(np.float16),
        }

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The vectors that were saved, and the chains of the plans."""
        starts = arrays["starts"].astype(np.int32)
        values = arrays["values"].astype(np.float32)
        shape = (len(starts) - 1, training.featurizer.words.dimension)
        queries = csr_array((values, arrays["columns"].astype(np.int32), starts), shape=shape)
        return cls(training.plans, queries)


class _MarkovState:
    __slots__ = ("_alike", "_calls", "_chains", "_rows", "_view", "_weights")

    def __init__(
        self, chains: Markov, weights: Floats, alike: Floats, view: View, rows: Matrix
    ) -> None:
        self._chains, self._weights, self._alike = chains, weights, alike
        self._view, self._rows = view, rows
        self._calls: list[int] = []

    def call(self, event: CallEvent) -> None:
        self._calls.append(event.tool)

    def write(self) -> None:
        both = self._chains.log_probabilities(self._weights, self._alike, self._calls)
        for row, values in zip(self._rows, both, strict=True):
            row[:] = values if self._view.tools is None else values[self._view.tools]

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        """Nothing about new tools."""


def _columns(
    entries: list[tuple[int, int, float]],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    return (
        np.array([entry[0] for entry in entries], np.int32),
        np.array([entry[1] for entry in entries], np.int32),
        np.array([entry[2] for entry in entries], np.float32),
    )
