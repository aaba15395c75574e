"""What followed the last calls in the demonstrations, in the order that they were made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from dtdr.rankers.dtdr_f.blocks.block import (
    Begin,
    Block,
    CallEvent,
    Query,
    ToolRows,
    TrainingSet,
    View,
)
from dtdr.rankers.dtdr_f.demonstrations import REMOVED
from dtdr.rankers.nn import Matrix

COUNTS = "after_two"
"""The feature that ranks where the query tells nothing."""
_UNIFORM = 0.5
"""Calls that all tools share evenly in addition to those that were made."""


class Chain(Block):
    """Markov chains of the orders 0 to 2, each smoothed by the one below, and MCP servers.

    Witten and Bell's smoothing (1991): a context counts as many further calls as it has different
    followers, and these follow the shorter context. The query is not looked at.

    Attributes:
        rows: of a tool, shape (1, tools): log probability of each tool after it.
    """

    name = "chain"
    about = "what followed the last two calls"
    names = (COUNTS, "after_last", "after_two_count", "same_server", "server_called")
    text_features = ("same_server", "server_called")
    prior: ClassVar = {COUNTS: 0.4}
    shortlist: ClassVar = {COUNTS: 0.5}

    rows: ToolRows

    def __init__(self, training: TrainingSet) -> None:
        plans = training.data
        self.first = size = plans.tools
        self.servers = training.tools.servers
        calls = plans.calls.astype(np.int64)
        first = np.zeros(len(calls), np.bool_)
        first[plans.starts[:-1][plans.lengths > 0]] = True
        before = np.where(first, self.first, np.append(self.first, calls[:-1])[: len(calls)])
        frequency = plans.frequency + _UNIFORM / size
        frequency[-1] += plans.weights.sum()
        self.base = frequency / frequency.sum()
        # A plan's start, and every call, with what came next.
        follows = np.concatenate([calls, plans.following()[_ends(plans.starts)]])
        previous = np.concatenate([before, calls[_ends(plans.starts)]])
        earlier = np.concatenate([
            np.where(first, self.first, np.append(self.first, before[:-1])[: len(calls)]),
            before[_ends(plans.starts)],
        ])  # fmt: skip
        weights = np.concatenate([plans.call_weights, plans.weights[plans.lengths > 0]])
        known = (follows != REMOVED) & (previous != REMOVED) & (earlier != REMOVED)
        follows, previous, earlier = follows[known], previous[known], earlier[known]
        empty = plans.weights[plans.lengths == 0].sum()
        self._singles = csr_array(
            (
                np.append(weights[known], empty),
                (np.append(previous, size), np.append(follows, size - 1)),
            ),
            shape=(size + 1, size),
        )
        self._singles.eliminate_zeros()
        self._contexts, place = np.unique(earlier * (size + 1) + previous, return_inverse=True)
        shape = (len(self._contexts), size)
        self._pairs = csr_array((weights[known], (place, follows)), shape=shape)
        self.rows = ToolRows(self._make, size + 2)

    def _make(self, tools: Sequence[int]) -> Matrix:
        rows = [_mix(self._singles, tool, self.base)[0] for tool in tools]
        return np.stack(rows)[:, None].astype(np.float32)

    def after_two(self, earlier: int, last: int) -> tuple[Matrix, Matrix, float]:
        """Log probabilities after two calls and after the last one; what the two were counted."""
        single = self.rows[last][0]
        key = earlier * (self.first + 1) + last
        place = int(self._contexts.searchsorted(key))
        if place == len(self._contexts) or self._contexts[place] != key:
            return np.log(single), np.log(single), 0.0
        both, count = _mix(self._pairs, place, single)
        return np.log(both).astype(np.float32), np.log(single), count

    def start(self, query: Query, out: Matrix) -> Begin:
        """What comes first in the demonstrations."""
        first = np.log(self.rows[self.first][0])
        out[0] = out[1] = query.view.of(first)
        return partial(_ChainState, self, query.view)


class _ChainState:
    __slots__ = ("_chain", "_earlier", "_last", "_rows", "_view")

    def __init__(self, chain: Chain, view: View, rows: Matrix) -> None:
        self._chain, self._view, self._rows = chain, view, rows
        self._earlier = self._last = chain.first

    def call(self, event: CallEvent) -> None:
        self._earlier, self._last = self._last, event.tool
        chain, view, rows = self._chain, self._view, self._rows
        if event.tool < 0:
            rows[3] = 0
            return
        servers = chain.servers if view.tools is None else chain.servers[view.tools]
        np.equal(servers, chain.servers[event.tool], out=rows[3], casting="unsafe")
        np.maximum(rows[4], rows[3], out=rows[4])

    def write(self) -> None:
        chain, view, rows = self._chain, self._view, self._rows
        if self._last == chain.first:
            return
        if self._last < 0:  # nothing is known of what follows an unknown tool
            rows[0] = rows[1] = view.of(np.log(chain.base).astype(np.float32))
            rows[2] = 0
            return
        both, single, count = chain.after_two(self._earlier, self._last)
        rows[0], rows[1] = view.of(both), view.of(single)
        rows[2].fill(min(count, 20.0) * 0.1)


def _ends(starts: np.ndarray) -> np.ndarray:
    """Positions of the last call of each plan that has one."""
    ends: np.ndarray = starts[1:][np.diff(starts) > 0] - 1
    return ends


def _mix(counts: csr_array, row: int, below: np.ndarray) -> tuple[np.ndarray, float]:
    """Probabilities by the counts of a row and those below, and the counts' sum."""
    part = slice(counts.indptr[row], counts.indptr[row + 1])
    values = counts.data[part]
    if not len(values):
        return below.astype(np.float32), 0.0
    total = float(values.sum())
    mixed = below * (len(values) / (total + len(values)))
    mixed[counts.indices[part]] += values / (total + len(values))
    return mixed.astype(np.float32), total
