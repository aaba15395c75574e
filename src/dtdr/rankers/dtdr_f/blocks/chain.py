"""Tools that followed the last calls in the demonstrations, in the order of the calls.

It knows in which order the demonstrations call tools, and the servers in the names of tools; it
reads neither the query nor outputs. Counts of what followed the last two calls are smoothed with
counts of what followed the last one, and these with how often each tool is called at all: what was
seen seldom is trusted little.

Example, from the bundled set: after the call ``search_trains`` of a run, ``book_train`` comes next
with probability .67 (``after_two`` is its logarithm, -0.40), the end of plan with .015 (-4.20), and
``expense_report`` with .00005 (-9.98). More than 20 demonstrations began like this, so
``after_two_count`` is 20 x 0.1 = 2 for all tools.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.observations import REMOVED
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.markov import MarkovChains, flatten
from dtdr.rankers.nn import Matrix

_MOST_COUNTED, _COUNT = 20.0, 0.1
"""Further demonstrations add nothing to ``after_two_count``, and the unit that keeps it near 1."""


class ChainRows(FeatureRows):
    """Tools that followed the last calls, and servers."""

    after_two: Matrix  # log probability after the last two calls
    after_last: Matrix  # log probability after the last call
    after_two_count: Matrix  # how often demonstrations made the last two calls in a row
    same_server: Matrix  # 1 for tools of the server of the last call
    server_called: Matrix  # 1 for tools of any server that was called


class Chain(Block):
    """Markov chains of the orders 0 to 2, smoothed as ``markov-2`` is, and MCP servers."""

    name = "chain"
    about = "what followed the last two calls"
    rows = ChainRows
    text_features = ("same_server", "server_called")
    prior: ClassVar = {"after_two": 0.4}
    shortlist: ClassVar = {"after_two": 0.5}

    def __init__(self, training: TrainingSet) -> None:
        data = training.data
        plans = [[tool for tool in data.plan(row) if tool != REMOVED] for row in range(len(data))]
        self.chain = MarkovChains(flatten(plans, data.tools), 2, data.tools)
        self.servers = training.tools.servers
        self.read = training.cached(self._read)

    def _read(self, calls: tuple[int, ...]) -> tuple[Matrix, Matrix, float]:
        """Log probabilities after the last two calls and after the last one; count of the two.

        Where demonstrations never made both calls in a row, the longest end of them counts.
        """
        chain = self.chain
        path = chain.path(0, calls)
        share = np.full(chain.tools, 1 / chain.tools)
        by_order = []
        for node in path:
            share = chain.smooth(node, share)
            by_order.append(np.log(share).astype(np.float32))
        after_two, after_last = by_order[-1], by_order[min(1, len(by_order) - 1)]
        count = chain.totals[path[2]] if len(path) > 2 else 0.0
        return after_two, after_last, float(count)

    def start(self, query: Query, rows: ChainRows) -> BlockState:
        """The state of no call."""
        return _ChainState(self)


class _ChainState(NamedTuple):
    chain: Chain
    calls: tuple[int, ...] = ()

    def call(self, event: CallEvent, rows: ChainRows) -> _ChainState:
        servers = self.chain.servers
        if event.tool < 0:
            rows.same_server.fill(0)
        else:
            np.equal(servers, servers[event.tool], out=rows.same_server, casting="unsafe")
            np.maximum(rows.server_called, rows.same_server, out=rows.server_called)
        return _ChainState(self.chain, (*self.calls[-1:], event.tool))

    def write(self, rows: ChainRows) -> None:
        rows.after_two[:], rows.after_last[:], count = self.chain.read(self.calls)
        rows.after_two_count.fill(min(count, _MOST_COUNTED) * _COUNT)
