"""What the next-tool network reads of a history, and which of its weights stand for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[Any]

_LAST_CALLS = 3
_POSITIONS = 12
"""One-hot positions in a plan: 0 to 10, and 11 or later."""
_BLOCKS = 2 + _LAST_CALLS
MAX_COUNT = 8
"""Further calls of one tool change nothing; no public plan makes more than seven."""
MAX_LENGTH = 20
"""Calls after which the position does not grow any more."""


def history_width(outputs: int) -> int:
    """Number of history features for so many outputs, end of plan included."""
    return _BLOCKS * (outputs - 1) + _POSITIONS + 1


def history_features(history: Sequence[int], outputs: int) -> tuple[list[int], list[float]]:
    """Columns and values: calls of each tool, whether called, the last three calls, position.

    Indices below 0 are calls of unknown tools: they count for the position only.
    """
    block = outputs - 1
    columns: list[int] = []
    values: list[float] = []
    for tool, count in Counter(history).items():
        if tool >= 0:
            columns += (tool, block + tool)
            values += (float(min(count, MAX_COUNT)), 1.0)
    for lag, tool in enumerate(reversed(history[-_LAST_CALLS:])):
        if tool >= 0:
            columns.append((2 + lag) * block + tool)
            values.append(1.0)
    base = _BLOCKS * block
    columns += (base + min(len(history), _POSITIONS - 1), base + _POSITIONS)
    values += (1.0, min(len(history), MAX_LENGTH) / 5)
    return columns, values


class HistoryWeights:
    """The rows of U in ``Network`` by what they stand for.

    Attributes:
        first: what the first call of a tool adds, one row a tool.
        counts: what every further call of it adds.
        lags: what the last call adds, the one before it, and so on.
        positions: one row a number of calls made, up to ``MAX_LENGTH``.
    """

    def __init__(self, history: Matrix, outputs: int) -> None:
        block = outputs - 1
        blocks = history[: _BLOCKS * block].reshape(_BLOCKS, block, history.shape[1])
        # Lists of rows: taking one costs a tenth of indexing a matrix.
        self.first, self.counts = list(blocks[0] + blocks[1]), list(blocks[0])
        self.lags = tuple(map(list, blocks[2:]))
        tail = history[_BLOCKS * block :]
        lengths = np.arange(MAX_LENGTH + 1)
        slope = (lengths / 5).astype(np.float32)[:, None] * tail[_POSITIONS]
        self.positions = list(tail[np.minimum(lengths, _POSITIONS - 1)] + slope)


def renumber_history(history: Matrix, kept: Sequence[int], outputs: int) -> Matrix:
    """Rows of U for other outputs: ``kept`` has the old number of each, or -1 for a new one."""
    block = outputs - 1
    blocks = history[: _BLOCKS * block].reshape(_BLOCKS, block, history.shape[1])
    padded = np.concatenate([blocks, np.zeros_like(blocks[:, :1])], axis=1)
    chosen = np.array([block if number < 0 else number for number in kept[:-1]], np.intp)
    renumbered = padded[:, chosen].reshape(-1, history.shape[1])
    result: Matrix = np.concatenate([renumbered, history[_BLOCKS * block :]])
    return result
