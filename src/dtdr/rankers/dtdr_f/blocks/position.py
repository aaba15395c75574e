"""Which part of the query each tool serves, and how far into the query the calls have come."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.demonstrations import surface_of
from dtdr.rankers.dtdr_f.text import MAX_WORDS, SURFACE_FEATURES
from dtdr.rankers.nn import Indices, Matrix

PARTS = 16
"""Parts that a query is divided into; 32 are within .006 of validation MRR on three sets."""
_BLUR = 0.5
"""Standard deviation, in parts, of how far the weight of a word spreads."""
_SHAPE = 4.0
"""Shape of the gamma distribution of how far a call moves on: 2 is within .001."""
_FIRST = 0.6
"""The first call serves what comes this many steps after the beginning."""
_ANYWHERE = 0.02
"""Share of the calls that may serve any part of the query."""
_ELSEWHERE = 0.1
"""Share of what names a tool on average that each part counts for it."""
_UNSAID = 0.05
"""Weight of a part without a word for any tool; .01 is within .005."""
_FREQUENT = 0.2
"""Share of that which goes to the tools by how often they are called."""
_FEWEST, _MOST, _STEPS_PER_CALL = 1.0, 20.0, 4
"""Resolution of the expected number of calls: quarters of a call."""
_RIDGE = 1.0
_SHARE, _SCORE = 1e-4, 1e-3
"""Added to shares and to scores before their logarithms."""
_PRODUCTS = 6


class Position(Block):
    """Tools that each part of the query asks for, and which part is probably served next.

    A word asks for a tool by its weight in ``WordWeights``, and by the descriptions with its stem,
    which count less the more demonstrations a tool has. A hidden Markov model aligns words and
    tools (Vogel, Ney and Tillmann, 1996). Its states are parts of the query and its end. A call
    moves on by about the length of the query over the number of calls that it seems to ask for. A
    part names a tool by the share of its words' weight that is for that tool.
    """

    name = "position"
    about = "the part of the query that comes next"
    names = (
        *("named_here", "described_here"),
        *("named_ahead", "described_ahead", "named_behind", "said_here"),
        *("relative_named_here", "centre", "from_last"),
        *("position", "at_end", "best_named_here", "best_ahead"),
        *("end_at_end", "end_best_ahead"),
    )
    text_features = ("described_here", "described_ahead")
    shortlist: ClassVar = {"named_ahead": 1.0}

    def __init__(self, training: TrainingSet) -> None:
        self._weights, self._seen = training.asked.weights[:, 0], training.seen
        surface = _with_constant(surface_of(training.data.columns))
        kernel = surface.T @ surface + _RIDGE * np.eye(surface.shape[1])
        self._lengths = np.linalg.solve(kernel, surface.T @ training.data.lengths)
        """Weights of the surface features, and of a constant, for the number of calls of a plan."""
        # A last 0, for words that are not known.
        self._idf = np.append(training.featurizer.words.idf, np.float32(0))[:, None]
        self._tools = tools = training.tools
        self._rarity = (np.float32(0.2) * tools.stems.idf)[:, None]
        self._trust = (0.3 * (0.1 + 0.9 / (1 + training.frequency / 2))).astype(np.float32)
        calls = max(float(training.frequency.sum()), 1e-9)
        self._frequent: Matrix = training.frequency * np.float32(_UNSAID * _FREQUENT / calls)

    def start(self, query: Query, out: Matrix) -> BlockState | None:
        """Before the first call the plan is at the beginning of the query."""
        features, seen, length = query.features, self._seen, len(query.features.stems)
        words = min(length, MAX_WORDS)
        if not words:
            return None
        # The weights of each word, alone and with its neighbours.
        both = features.terms[:words], features.terms[length : length + words - 1]
        learned, pairs = (self._weights[terms] * self._idf[terms] for terms in both)
        pairs *= np.float32(0.5)
        learned[:-1] += pairs
        learned[1:] += pairs
        learned = _spread(learned)
        stems = features.stems[:MAX_WORDS]
        by_text = _spread(self._tools.rows(stems) * self._rarity[stems])
        by_text *= by_text
        evidence = by_text * self._trust
        known = np.maximum(learned, 0)
        known *= known
        evidence[:, seen] += known
        evidence[:, -1] = 0
        by_text *= np.float32(0.3)

        blur = _blur(words)
        said, described = blur @ evidence, blur @ by_text
        parts = np.zeros((PARTS + 1, _PRODUCTS, len(self._trust)), np.float32)
        shares = parts[:-1, :2]
        np.add(said, self._frequent, out=shares[:, 0])
        shares[:, 1] = described
        # The features of the others must not depend on a new tool.
        others = shares.copy()
        others[:, :, seen] = 0
        shares /= shares[:, :, seen].sum(axis=2, keepdims=True) + others + np.float32(_UNSAID)
        if words < PARTS:  # several parts share a word
            said, described = said * (words / PARTS), described * (words / PARTS)
        np.cumsum(said[::-1], axis=0, out=parts[-2::-1, 2])
        np.cumsum(described[::-1], axis=0, out=parts[-2::-1, 3])
        np.cumsum(said, axis=0, out=parts[1:, 4])
        parts[:-1, 5] = said

        likely = parts[:, 0] + np.float32(_SHARE)
        likely[:-1] += shares[:, 0].mean(axis=0) * np.float32(_ELSEWHERE)
        parts[-1, 0, -1] = likely[-1, -1] = 1
        out[7] = (_CENTRES @ said) / (parts[0, 2] + np.float32(1e-6))
        out[7, -1] = 1
        parts += _ADDED
        expected = float(_with_constant(features.text.surface[None])[0] @ self._lengths)
        first, moves = _moves(round(min(max(expected, _FEWEST), _MOST) * _STEPS_PER_CALL))
        products = parts.reshape(PARTS + 1, -1)
        return _PositionState(products, likely, seen[:-1], moves, first)


class _PositionState(NamedTuple):
    """The forward probabilities along the calls of one plan.

    Attributes:
        parts: shape (PARTS + 1, 6 * tools): of each part, and of the end, the rows of the first six
            features before their logarithms. As probabilities of the parts sum to 1, what is added
            before logarithms is in every part.
        likely: shape (PARTS + 1, tools): how likely a call of each tool serves each part.
        known: columns of tools with demonstrations.
        moves: probabilities of the parts for the call after one that served each part.
        at: those for the next call.
        centre: of the tool that was called last.
    """

    parts: Matrix
    likely: Matrix
    known: Indices
    moves: Matrix
    at: Matrix
    centre: float = 0.0

    def call(self, event: CallEvent, rows: Matrix) -> _PositionState:
        parts, likely, known, moves, at, _ = self
        centre = 0.0
        if event.tool >= 0:
            at = at * likely[:, event.tool]
            centre = float(rows[7, event.tool])
        at = at @ moves
        at *= 1 / float(at @ _ONES)
        return _PositionState(parts, likely, known, moves, at, centre)

    def write(self, rows: Matrix) -> None:
        at, products = self.at, rows[:_PRODUCTS]
        np.matmul(at, self.parts, out=products.reshape(-1))
        named, ahead = products[0, self.known], products[2, self.known]
        best = float(named[named.argmax()]) if len(named) else _SHARE
        best_ahead = float(ahead[ahead.argmax()]) if len(ahead) else _SCORE
        relative = rows[6]
        np.multiply(products[0], 1 / best, out=relative)
        np.minimum(relative, 1, out=relative)  # a new tool may be named above all
        relative[-1] = 0
        np.log(products, out=products)
        rows[9] = at @ _PLACES
        rows[10] = rows[13, -1] = math.log(float(at[-1]) + _SHARE)
        rows[11] = math.log(best)
        rows[12] = rows[14, -1] = math.log(best_ahead)
        np.subtract(rows[7], self.centre, out=rows[8])
        np.abs(rows[8], out=rows[8])


_ONES = np.ones(PARTS + 1, np.float32)
_PLACES = (np.arange(PARTS + 1) / PARTS).astype(np.float32)
_CENTRES = ((np.arange(PARTS) + 0.5) / PARTS).astype(np.float32)
_ADDED = np.array([[_SHARE], [_SHARE], *[[_SCORE]] * 4], np.float32)


def _with_constant(surface: Matrix) -> npt.NDArray[np.float64]:
    """Surface features, without the vector of a further encoder, and ones."""
    own = surface[:, :SURFACE_FEATURES].astype(np.float64)
    return np.concatenate([own, np.ones((len(own), 1))], axis=1)


def _spread(rows: Matrix) -> Matrix:
    # A word lends half of its weight to its right neighbour: "send" to "the mail".
    rows[1:] += np.float32(0.5) * rows[:-1]
    return rows


@lru_cache(maxsize=512)
def _blur(words: int) -> Matrix:
    """The share of each word that each part of a query takes; shape (PARTS, words)."""
    number = np.arange(PARTS)
    parts = np.zeros((PARTS, words), np.float32)
    if words < PARTS:  # several parts share a word
        parts[number, number * words // PARTS] = 1
    else:
        parts[np.arange(words) * PARTS // words, np.arange(words)] = 1
    near = np.exp(-(((number[:, None] - number) / _BLUR) ** 2) / 2)
    blur: Matrix = (near / near.sum(axis=1, keepdims=True) @ parts).astype(np.float32)
    return blur


@lru_cache(maxsize=int(_MOST * _STEPS_PER_CALL))
def _moves(calls: int) -> tuple[Matrix, Matrix]:
    """Where a plan of this many quarters of a call begins, and how it moves on.

    Returns:
        Shape (PARTS + 1,): probabilities of the parts, and of the end, for the first call; and
        (PARTS + 1, PARTS + 1): for the call after one that served the row's part.
    """
    step = PARTS * _STEPS_PER_CALL / calls
    distance = np.arange(PARTS + 1) + 0.3
    jump, first = (
        distance ** (_SHAPE - 1) * np.exp(-_SHAPE * distance / mean)
        for mean in (step, step * _FIRST)
    )
    jump /= jump.sum()
    moves = np.zeros((PARTS + 1, PARTS + 1))
    for part in range(PARTS):
        moves[part, part:PARTS] = jump[: PARTS - part]
        moves[part, PARTS] = max(1 - jump[: PARTS - part].sum(), _SHARE)
    moves[PARTS, PARTS] = 1
    moves[:, :PARTS] += _ANYWHERE / PARTS
    moves /= moves.sum(axis=1, keepdims=True)
    first[PARTS] = 0
    first[:PARTS] += _ANYWHERE / PARTS
    return (first / first.sum()).astype(np.float32), moves.astype(np.float32)
