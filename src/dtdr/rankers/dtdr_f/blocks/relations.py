"""Pairs of tools in plans: which are in one plan, which uses whose output."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.observations import REMOVED
from dtdr.rankers.nn import Matrix
from dtdr.text.sparse import csr_array


class Relations(Block):
    """Frequency, dependencies and co-occurrence.

    Counts are kept sparse, so that memory grows with the pairs that occur and not with the square
    of the tools.

    Attributes:
        frequency: shape (tools,): scaled number of calls of each tool.
        producers: shape (tools,): outputs of other tools that a call of each uses on average.
        rows: of a tool, shape (2, tools): pointwise mutual information of being in one plan with
            each other tool; and how often a call of that uses its output.
    """

    name = "relations"
    about = "tools of one plan, and outputs used"
    names = ("log_frequency", "producers_missing", "together", "uses_last")

    def __init__(self, training: TrainingSet) -> None:
        plans, scale, tools = training.data, training.scale, training.data.tools
        present = csr_array(plans.called > 0, dtype=np.float64)
        self._both = csr_array(present.T @ present) * scale
        self._share = self._both.diagonal()
        self._total = len(plans) * scale
        edges = plans.columns["edges"]
        later, source = (edges.values + plans.starts[edges.owner]).reshape(-1, 2).T
        producer = plans.calls[source].astype(np.int64)
        known = (plans.calls[later] != REMOVED) & (producer != REMOVED)
        # A call that uses several outputs of one tool counts once.
        distinct = np.unique(later[known] * tools + producer[known])
        places = (distinct % tools, plans.calls[distinct // tools])
        self._used = csr_array((np.ones(len(distinct)), places), shape=(tools, tools)) * scale
        """How often a call of the column's tool uses an output of the row's."""
        self.frequency = training.frequency
        used = np.asarray(self._used.sum(axis=0)).ravel()
        self.producers = (used / (self.frequency + 1)).astype(np.float32)
        # Of a thousand calls, so that the feature does not grow as demonstrations are added.
        share = self.frequency * np.float32(1000 / max(float(self.frequency.sum()), 1.0))
        self._log_frequency: Matrix = np.log1p(share)
        self.rows = training.cached(self._make)

    def _make(self, tool: int) -> Matrix:
        both = self._both[[tool]].toarray()[0]
        expected = self._share[tool] * self._share / max(self._total, 1e-9)
        together = np.log((both + 0.3 + expected) / (expected + 0.3))
        used_by = self._used[[tool]].toarray()[0] / (self.frequency + 1)
        return np.array([together, used_by], np.float32)

    def start(self, query: Query, out: Matrix) -> BlockState:
        """No call yet: every output that a call uses is missing."""
        out[0] = self._log_frequency
        out[1] = self.producers
        return _RelationsState(self.rows)


class _RelationsState(NamedTuple):
    relations: Callable[[int], Matrix]
    sum: Matrix | float = 0.0
    called: int = 0

    def call(self, event: CallEvent, rows: Matrix) -> _RelationsState:
        if event.tool < 0:  # after a call of an unknown tool, both are 0
            rows[2:] = 0
            return self
        together, rows[3] = self.relations(event.tool)
        state = self
        if event.count == 1:
            rows[1] -= rows[3]
            state = _RelationsState(self.relations, self.sum + together, self.called + 1)
        np.multiply(state.sum, 1 / state.called, out=rows[2])
        return state

    def write(self, rows: Matrix) -> None:
        """Every call wrote already."""
