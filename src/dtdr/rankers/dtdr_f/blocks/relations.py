"""What plans say about pairs of tools: which are in one plan, which uses whose output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from dtdr.rankers.dtdr_f.blocks.block import Begin, Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.observations import REMOVED
from dtdr.rankers.nn import Matrix


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

    def start(self, query: Query, out: Matrix) -> Begin:
        """No call yet: every output that a call uses is missing."""
        out[0] = self._log_frequency
        out[1] = self.producers
        return partial(_RelationsState, self.rows)


class _RelationsState(BlockState):
    def __init__(self, relations: Callable[[int], Matrix], rows: Matrix) -> None:
        self._relations = relations
        _, self._missing, self._together, self._uses_last = rows
        self._sum = np.zeros_like(self._together)
        self._called = 0

    def call(self, event: CallEvent) -> None:
        if event.tool < 0:  # after a call of an unknown tool, both are 0
            self._together.fill(0)
            self._uses_last.fill(0)
            return
        together, used_by = self._relations(event.tool)
        self._uses_last[:] = used_by
        if event.count == 1:
            self._called += 1
            self._missing -= used_by
            self._sum += together
        np.multiply(self._sum, 1 / self._called, out=self._together)
