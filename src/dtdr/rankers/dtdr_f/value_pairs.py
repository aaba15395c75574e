"""Pairs of numbers whose difference says which tool comes next.

Two values, such as an amount and a limit; or a number of items and the calls made so far.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.rankers.nn import Indices, Matrix

_MOST_PAIRS, _MOST_COLUMNS, _MOST_ROWS, _MOST_CLASSES = 48, 40, 2_500, 160
"""Pairs that are kept, columns and rows that they are chosen from, pairs of the last and the
next tool that count."""
_SPLITS = np.linspace(0.1, 0.9, 7)
"""Quantiles at which a difference is split, and 0."""
_LEAST_ROWS, _LEAST_VALUES = 8, 4
_LEAST_GAIN = 3.0
"""Nats of the log likelihood that a split of a difference must add to that of each number."""
_FACTOR = 20.0
"""Numbers whose medians differ by more are not compared."""
_MOST_ITEMS, _MOST_LOOPS = 32, 2
"""Items that a loop may go over, and numbers of items that are kept for a tool."""
_LEAST_CASES, _LOOPS, _LEAST_LOOP_GAIN = 5, 0.8, 6.0
"""Steps at which a tool was called again; the share of the steps that a loop must be right at; nats
of log likelihood that it adds. A shop's agent reads orders until it has the one that it needs: half
of the time before the last, and no loop."""


def choose_pairs(
    table: Matrix,
    columns: Indices,
    missing: np.float32,
    last: npt.NDArray[np.intp],
    wanted: npt.NDArray[np.intp],
) -> Indices:
    """Pairs of columns whose difference, split in two, separates next tools; shape (2, n).

    A pair counts by what the split adds to the likelihood that some tool is next, given the last
    one, above the best split of either number.

    Args:
        table: shape (steps, columns).
        columns: those with numbers.
        missing: the value where a number is not known.
        last: shape (steps,): the tool that was called last.
        wanted: shape (steps,): the next tool.
    """
    some = np.arange(0, len(table), max(1, -(-len(table) // _MOST_ROWS)))
    table, last, wanted = table[some], last[some], wanted[some]
    numbers = table[:, columns]
    coverage = (numbers != missing).sum(axis=0)
    varied = [
        at
        for at in np.argsort(-coverage, kind="stable")
        if coverage[at] >= _LEAST_ROWS and len(np.unique(numbers[:, at])) > _LEAST_VALUES
    ][:_MOST_COLUMNS]
    if len(varied) < 2:
        return np.empty((2, 0), np.intp)
    numbers, columns = numbers[:, varied], columns[varied]
    known = numbers != missing
    kinds = _Kinds(last, wanted)
    alone = [kinds.gains(numbers[:, at], known[:, at]) for at in range(len(varied))]
    medians = np.array([np.median(np.abs(numbers[known[:, at], at])) for at in range(len(varied))])
    gains, pairs = [], []
    for left, right in combinations(range(len(varied)), 2):
        shared = known[:, left] & known[:, right]
        low, high = sorted((medians[left], medians[right]))
        if shared.sum() < _LEAST_ROWS or high > _FACTOR * max(low, 1e-9):
            continue
        both = kinds.gains(numbers[:, left] - numbers[:, right], shared)
        gain = float((both - np.maximum(alone[left], alone[right])).max())
        if gain > _LEAST_GAIN:
            gains.append(gain)
            pairs.append((columns[left], columns[right]))
    best = np.argsort(-np.array(gains), kind="stable")[:_MOST_PAIRS]
    return np.array([pairs[at] for at in best], np.intp).reshape(-1, 2).T


def choose_loops(
    table: Matrix,
    columns: Indices,
    counts: Indices,
    last: npt.NDArray[np.intp],
    wanted: npt.NDArray[np.intp],
) -> Indices:
    """Numbers of items that say how often a tool is called in a row; shape (2, n).

    After a call of the tool, that fewer calls were made than there are items must say more about
    whether it is called again than the number of items alone.

    Args:
        table: shape (steps, columns).
        columns: those with values.
        counts: shape (tools,): the column that counts the calls of each tool, or -1.
        last: shape (steps,): the tool that was called last.
        wanted: shape (steps,): the next tool.

    Returns:
        Columns with a number of items, and the columns that count the calls.
    """
    loops: list[tuple[int, int]] = []
    if not len(table):
        return np.empty((2, 0), np.intp)
    values = table[:, columns]
    columns = columns[(values.max(axis=0) > 1) & (values % 1 == 0).all(axis=0)]
    for tool in np.flatnonzero(counts >= 0):
        after = np.flatnonzero(last == tool)[:_MOST_ROWS]
        again = wanted[after] == tool
        if again.sum() < _LEAST_CASES or again.all():
            continue
        items = table[np.ix_(after, columns)]
        left = items > table[after, counts[tool], None]
        # Few of the columns are loops: only these are compared with their sizes alone.
        of_loops = np.flatnonzero(_is_loop(left, again))
        items, left = items[:, of_loops], left[:, of_loops]
        sizes = range(1, max(2, int(min(items.max(initial=0), _MOST_ITEMS))))
        alone = np.max([_split_gains(items > size, again) for size in sizes], axis=0)
        gains = _split_gains(left, again) - alone
        for at in np.argsort(-gains, kind="stable")[:_MOST_LOOPS]:
            if gains[at] > _LEAST_LOOP_GAIN:
                loops.append((int(columns[of_loops[at]]), int(counts[tool])))
    return np.array(loops, np.intp).reshape(-1, 2).T


def _is_loop(left: npt.NDArray[np.bool_], again: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether a tool is nearly always called again while items are left, and seldom afterwards."""
    share = (left & again[:, None]).sum(axis=0) / np.maximum(left.sum(axis=0), 1)
    after = (~left & again[:, None]).sum(axis=0) / np.maximum((~left).sum(axis=0), 1)
    is_loop: npt.NDArray[np.bool_] = (share >= _LOOPS) & (after <= 1 - _LOOPS)
    return is_loop


def _split_gains(
    above: npt.NDArray[np.bool_], taken: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """The log likelihood that each split adds to whether a tool is called; shape (columns,)."""
    inside, within = above.sum(axis=0), (above & taken[:, None]).sum(axis=0)
    size, called = len(taken), int(taken.sum())
    gains = likelihood(inside, within) + likelihood(size - inside, called - within)
    return gains - likelihood(np.array(size), np.array(called))


def likelihood(cases: Indices, taken: Indices) -> npt.NDArray[np.float64]:
    """Log likelihood of whether a tool is called, by its share of the cases."""
    return x_log_x(taken) + x_log_x(cases - taken) - x_log_x(cases)


def differences(table: Matrix, pairs: Indices, missing: np.float32) -> Matrix:
    """The differences of pairs of columns, missing where one is; shape (rows, pairs).

    Args:
        table: shape (rows, columns), or of one row.
        pairs: shape (2, pairs).
        missing: the value where a number is not known.
    """
    left, right = (table.take(columns, axis=-1) for columns in pairs)
    is_missing = (left == missing) | (right == missing)
    return np.where(is_missing, missing, left - right).astype(np.float32)


def lowered_by_pairs(width: int, pairs: Indices) -> Indices:
    """The second column of each difference, which follow ``width`` columns; -1 for these."""
    return np.append(np.full(width, -1), pairs[1])


class _Kinds:
    """Which of the most frequent pairs of a last and a next tool each step is.

    Args:
        last: shape (steps,): the tool that was called last.
        wanted: shape (steps,): the next tool.
    """

    def __init__(self, last: npt.NDArray[np.intp], wanted: npt.NDArray[np.intp]) -> None:
        count = int(wanted.max()) + 1
        both = last.astype(np.int64) * count + wanted
        kinds, counts = np.unique(both, return_counts=True)
        kinds = kinds[np.argsort(-counts, kind="stable")[:_MOST_CLASSES]]
        before, after = kinds // count, kinds % count
        self._hot = (both[:, None] == kinds).astype(np.float32)
        self._last = (before[:, None] == before).astype(np.float32)
        self._next = (after[:, None] == np.unique(after)).astype(np.float32)

    def gains(self, values: Matrix, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """The most that a split of known values adds to the log likelihood of each next tool."""
        values, hot = values[known], self._hot[known]
        splits = np.unique([*np.quantile(values, _SPLITS), 0.0]).astype(np.float32)
        above = (values[:, None] > splits).astype(np.float32).T @ hot
        whole = hot.sum(axis=0)
        gains = self._likelihoods(above) + self._likelihoods(whole - above)
        best: npt.NDArray[np.float64] = (gains - self._likelihoods(whole[None])).max(axis=0)
        return best

    def _likelihoods(self, counts: Matrix) -> npt.NDArray[np.float64]:
        """Log likelihoods of whether each tool is next, by its share given the last tool."""
        inside = counts.astype(np.float64)
        totals = inside @ self._last
        likely: npt.NDArray[np.float64] = (
            x_log_x(inside) + x_log_x(totals - inside) - x_log_x(totals)
        ) @ self._next
        return likely


def x_log_x(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Each value times its logarithm, 0 for 0."""
    product: npt.NDArray[np.float64] = values * np.log(np.maximum(values, 1))
    return product
