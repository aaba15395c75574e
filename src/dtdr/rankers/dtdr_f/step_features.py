"""The features of every tool along the calls of one plan."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.blocks.block import Begin, BlockState, CallEvent, View
from dtdr.rankers.dtdr_f.observations import NO_OUTCOME, Outcome
from dtdr.rankers.dtdr_f.queries import QueryFeatures
from dtdr.rankers.nn import Matrix


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """All that is computed once a query.

    Attributes:
        features: what the query says.
        view: the tools in view; "tools" below counts these only.
        table: shape (features + 1, tools): before any call; the last row is ones.
        begins: how the state of each block that changes with calls begins, and its rows.
        rest: shape (all tools,): how those out of view share what is left for them; None if there
            are none.
        familiarity: how much the query is like those of the demonstrations.
        tools: size of the vocabulary.
    """

    features: QueryFeatures
    view: View
    table: Matrix
    begins: list[tuple[Begin, slice]]
    rest: npt.NDArray[np.float64] | None
    familiarity: float
    tools: int


class StepFeatures:
    """The features of every tool in view along the calls of one plan.

    Args:
        query: shared and never written.

    Attributes:
        table: shape (features + 1, tools in view); current after ``write``.
        calls: how many were made.
    """

    __slots__ = ("_called", "_calls", "_end", "_places", "_writes", "calls", "query", "table")

    def __init__(self, query: PreparedQuery) -> None:
        self.query = query
        self.table = table = query.table.copy()
        states: list[BlockState] = [begin(table[rows]) for begin, rows in query.begins]
        self._calls = [state.call for state in states]
        self._writes = [state.write for state in states]
        self._called: dict[int, int] = {}
        self.calls = 0
        self._end = query.tools - 1
        self._places = query.view.places

    def call(self, tool: int, outcome: Outcome = NO_OUTCOME, *, is_parallel: bool = False) -> None:
        """One more call; an index outside the tools is an unknown one, and so is the end."""
        self.calls += 1
        if 0 <= tool < self._end:
            count = self._called[tool] = self._called.get(tool, 0) + 1
            event = CallEvent(tool, self._places.get(tool, -1), count, outcome, is_parallel)
        else:
            event = CallEvent(-1, -1, 0, outcome, is_parallel)
        for add in self._calls:
            add(event)

    def write(self) -> Matrix:
        """Bring the table up to date; it is this object's own, to be read before the next call."""
        for write in self._writes:
            write()
        return self.table

    def without(self, rows: slice, means: Matrix) -> StepFeatures:
        """The features of this step with a block's at their means; to be ranked, not called on.

        Args:
            rows: of the block.
            means: shape (features,).
        """
        other = copy(self)
        other.table = self.write().copy()
        other.table[rows] = means[rows, None]
        other._writes = []  # they would write into the table of this step
        return other
