"""Which tools were called, how often, and how far the plan has come."""

from __future__ import annotations

from typing import NamedTuple

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query
from dtdr.rankers.nn import Matrix

_MAX_STEPS, _MAX_CALLS = 10, 6
"""More steps, and more calls of one tool, count as this many."""


class History(Block):
    """Counts of the calls made; nothing is learned."""

    name = "history"
    about = "calls made so far"
    names = (
        *("last", "called_once", "called_twice", "called_often"),
        *("end", "steps", "steps_at_end"),
    )
    text_features = ("last", "called_once", "called_twice", "steps")

    def start(self, query: Query, out: Matrix) -> BlockState:
        """No call yet."""
        out[4, -1] = 1
        return _HistoryState(0)


class _HistoryState(NamedTuple):
    steps: int

    def call(self, event: CallEvent, rows: Matrix) -> _HistoryState:
        rows[0] = 0
        column, count = event.tool, event.count
        if column >= 0:
            rows[0, column], rows[1, column], rows[2, column] = 1, count == 1, count == 2
            if count > 2:
                rows[3, column] = min(count, _MAX_CALLS) * 0.3
        return _HistoryState(self.steps + 1)

    def write(self, rows: Matrix) -> None:
        rows[5] = rows[6, -1] = min(self.steps, _MAX_STEPS) * 0.2
