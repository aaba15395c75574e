"""Tools that followed the last calls in the demonstrations, in the order of the calls."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.observations import REMOVED
from dtdr.rankers.markov import MarkovChains, flatten
from dtdr.rankers.nn import Matrix

COUNTS = "after_two"
"""The feature that ranks queries without a known word."""


class Chain(Block):
    """Markov chains of the orders 0 to 2, smoothed as ``markov-2`` is, and MCP servers.

    This block does not read the query.
    """

    name = "chain"
    about = "what followed the last two calls"
    names = (COUNTS, "after_last", "after_two_count", "same_server", "server_called")
    text_features = ("same_server", "server_called")
    prior: ClassVar = {COUNTS: 0.4}
    shortlist: ClassVar = {COUNTS: 0.5}

    def __init__(self, training: TrainingSet) -> None:
        data = training.data
        plans = [[tool for tool in data.plan(row) if tool != REMOVED] for row in range(len(data))]
        self.chain = MarkovChains(flatten(plans, data.tools), 2, data.tools)
        self.servers = training.tools.servers
        self.read = training.cached(self._read)

    def _read(self, calls: tuple[int, ...]) -> tuple[Matrix, Matrix, float]:
        """Log probabilities after the last two calls and after one; what the two were counted."""
        chain, rows = self.chain, []
        path = chain.path(0, calls)
        row = np.full(chain.tools, 1 / chain.tools)
        for node in path:
            row = chain.smooth(node, row)
            rows.append(np.log(row).astype(np.float32))
        count = chain.totals[path[2]] if len(path) > 2 else 0.0
        return rows[-1], rows[min(1, len(rows) - 1)], float(count)

    def start(self, query: Query, out: Matrix) -> BlockState:
        """The state of no call."""
        return _ChainState(self)


class _ChainState(NamedTuple):
    chain: Chain
    calls: tuple[int, ...] = ()

    def call(self, event: CallEvent, rows: Matrix) -> _ChainState:
        servers = self.chain.servers
        if event.tool < 0:
            rows[3] = 0
        else:
            np.equal(servers, servers[event.tool], out=rows[3], casting="unsafe")
            np.maximum(rows[4], rows[3], out=rows[4])
        return _ChainState(self.chain, (*self.calls[-1:], event.tool))

    def write(self, rows: Matrix) -> None:
        both, single, count = self.chain.read(self.calls)
        rows[0], rows[1] = both, single
        rows[2].fill(min(count, 20.0) * 0.1)
