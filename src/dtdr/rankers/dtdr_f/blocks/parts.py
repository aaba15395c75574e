"""Tools that each part of the query asks for, and how many parts the calls have served.

It knows, from the demonstrations, how often a sentence or clause with certain words makes plans
call a tool. It reads each part of the query by that, and follows the calls through the parts as the
block ``position`` does; but its parts are sentences and clauses, and it counts: a part may ask for
two calls of a tool, and calls that were made are no longer asked for.

Example, from the bundled set: "take me from Ghent to Accra by train tomorrow. [...] send an email".
The query asks .78 times for ``search_trains``. After that call .78 - 1 = -.22 are left
(``asked_left``), but for ``book_train`` still .80. All tools together have 6.1 calls left before
the first call and 5.3 after it (``asked_left_at_end``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.queries import QueryFeatures, part_terms
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix

_LITTLE = 0.01
"""Added to what a part asks for: any tool can be called for any part, and logarithms are taken."""
_MOVES = np.array([0.02, 0.03, 0.08, 0.45, 0.33, 0.06, 0.03])
"""How probable it is that the next call is for the part three or more before that of the last,
two before, ... and three or more behind."""
_WINDOWS = 4
_FARTHEST = len(_MOVES) // 2
_FIRST = 0.6
"""How much less probable the first call is for each further part."""


class PartsRows(FeatureRows):
    """Calls that the parts of the query ask for.

    The logarithms are of the probability that a tool is asked for, summed over parts by how
    probable it is that the calls are there.
    """

    asked_left: Matrix  # calls that the whole query asks for, less those made
    asked_here: Matrix  # log: in the part that the next call is for
    asked_ahead: Matrix  # log: in all parts after it
    asked_next: Matrix  # log: in the part after it
    asked_behind: Matrix  # log: in all parts before it
    asked_ahead_at_end: Matrix  # greatest asked_ahead, for the end of plan alone
    asked_left_at_end: Matrix  # sum of all calls left, for the end of plan alone


_BY_WINDOW = PartsRows.span("asked_here", "asked_behind")
"""One feature for each window of ``_moves``, in their order."""


class Parts(Block):
    """Tools that parts of a query ask for, by ``WordWeights``; a forward pass follows the calls."""

    name = "parts"
    about = "sentences that ask for it"
    rows = PartsRows

    def __init__(self, training: TrainingSet) -> None:
        asked, self._seen = training.word_weights, training.seen
        self._weights = asked.weights.reshape(len(asked.weights), -1)
        self._means = asked.mean.ravel()
        self._scale = training.featurizer.words.idf

    def start(self, query: Query, rows: PartsRows) -> BlockState:
        """No part is served yet."""
        asked = self.read(query.features)
        asked[:, :, -1] = 0  # no part asks for the end of plan
        is_asked, times = asked
        left = rows.asked_left
        left[self._seen] = np.add.reduce(times)
        presence = np.zeros((len(times) + 1, len(left)), np.float32)
        presence[:-1, self._seen] = np.minimum(is_asked, 1)
        presence[-1] = _LITTLE  # added to every window, so that logarithms can be taken
        by_part = presence[:-1] + np.float32(_LITTLE)
        by_part *= 1 / by_part.sum(axis=1, keepdims=True)
        last, windows, steps = _moves(len(times))
        return _PartsState(presence, by_part.T, steps, last, windows, float(left.sum()))

    def read(self, query: QueryFeatures) -> Matrix:
        """Whether and how often each part asks for each seen tool; shape (2, parts, seen)."""
        parts = part_terms(query.terms, query.parts)
        columns = np.concatenate(parts)
        values = self._scale[columns]
        # One column for each word of each part, so that only the weights of these are multiplied.
        words = np.zeros((len(parts), len(columns)), np.float32)
        part_of_word = np.repeat(np.arange(len(parts)), list(map(len, parts)))
        words[part_of_word, np.arange(len(columns))] = values
        asked: Matrix = words @ self._weights[columns].astype(np.float32)
        # Parts were vectors of length 1 when the weights were learned.
        lengths = np.sqrt(np.einsum("ij,ij->i", words, words))
        asked /= np.maximum(lengths, np.float32(1e-9))[:, None]
        asked += self._means  # subtracted before the weights were learned
        np.maximum(asked, 0, out=asked)
        # Weights of "whether" are before those of "how often" in each row.
        return asked.reshape(len(parts), 2, -1).swapaxes(0, 1)


class _PartsState(NamedTuple):
    """Where in the query the calls have come.

    Attributes:
        asked: shape (parts + 1, tools): what each part asks for, and ``_LITTLE``.
        by_part: shape (tools, parts): how likely a call of each tool is for each part.
        steps, last, windows: see ``_moves``.
        total: number of calls that are asked for and not made.
    """

    asked: Matrix
    by_part: Matrix
    steps: Matrix
    last: Matrix
    windows: Matrix
    total: float

    def call(self, event: CallEvent, rows: PartsRows) -> _PartsState:
        if event.tool < 0:
            return self
        asked, by_part, steps, last, windows, total = self
        last = last * by_part[event.tool]
        after = last @ steps
        after *= 1 / after[-1]  # the sum of what is multiplied
        before = float(rows.asked_left[event.tool])
        rows.asked_left[event.tool] = left = max(before - 1, -1.0)
        # Calls that nothing asked for do not take from what is asked for elsewhere.
        total += max(left, 0.0) - max(before, 0.0)
        parts = len(last)
        windows = after[parts:].reshape(_WINDOWS, -1)
        return _PartsState(asked, by_part, steps, after[:parts], windows, total)

    def write(self, rows: PartsRows) -> None:
        seen = rows.table[_BY_WINDOW]
        np.matmul(self.windows, self.asked, out=seen)
        np.log(seen, out=seen)
        ahead = rows.asked_ahead
        rows.asked_ahead_at_end[-1] = ahead[ahead.argmax()]
        rows.asked_left_at_end[-1] = self.total


@lru_cache(maxsize=64)
def _moves(parts: int) -> tuple[Matrix, Matrix, Matrix]:
    """Where a plan begins in a query of this many parts, and how it moves on.

    Returns:
        Shape (parts,): how probable it is that the first call is for each part. Shape
        (4, parts + 1): which parts are looked at before any call: where the calls are, after it,
        next to it and before it; and ones. And shape (parts, 5 parts + 4): of a call for each part,
        how probable the next one is for each, and the windows.
    """
    part = np.arange(parts)
    first = _FIRST**part
    away = part[None] - part[:, None]
    clipped = np.clip(away, -_FARTHEST, _FARTHEST)
    moves = _MOVES[clipped + _FARTHEST]
    for side in (-_FARTHEST, _FARTHEST):  # all parts this far away share one number
        alike = clipped == side
        moves /= np.where(alike, alike.sum(axis=1, keepdims=True), 1)
    moves /= moves.sum(axis=1, keepdims=True)
    windows = np.ones((parts, _WINDOWS, parts + 1), np.float32)
    for window, looked_at in enumerate((away == 0, away > 0, away == 1, away < 0)):
        windows[:, window, :-1] = looked_at
    steps = np.concatenate([moves, windows.reshape(parts, -1)], axis=1)
    before = windows[0].copy()
    before[1, 0] = 1  # nothing is served yet
    return (first / first.sum()).astype(np.float32), before, steps.astype(np.float32)
