"""Which tools were called, how often, and how far the plan has come.

It knows the calls of this turn and nothing else: no words, no outputs, nothing learned. The ranker
reads from it that a tool was just called, that agents call some tools again and again, and that a
long plan soon ends.

Example: after the calls ``search``, ``search``, ``book``, the feature ``last`` is 1 for ``book``,
``called_once`` is 1 for ``book`` and ``called_twice`` is 1 for ``search``. After a third ``search``
it has 3 x 0.3 = 0.9 in ``called_often`` instead. ``steps`` is 3 x 0.2 = 0.6 for all tools, and
``steps_at_end`` is 0.6 for the end of plan and 0 for tools: the ranker learns how long plans are.
"""

from __future__ import annotations

from typing import NamedTuple

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix

_MAX_STEPS, _MAX_CALLS = 10, 6
"""More steps, and more calls of one tool, count as this many."""
_STEP, _CALL = 0.2, 0.3
"""Units of counts of steps and of calls: they keep features near 1. The ranker standardises
features, so its rankings hardly depend on units."""


class HistoryRows(FeatureRows):
    """Counts of the calls made."""

    last: Matrix  # 1 for the tool of the last call
    called_once: Matrix  # 1 for a tool that was called once
    called_twice: Matrix  # 1 for a tool that was called twice
    called_often: Matrix  # number of calls of a tool that was called more often
    end: Matrix  # 1 for the end of plan
    steps: Matrix  # number of calls
    steps_at_end: Matrix  # the same for the end of plan alone


class History(Block):
    """Counts of the calls made; nothing is learned."""

    name = "history"
    about = "calls made so far"
    rows = HistoryRows
    text_features = ("last", "called_once", "called_twice", "steps")

    def start(self, query: Query, rows: HistoryRows) -> BlockState:
        """No call yet."""
        rows.end[-1] = 1
        return _HistoryState(0)


class _HistoryState(NamedTuple):
    steps: int

    def call(self, event: CallEvent, rows: HistoryRows) -> _HistoryState:
        rows.last.fill(0)
        tool, count = event.tool, event.calls
        if tool >= 0:
            rows.last[tool] = 1
            rows.called_once[tool] = count == 1
            rows.called_twice[tool] = count == 2
            if count > 2:
                rows.called_often[tool] = min(count, _MAX_CALLS) * _CALL
        return _HistoryState(self.steps + 1)

    def write(self, rows: HistoryRows) -> None:
        steps = min(self.steps, _MAX_STEPS) * _STEP
        rows.steps.fill(steps)
        rows.steps_at_end[-1] = steps
