"""Which tools were called, how often, and how far the plan has come."""

from __future__ import annotations

from dtdr.rankers.dtdr_f.blocks.block import Begin, Block, CallEvent, Query
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

    def start(self, query: Query, out: Matrix) -> Begin:
        """No call yet."""
        out[4, -1] = 1
        return _HistoryState


class _HistoryState:
    def __init__(self, rows: Matrix) -> None:
        self._rows = rows
        self._last, self._once, self._twice, self._often = rows[:4]
        self._steps = 0

    def call(self, event: CallEvent) -> None:
        self._steps += 1
        self._last.fill(0)
        column = event.tool
        if column < 0:
            return
        self._last[column] = 1
        self._once[column] = event.count == 1
        self._twice[column] = event.count == 2
        if event.count > 2:
            self._often[column] = min(event.count, _MAX_CALLS) * 0.3

    def write(self) -> None:
        steps = min(self._steps, _MAX_STEPS) * 0.2
        self._rows[5] = steps
        self._rows[6, -1] = steps
