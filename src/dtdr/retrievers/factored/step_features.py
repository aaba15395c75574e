"""The features of every tool along the calls of one plan."""

from __future__ import annotations

from copy import copy

import numpy as np

from dtdr.retrievers.factored.blocks.base import BlockState, CallEvent
from dtdr.retrievers.factored.fitted_blocks import FittedBlocks, PreparedQuery
from dtdr.retrievers.factored.observations import NO_OUTCOME, Outcome
from dtdr.retrievers.nn import Indices, Matrix

_NOTHING = np.empty((0, 0), np.float32)


class StepFeatures:
    """The features of every tool in view along the calls of one plan.

    Args:
        blocks: shared and never written.
        query: prepared by them.

    Attributes:
        table: shape (features + 1, tools in view); current after ``write``.
        calls: how many were made.
        is_told: whether more is known of the run than names.
    """

    __slots__ = (
        "_called",
        "_calls",
        "_described",
        "_describes",
        "_end",
        "_places",
        "_states",
        "_writes",
        "calls",
        "is_told",
        "layout",
        "query",
        "table",
    )

    def __init__(self, blocks: FittedBlocks, query: PreparedQuery) -> None:
        self.layout, self.query = blocks.layout, query
        self.table = table = query.table.copy()
        self._states: list[BlockState] = [begin(table[rows]) for begin, rows, _ in query.begins]
        self._calls = [state.call for state in self._states]
        self._writes = [state.write for state in self._states]
        self._describes = [
            (state.describe, describes)
            for state, (_, _, describes) in zip(self._states, query.begins, strict=True)
            if describes.start < describes.stop
        ]
        self._described = _NOTHING
        self._called: dict[int, int] = {}
        self.calls = 0
        self.is_told = query.is_told
        self._end = len(blocks.training.tools) - 1
        self._places = query.view.places

    def call(self, tool: int, outcome: Outcome = NO_OUTCOME) -> None:
        """One more call; an index outside the tools is an unknown one, and so is the end."""
        self.calls += 1
        if outcome is not NO_OUTCOME:
            self.is_told = True
        if 0 <= tool < self._end:
            count = self._called[tool] = self._called.get(tool, 0) + 1
            column = tool if self._places is None else self._places.get(tool, -1)
            event = CallEvent(tool, column, count, outcome)
        else:
            event = CallEvent(-1, -1, 0, outcome)
        for add in self._calls:
            add(event)

    def write(self) -> Matrix:
        """Bring the table up to date; it is this object's own, to be read before the next call."""
        for write in self._writes:
            write()
        return self.table

    def describe(self, columns: Indices) -> Matrix:
        """Features of some tools as if they had no demonstrations; the last row is ones.

        Returns:
            Shape (features + 1, columns): this object's own, to be read before the next step.
        """
        layout = self.layout
        prior: Matrix = np.exp(self.table[-1 if layout.prior is None else layout.prior])
        prior *= 1 / np.add.reduce(prior)
        if self._described.shape[1] != len(columns):
            self._described = np.ones((len(layout.new_tool_names) + 1, len(columns)), np.float32)
        described = self._described
        for describe, rows in self._describes:
            describe(columns, prior, described[rows])
        return described

    def without(self, block: int, means: Matrix, described: Matrix) -> StepFeatures:
        """The features of this step with one block left out; to be ranked, not to be told of calls.

        Args:
            block: its position.
            means: shape (features,): what its features are for every tool instead.
            described: the same of those of new tools.
        """
        other = copy(self)
        rows, new = self.layout.rows[block], self.layout.new_tool_rows[block]
        other.table = self.write().copy()
        other.table[rows] = means[rows, None]
        other._writes = []  # they would write into the table of this step

        def describe(columns: Indices, prior: Matrix, out: Matrix) -> None:
            out[:] = described[new, None]

        other._describes = [
            (describe if rows == new else write, rows) for write, rows in self._describes
        ]
        other._described = _NOTHING
        return other
