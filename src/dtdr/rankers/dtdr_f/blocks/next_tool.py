"""A softmax regression on query and history that predicts the next tool.

It knows which words of queries, and which calls before it, go with which next call; it learns a
weight for each pair of a word or call and a tool from all steps of the demonstrations. It reads no
descriptions, so it says nothing of tools that no demonstration calls: these get a fixed low value.

Example, from the bundled set: for a request about a train, expenses and an email,
``log_probability`` is -1.75 for ``search_trains`` before the first call. After that call it is
-1.22 for ``book_train`` and -5.74 for ``search_trains``. The best tool always has 0: what counts
is how far the others are below it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.encoding import surface_of
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix, stack_rows
from dtdr.rankers.softmax_regression import fit_softmax
from dtdr.text.sparse import csr_array, hstack

_LAST_CALLS = 3
_POSITIONS = 12
"""One-hot positions in a plan: 0 to 10, and 11 or later."""
_GROUPS = 2 + _LAST_CALLS
"""Groups of features with one row a tool: number of calls, whether any, and the last calls."""
_MAX_COUNT, _MAX_LENGTH = 8, 20
"""Further calls of one tool, and of a plan, change nothing; no public plan makes more than seven
of one tool."""
_SMOOTHING = 0.02
"""Label smoothing: a plan that was not recorded can be as good."""
_UNSEEN = np.float32(-9)
"""Log probability of a tool that no demonstration calls."""

_EPOCHS, _FULL_EPOCHS = 24, 1_300
"""Passes, and plans up to which all are made."""
_FEW_PLANS, _FEW_EPOCHS = 30, 60
"""This few plans are learned longer, in small batches."""
_BATCHES = ((_FEW_PLANS, 16), (500, 64), (3_000, 128), (math.inf, 256))
"""Queries a batch up to this many plans."""
_RATE, _DECAY, _DROPPED = 0.05, 0.1, 0.3


class NextToolRows(FeatureRows):
    """The prediction of the regression."""

    log_probability: Matrix  # log probability of the tool, minus that of the best one


class NextTool(Block):
    """A softmax regression on words and surface of the query, and on the calls.

    A hidden layer of 128 units between them was worth .004 MRR on TinyAgent, but lost .003 on
    T-Eval and .013 on TRAJECT by sequence.

    Args:
        query: shape (query features, seen): weights of words, pairs of words and surface features.
        history: shape (history features, seen): see ``_history_features``.
        training: what they were learned from.
    """

    name = "next_tool"
    about = "query and last calls, by a regression"
    rows = NextToolRows
    prior: ClassVar = {"log_probability": 0.6}
    shortlist: ClassVar = {"log_probability": 1.0}
    learned = ("query", "history")

    def __init__(self, query: Matrix, history: Matrix, training: TrainingSet) -> None:
        self.query, self.history = query, history
        self.slots, self.seen = training.slots, training.seen
        # By their meaning, as lists of rows: taking one costs a tenth of indexing a matrix.
        size = len(training.seen) - 1
        count, any_call, *lags = (history[at * size : (at + 1) * size] for at in range(_GROUPS))
        self.first, self.again = list(count + any_call), list(count)
        self.lags = [list(lag) for lag in lags]
        tail, lengths = history[_GROUPS * size :], np.arange(_MAX_LENGTH + 1)
        slope = (lengths / 5).astype(np.float32)[:, None] * tail[_POSITIONS]
        self.positions = list(tail[np.minimum(lengths, _POSITIONS - 1)] + slope)

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Learn from the steps of the plans."""
        data, slots, outputs = training.data, training.slots, len(training.seen)
        rows, wanted, owner = [], [], []
        for step in data.steps():
            rows.append(_history_features([slots[tool] for tool in step.history], outputs))
            wanted.append([slots[tool] for tool in step.acceptable])
            owner.append(step.plan)
        surface = csr_array(surface_of(data.columns))
        queries = hstack([training.featurizer.vectors, surface], format="csr")
        plans = len(data)
        epochs = _FEW_EPOCHS if plans <= _FEW_PLANS else _EPOCHS
        if plans > _FULL_EPOCHS:
            epochs = max(3, int(_EPOCHS * (_FULL_EPOCHS / plans) ** 0.6))
        history, query = fit_softmax(
            stack_rows(rows, _GROUPS * (outputs - 1) + _POSITIONS + 1),
            wanted,
            np.array(owner, np.intp),
            outputs,
            shared=csr_array(queries),
            absent=None if data.absent is None else data.absent[:, training.seen],
            smoothing=_SMOOTHING,
            epochs=epochs,
            batch_size=next(size for most, size in _BATCHES if plans <= most),
            rate=_RATE,
            weight_decay=_DECAY,
            dropped=_DROPPED,
            seed=training.seed,
        )
        return cls(query, history, training)

    def start(self, query: Query, rows: NextToolRows) -> BlockState:
        """Tools without demonstrations have one low value; the others are written at each step."""
        rows.log_probability.fill(_UNSEEN)
        columns, values = query.features.words
        surface = query.features.text.surface
        logits = values @ self.query[columns]
        logits += surface @ self.query[-len(surface) :]
        return _NextToolState(self, logits)


class _NextToolState(NamedTuple):
    block: NextTool
    logits: Matrix
    last: tuple[int, ...] = (-1, -1, -1)
    length: int = 0

    def call(self, event: CallEvent, rows: NextToolRows) -> _NextToolState:
        block, logits, _, length = self
        slot = block.slots[event.tool]
        if slot >= 0 and event.calls <= _MAX_COUNT:
            logits = logits + (block.first if event.calls == 1 else block.again)[slot]
        return _NextToolState(block, logits, (slot, *self.last[:-1]), length + 1)

    def write(self, rows: NextToolRows) -> None:
        block = self.block
        logits = self.logits + block.positions[min(self.length, _MAX_LENGTH)]
        for slot, weights in zip(self.last, block.lags, strict=True):
            if slot >= 0:
                logits += weights[slot]
        logits -= logits[logits.argmax()]
        rows.log_probability[block.seen] = logits


def _history_features(history: Sequence[int], outputs: int) -> tuple[list[int], list[float]]:
    """Columns and values: calls of each tool, whether called, the last three calls, position.

    Slots below 0 are calls of unknown tools: they count for the position only.
    """
    size = outputs - 1
    columns: list[int] = []
    values: list[float] = []
    for tool, count in Counter(history).items():
        if tool >= 0:
            columns += (tool, size + tool)
            values += (float(min(count, _MAX_COUNT)), 1.0)
    for lag, tool in enumerate(reversed(history[-_LAST_CALLS:])):
        if tool >= 0:
            columns.append((2 + lag) * size + tool)
            values.append(1.0)
    base = _GROUPS * size
    columns += (base + min(len(history), _POSITIONS - 1), base + _POSITIONS)
    values += (1.0, min(len(history), _MAX_LENGTH) / 5)
    return columns, values
