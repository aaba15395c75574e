"""How far into the query a plan has come: a hidden Markov model of which part is served next."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.errors import ModelError
from dtdr.retrievers.factored.blocks.alignment import Alignment, parts_of
from dtdr.retrievers.factored.blocks.base import (
    Arrays,
    Begin,
    Block,
    CallEvent,
    PlanUpdate,
    Query,
    TrainingSet,
)
from dtdr.retrievers.factored.query_text import SURFACE_FEATURES
from dtdr.retrievers.nn import Indices, Matrix

PARTS = 16
"""Parts that a query is divided into; 32 are within .006 of validation MRR on three sets."""
_BLUR = 0.5
"""Standard deviation, in parts, of how far what a word says reaches."""
_SHAPE = 4.0
"""Of the gamma distribution of how far a call moves on: 2 is within .001."""
_FIRST = 0.6
"""The first call serves what stands so many steps after the beginning."""
_ANYWHERE = 0.02
"""Share of the calls that may serve any part of the query."""
_ELSEWHERE = 0.1
"""Share of what names a tool on average that each part counts for it."""
_UNSAID = 0.05
"""What a part without a word for any tool counts beside its words; .01 is within .005."""
_FREQUENT = 0.2
"""Share of that which goes to the tools by how often they are called."""
_FEWEST, _MOST = 1.0, 20.0
"""Calls that a plan is expected to have."""
_STEPS_PER_CALL = 4
"""Lengths of plans that are told apart: quarters of a call."""
_RIDGE = 1.0
_LEAST = 1e-4
"""Added to probabilities before their logarithm."""
_LITTLE = 1e-3
"""Added to scores before theirs."""


class QueryPosition(Block):
    """The forward probabilities of which part of the query the next call serves.

    The alignment of words and tools as a hidden Markov model (Vogel, Ney and Tillmann, 1996): the
    states are parts of the query and its end, a call moves on by about the length of the query
    over the number of calls that it seems to ask for, and a part names a tool by the share of what
    its words say that speaks for that tool. The pointer of ``alignment`` is one place, the middle
    of all that is left for a tool; here a call that several parts speak for leaves all of them
    possible.

    What words say is read from ``alignment``; without that block this one says nothing.

    Args:
        lengths: weights of the surface features of a query, and a constant, for the number of its
            calls; shape (``SURFACE_FEATURES`` + 1,).
        training: what they were learned from.
    """

    name = "query_position"
    about = "the part of the query that comes next"
    names = (
        *("named_here", "described_here", "named_from_here", "relative_named_here"),
        *("position", "at_end", "best_named_here"),
    )
    new_tool_names = ("described_here",)

    def __init__(self, lengths: npt.NDArray[np.float64], training: TrainingSet) -> None:
        self.lengths = lengths
        calls = max(float(training.frequency.sum()), 1e-9)
        self._frequent: Matrix = training.frequency * np.float32(_UNSAID * _FREQUENT / calls)

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Learn how many calls a query asks for, from its surface features."""
        rows = _with_constant(training.queries.surface)
        weighted = rows.T * training.plans.weights
        ridge = _RIDGE * np.eye(rows.shape[1])
        lengths = np.linalg.solve(weighted @ rows + ridge, weighted @ training.plans.lengths)
        return cls(lengths.astype(np.float64), training)

    def update(self, update: PlanUpdate) -> Block:
        """Learn the lengths anew where all plans are at hand."""
        if update.is_complete:
            return self.fit(update.training)
        return QueryPosition(self.lengths, update.training)

    def renumber(self, training: TrainingSet, slots: Indices) -> Block:
        """The same lengths: they are about queries alone."""
        return QueryPosition(self.lengths, training)

    def start(self, query: Query, out: Matrix) -> Begin | None:
        """Before the first call the plan is at the beginning of the query."""
        evidence = query.memo.get(Alignment.name)
        if evidence is None:
            return None
        words, view = len(evidence) // 2, query.view
        blur = _blur(words)
        said, described = blur @ evidence[:words], blur @ evidence[words:-1]
        parts = np.zeros((PARTS + 1, 3, view.size), np.float32)
        np.add(said, view.of(self._frequent), out=parts[:-1, 0])
        parts[:-1, 0, -1] = 0
        parts[:-1, 1] = described
        shares = parts[:-1, :2]
        if view.seen is None:
            shares /= shares.sum(axis=2, keepdims=True) + np.float32(_UNSAID)
        else:  # what is said of the others must not depend on a new tool
            known = shares[:, :, view.seen].sum(axis=2, keepdims=True)
            own = shares.copy()
            own[:, :, view.seen] = 0
            shares /= known + own + np.float32(_UNSAID)
        np.cumsum(said[::-1], axis=0, out=parts[-2::-1, 2])
        likely = parts[:, 0] + np.float32(_LEAST)
        likely[:-1] += shares[:, 0].mean(axis=0) * np.float32(_ELSEWHERE)
        parts[-1, 0, -1] = 1
        parts += _ADDED
        expected = float(_with_constant(query.features.surface[None])[0] @ self.lengths)
        calls = round(min(max(expected, _FEWEST), _MOST) * _STEPS_PER_CALL)
        first, moves = _moves(calls)
        return partial(_QueryPositionState, parts, likely, view.seen, first, moves)

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The weights for the number of calls."""
        return {"lengths": self.lengths}

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The weights that were saved."""
        lengths = arrays["lengths"]
        if lengths.shape != (SURFACE_FEATURES + 1,):
            raise ModelError("the lengths of plans do not fit the queries; fit the model again")
        return cls(lengths, training)


class _QueryPositionState:
    """The forward probabilities along the calls of one plan.

    Args:
        parts: shape (PARTS + 1, 3, tools): of each part, and of the end, the share that names each
            tool, the share of descriptions, and what is said from there on. As probabilities of
            the parts sum to 1, what is added before logarithms stands in every part.
        likely: shape (PARTS + 1, tools): how likely a call of each tool serves each part.
        seen: columns of tools with demonstrations; None for all.
        first: probabilities of the parts for the first call.
        moves: those for the call after one that served each part.
        rows: of the features.
    """

    __slots__ = (
        "_constants",
        "_flat",
        "_known",
        "_likely",
        "_moves",
        "_named",
        "_next",
        "_parts",
        "_products",
        "_relative",
    )

    def __init__(
        self,
        parts: Matrix,
        likely: Matrix,
        seen: Indices | None,
        first: Matrix,
        moves: Matrix,
        rows: Matrix,
    ) -> None:
        self._parts = parts.reshape(PARTS + 1, -1)
        self._likely, self._next, self._moves = likely, first, moves
        self._products, self._named, self._relative = rows[:3], rows[0], rows[3]
        self._flat = self._products.reshape(-1)
        self._known = slice(-1) if seen is None else seen[:-1]
        self._constants = list(rows[4:])

    def call(self, event: CallEvent) -> None:
        at = self._next
        if event.column >= 0:
            at = at * self._likely[:, event.column]
        at = at @ self._moves
        at *= 1 / float(at @ _ONES)
        self._next = at

    def write(self) -> None:
        at, named = self._next, self._named
        np.matmul(at, self._parts, out=self._flat)
        known = named[self._known]
        best = float(known[known.argmax()]) if len(known) else _LEAST
        np.multiply(named, 1 / best, out=self._relative)
        np.minimum(self._relative, 1, out=self._relative)  # a new tool may be named above all
        self._relative[-1] = 0
        np.log(self._products, out=self._products)
        position, at_end, best_named = self._constants
        position.fill(float(at @ _PLACES))
        at_end.fill(math.log(float(at[-1]) + _LEAST))
        best_named.fill(math.log(best))

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        self._products[1].take(columns, out=out[0], mode="clip")


_ONES = np.ones(PARTS + 1, np.float32)
_PLACES = (np.arange(PARTS + 1) / PARTS).astype(np.float32)
_ADDED = np.array([[_LEAST], [_LEAST], [_LITTLE]], np.float32)


def _with_constant(surface: Matrix) -> npt.NDArray[np.float64]:
    """Surface features, without the vector of a further encoder, and ones."""
    own = surface[:, :SURFACE_FEATURES].astype(np.float64)
    return np.concatenate([own, np.ones((len(own), 1))], axis=1)


@lru_cache(maxsize=512)
def _blur(words: int) -> Matrix:
    """What each part takes of each word of a query; shape (PARTS, words)."""
    if words < PARTS:  # several parts share a word
        parts = np.zeros((PARTS, words), np.float32)
        parts[np.arange(PARTS), np.arange(PARTS) * words // PARTS] = 1
    else:
        parts = parts_of(words, PARTS)
    distance = np.arange(PARTS)[:, None] - np.arange(PARTS)
    near = np.exp(-((distance / _BLUR) ** 2) / 2)
    blur: Matrix = (near / near.sum(axis=1, keepdims=True) @ parts).astype(np.float32)
    return blur


@lru_cache(maxsize=int(_MOST * _STEPS_PER_CALL))
def _moves(calls: int) -> tuple[Matrix, Matrix]:
    """Where a plan of so many quarters of a call begins, and how it moves on.

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
        moves[part, PARTS] = max(1 - jump[: PARTS - part].sum(), _LEAST)
    moves[PARTS, PARTS] = 1
    moves[:, :PARTS] += _ANYWHERE / PARTS
    moves /= moves.sum(axis=1, keepdims=True)
    first[PARTS] = 0
    first[:PARTS] += _ANYWHERE / PARTS
    return (first / first.sum()).astype(np.float32), moves.astype(np.float32)
