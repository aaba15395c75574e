"""The features of every tool along the calls of one plan."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from dtdr.rankers.dtdr_f.blocks.block import Begin, BlockState, CallEvent
from dtdr.rankers.dtdr_f.observations import NO_OUTCOME, Outcome
from dtdr.rankers.dtdr_f.queries import QueryFeatures
from dtdr.rankers.nn import Matrix


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """All that is computed once a query.

    Attributes:
        features: what the query says.
        table: shape (features + 1, tools): before any call; the last row is ones.
        begins: how the state of each block that changes with calls begins, and its rows.
        familiarity: how much the query is like those of the demonstrations.
    """

    features: QueryFeatures
    table: Matrix
    begins: list[tuple[Begin, slice]]
    familiarity: float


class StepFeatures:
    """The features of every tool along the calls of one plan.

    Args:
        query: shared and never written.

    Attributes:
        table: shape (features + 1, tools); current after ``write``.
        calls: how many were made.
    """

    def __init__(self, query: PreparedQuery) -> None:
        self.query = query
        self.table = table = query.table.copy()
        states: list[BlockState] = [begin(table[rows]) for begin, rows in query.begins]
        self._calls = [state.call for state in states]
        self._writes = [state.write for state in states]
        self._called: dict[int, int] = {}
        self.calls = 0

    def call(self, tool: int, outcome: Outcome = NO_OUTCOME, *, is_parallel: bool = False) -> None:
        """One more call; an index outside the tools is an unknown one, and so is the end."""
        self.calls += 1
        if 0 <= tool < self.table.shape[1] - 1:
            count = self._called[tool] = self._called.get(tool, 0) + 1
            event = CallEvent(tool, count, outcome, is_parallel)
        else:
            event = CallEvent(-1, 0, outcome, is_parallel)
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
