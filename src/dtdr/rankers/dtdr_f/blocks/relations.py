"""Pairs of tools in plans: which are in one plan, which uses whose output.

It knows, of the demonstrated plans, how often each tool is called, which two tools are in one plan,
and which call uses the output of which. It reads no words. The ranker learns from it that a tool
must wait for the output that it needs, and that some tools go together.

Example, from the bundled set: a call of ``book_train`` uses the output of other calls .994 times on
average, so ``producers_missing`` is .994 before the first call. After ``search_trains`` it is 0,
and ``uses_last`` is .994. Both are in one plan 9.2 times as often as if they were independent:
``together`` is log(1 + 9.2) = 2.32. For ``expense_report``, which is 0.7 times as often in a plan
with ``search_trains``, it is .53.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.observations import REMOVED
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix
from dtdr.text.sparse import csr_array

_FEW_PLANS = 0.3
"""Plans added to those with two tools, and to those expected by chance: .1 and 1 are within .003 of
MRR on T-Eval."""
_CALLS = 1000
"""Frequencies are of a thousand calls, so that the feature does not grow with demonstrations."""


class RelationsRows(FeatureRows):
    """Frequencies of tools and of pairs of tools."""

    log_frequency: Matrix  # log of 1 + calls of the tool, of a thousand
    producers_missing: Matrix  # outputs that a call of it uses on average, and no call gave yet
    together: Matrix  # mean, over the tools called, of how often both are in one plan
    uses_last: Matrix  # how often a call of it uses the output of the last call's tool


_PAIRS = RelationsRows.span("together", "uses_last")


class Relations(Block):
    """Frequency, dependencies and co-occurrence; sparse, so that only pairs that occur take memory.

    Attributes:
        frequency: shape (tools,): scaled number of calls of each tool.
        producers: shape (tools,): outputs of other tools that a call of each uses on average.
        pairs: of a tool, shape (2, tools): pointwise mutual information of being in one plan with
            each other tool; and how often a call of that uses its output.
    """

    name = "relations"
    about = "tools of one plan, and outputs used"
    rows = RelationsRows

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
        used_by = (distinct % tools, plans.calls[distinct // tools])
        self._used = csr_array((np.ones(len(distinct)), used_by), shape=(tools, tools)) * scale
        """How often a call of the column's tool uses an output of the row's."""
        self.frequency = training.frequency
        used = np.asarray(self._used.sum(axis=0)).ravel()
        self.producers = (used / (self.frequency + 1)).astype(np.float32)
        share = self.frequency * np.float32(_CALLS / max(float(self.frequency.sum()), 1.0))
        self._log_frequency: Matrix = np.log1p(share)
        self.pairs = training.cached(self._pairs)

    def _pairs(self, tool: int) -> Matrix:
        both = self._both[[tool]].toarray()[0]
        # As many plans would have both if they were called independently of each other.
        expected = self._share[tool] * self._share / max(self._total, 1e-9)
        together = np.log((both + _FEW_PLANS + expected) / (expected + _FEW_PLANS))
        used_by = self._used[[tool]].toarray()[0] / (self.frequency + 1)
        return np.array([together, used_by], np.float32)

    def start(self, query: Query, rows: RelationsRows) -> BlockState:
        """No call yet: every output that a call uses is missing."""
        rows.log_frequency[:] = self._log_frequency
        rows.producers_missing[:] = self.producers
        return _RelationsState(self.pairs)


class _RelationsState(NamedTuple):
    """The tools called so far.

    Attributes:
        pairs: see ``Relations``.
        sum: of how often each tool is in one plan with each tool that was called.
        called: how many tools were called.
    """

    pairs: Callable[[int], Matrix]
    sum: Matrix | float = 0.0
    called: int = 0

    def call(self, event: CallEvent, rows: RelationsRows) -> _RelationsState:
        if event.tool < 0:  # after a call of an unknown tool, both are 0
            rows.table[_PAIRS] = 0
            return self
        together, rows.uses_last[:] = self.pairs(event.tool)
        state = self
        if event.calls == 1:
            rows.producers_missing -= rows.uses_last
            state = _RelationsState(self.pairs, self.sum + together, self.called + 1)
        np.multiply(state.sum, 1 / state.called, out=rows.together)
        return state

    def write(self, rows: RelationsRows) -> None:
        """Every call wrote already."""
