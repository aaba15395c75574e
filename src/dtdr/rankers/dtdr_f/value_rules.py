"""Conditions on one value that say which tool a run still calls, such as an amount above 10,000.

Several tools can be due at once. Which of them comes first is learned from the steps at which two
were due and one was called.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.value_pairs import likelihood
from dtdr.rankers.nn import Indices, Matrix

_MOST_RULES = 3
"""Rules of a tool."""
_LEAST_CASES, _LEAST_GROUPS = 5, 3
"""Runs that call the tool, runs on either side of a condition, and groups that call the tool."""
_LEAST_SHARE, _LEAST_RATIO = 0.25, 4.0
"""Share of the runs in which a condition is true that call the tool, and that share by the one of
the other runs."""
_LEAST_GAIN = 12.0
"""Nats of log likelihood that a condition adds. The best of some e^9 places to cut the values
adds 9 by chance; with 7, tau-bench's airline had .013 less top-1."""
_ABOVE_ALL = 1e11
"""Above every value."""
_LEAST_SUM = np.float32(1e-9)


class Rules(NamedTuple):
    """Conditions ``low < value <= high``, each for a tool.

    Attributes:
        columns: shape (n,): of the values.
        counts: shape (n,): the columns that count the calls of the tools.
        low, high: shape (n,).
        are_left: shape (n,): whether the value is how many items are left, so that its tool is due
            until none is.
        behind: shape (k, k), of the k tools with conditions in the order of ``counts``: log
            probability that the second tool does not wait for the first, where both are due; on
            the diagonal, that a run calls a tool that is due.
    """

    columns: Indices
    counts: Indices
    low: Matrix
    high: Matrix
    are_left: npt.NDArray[np.bool_]
    behind: Matrix

    @property
    def best(self) -> Indices:
        """The best condition of each tool that has some; shape (k,)."""
        best: Indices = np.unique(self.counts, return_index=True)[1]
        return best

    def read(self, table: Matrix) -> Matrix:
        """1 where a condition is true and its tool was not called for it, else 0; shape (rows, n).

        Args:
            table: shape (rows, columns), or of one row.
        """
        values, calls = (table.take(places, axis=-1) for places in (self.columns, self.counts))
        is_open = (calls == 0) | self.are_left
        is_due = (values > self.low) & (values <= self.high) & is_open
        due: Matrix = is_due.astype(np.float32)
        return due

    def with_order(self, due: Matrix, called: Indices, weights: Matrix, runs: Indices) -> Rules:
        """These conditions, with what comes first among tools that are due at once.

        A tool that is due until the end and never called, because another one replaces it, is
        behind whatever is called. Shares of who was first do better than votes, which run in
        circles.

        Args:
            due: shape (steps, n): from ``read``.
            called: shape (steps,): the column that counts the tool that was called next.
            weights: shape (steps,): how much a step counts.
            runs: shape (steps,): the run of each step; steps of a run stand together.
        """
        due = due[:, self.best]
        taken = due * (self.counts[self.best] == called[:, None])
        steps = (taken * weights[:, None]).T @ due
        starts = np.flatnonzero(np.diff(runs, prepend=-1))
        cases, calls = (np.maximum.reduceat(part, starts).sum(axis=0) for part in (due, taken))
        goes = 1 - steps / (steps + steps.T + 1)
        np.fill_diagonal(goes, (calls + 0.5) / (cases + 1))
        return self._replace(behind=np.log(goes))

    def first(self, due: Matrix) -> Matrix:
        """How likely each tool comes first among those that are due by their best condition.

        Args:
            due: shape (rows, k): 1 where a tool is due.

        Returns:
            Shape (rows, k): each row sums to 1, or is 0 where no tool is due.
        """
        first: Matrix = due * np.exp(due @ self.behind)
        first /= np.maximum(first.sum(axis=1, keepdims=True), _LEAST_SUM)
        return first


_NO_PLACES, _NO_VALUES = np.empty(0, np.intp), np.empty(0, np.float32)
NO_RULES = Rules(
    _NO_PLACES, _NO_PLACES, _NO_VALUES, _NO_VALUES, np.empty(0, bool), np.empty((0, 0), np.float32)
)


def find_rules(
    table: Matrix,
    columns: Indices,
    missing: np.float32,
    counts: Indices,
    runs: Indices,
    lowered_by: Indices,
) -> Rules:
    """The conditions that say best whether a run calls a tool that it has not called yet.

    A run is one case of a tool: all that was known when the tool was first called, or at the end of
    the run. So it does not matter at which step the agent obeys a rule.

    Args:
        table: shape (steps, columns).
        columns: those with values.
        missing: the value of a number that is not known.
        counts: shape (tools,): columns that count the calls of each tool.
        runs: shape (2, steps): the run of each step, and its group; steps of a run stand together.
        lowered_by: shape (columns,): the column that was taken from each value, or -1.
    """
    starts = np.flatnonzero(np.diff(runs[0], prepend=-1))
    calls = table[:, counts]
    is_called = np.maximum.reduceat(calls, starts, axis=0) > 0
    steps = np.where(calls == 0, np.arange(len(table))[:, None], -1)
    last = np.maximum.reduceat(steps, starts, axis=0)
    places = _Places(table[:, columns], missing)
    picks: list[tuple[int, int, float, float, bool]] = []
    for tool, count in enumerate(counts.tolist()):
        known = last[:, tool] >= 0
        cases, taken = last[known, tool], is_called[known, tool]
        if taken.sum() < _LEAST_CASES or len(np.unique(runs[1, cases[taken]])) < _LEAST_GROUPS:
            continue
        gains, bounds = places.best(cases, taken)
        # Until the first call, a value and what is left of it say the same.
        for at in np.lexsort((lowered_by != count, -gains))[:_MOST_RULES].tolist():
            if gains[at] > _LEAST_GAIN:
                low, high = bounds[:, at].tolist()
                picks.append((int(columns[at]), count, low, high, lowered_by[at] == count))
    picked = np.array(picks, np.float64).reshape(-1, 5).T
    tools = len(np.unique(picked[1]))
    columns, counts = picked[:2].astype(np.intp)
    low, high = picked[2:4].astype(np.float32)
    return Rules(columns, counts, low, high, picked[4] > 0, np.zeros((tools, tools), np.float32))


class _Places:
    """The distinct values of each column, one column after the other.

    Args:
        numbers: shape (steps, columns).
        missing: what is not known.
    """

    def __init__(self, numbers: Matrix, missing: np.float32) -> None:
        distinct, places = [], np.empty(numbers.shape, np.int64)
        self._starts = np.zeros(numbers.shape[1] + 1, np.intp)
        for at, column in enumerate(numbers.T):
            values, order = np.unique(column, return_inverse=True)
            places[:, at] = order + self._starts[at]
            self._starts[at + 1] = self._starts[at] + len(values)
            distinct.append(values)
        self._places, self._missing = places, missing
        self._values = np.concatenate([*distinct, np.zeros(1, np.float32)])
        self._column = np.repeat(np.arange(len(distinct)), np.diff(self._starts))

    def best(
        self, cases: Indices, taken: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.float64], Matrix]:
        """The gain of each column's best condition, 0 without one, and its two bounds.

        Args:
            cases: shape (n,): steps.
            taken: shape (n,): whether the run calls the tool.
        """
        starts = self._starts[:-1]
        both = np.stack([self._count(cases), self._count(cases[taken])], axis=1)
        below = both.cumsum(axis=0)
        below -= (below[starts] - both[starts])[self._column]
        size, called = below[self._starts[1:] - 1][self._column].T
        inside, within = below.T
        outside, without = size - inside, called - within
        share, other = within / np.maximum(inside, 1), without / np.maximum(outside, 1)
        is_below, is_above = (
            (some >= _LEAST_CASES) & (inner >= _LEAST_SHARE) & (inner >= _LEAST_RATIO * outer)
            for some, inner, outer in ((within, share, other), (without, other, share))
        )
        is_rule = (is_below | is_above) & (np.minimum(inside, outside) >= _LEAST_CASES)
        gains = likelihood(inside, within) + likelihood(outside, without)
        gains = np.where(is_rule, gains - likelihood(size, called), 0.0)
        best = np.maximum.reduceat(gains, starts)
        ends = np.flatnonzero(gains == best[self._column])
        ends = ends[np.unique(self._column[ends], return_index=True)[1]]
        following = self._values[ends + 1]
        middle = self._values[ends] + (following - self._values[ends]) / 2
        middle = np.where(middle < following, middle, self._values[ends])
        above = is_above[ends]
        bounds = np.stack(
            [np.where(above, middle, self._missing), np.where(above, _ABOVE_ALL, middle)]
        )
        return best, bounds.astype(np.float32)

    def _count(self, steps: Indices) -> Indices:
        """How many of these steps have each value that is known."""
        counts = np.bincount(self._places[steps].ravel(), minlength=len(self._column))
        counts[self._values[:-1] == self._missing] = 0
        return counts
