"""What each part of the query asks for, and how far through the parts the calls have come."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from dtdr.rankers.descriptions import name_words
from dtdr.rankers.dtdr_f.blocks.block import (
    MOST_DESCRIBED,
    Arrays,
    Begin,
    Block,
    CallEvent,
    Query,
    TrainingSet,
)
from dtdr.rankers.dtdr_f.queries import QueryFeatures, part_terms
from dtdr.rankers.dtdr_f.ridge import Weights
from dtdr.rankers.nn import Indices, Matrix

_FOLDS = 2
"""Four instead of two, and 3,000 parts: validation MRR on T-Eval -.0003, TinyAgent +.0002."""
_MOST_PARTS = 2_000
"""Parts that weights are learned from, of more: time is cubic in them."""
_ROUNDS = 3
"""Times that calls are divided among parts anew."""
_MOST = 4.0
"""More calls of one tool count as so many."""
_LEAST_SHARE = 1e-3
_LITTLE = 0.01
"""Added to what a part asks for: any tool can be called for any part, and logarithms are taken."""
_MOVES = np.array([0.02, 0.03, 0.08, 0.45, 0.33, 0.06, 0.03])
"""How probable it is that the next call is for the part three or more before that of the last,
two before, ... and three or more behind."""
_RIDGE = 1.0
_WINDOWS = 4
_FARTHEST = len(_MOVES) // 2
_FIRST = 0.6
"""How much less probable the first call is for each further part."""


class Parts(Block):
    """Ridge regression of presence and number of calls on the words of each part of a query.

    No demonstration says which part of its query asks for which call. Calls are divided evenly at
    first, then by what a regression that has not seen the query says of each part (expectation
    maximisation). Names and descriptions of tools are learned from as if each were a part that
    asks for its tool. Where in the query the calls have come is a forward pass over the parts.

    Args:
        weights: of words and pairs of words, for presence and number of calls of the seen tools;
            shape (words, 2, seen), float16.
        mean: shape (2, seen): what a part asks for on average.
        training: what they were learned from.
    """

    name = "parts"
    about = "sentences that ask for it"
    names = (
        *("asked_left", "asked_here", "asked_ahead", "asked_next", "asked_behind"),
        *("asked_ahead_at_end", "asked_left_at_end"),
    )

    def __init__(self, weights: Weights, mean: Matrix, training: TrainingSet) -> None:
        self.weights, self.mean = weights, mean
        self._weights = weights.astype(np.float32).reshape(len(weights), -1)
        self._means = mean.ravel()
        self._scale = training.featurizer.words.idf

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Learn the weights of words."""
        weights, mean = _divide_calls(training)
        return cls(weights.reshape(len(weights), *mean.shape), mean, training)

    def start(self, query: Query, out: Matrix) -> Begin:
        """No part is served yet."""
        asked = self.read(query.features)
        view = query.view
        asked = asked.take(view.slots, axis=2)
        if view.seen is not None:
            every = np.zeros((*asked.shape[:2], view.size), np.float32)
            every[:, :, view.seen] = asked
            asked = every
        asked[:, :, -1] = 0
        np.add.reduce(asked[1], out=out[0])
        # The last row is added to every window, so that logarithms can be taken.
        presence = np.full((asked.shape[1] + 1, asked.shape[2]), _LITTLE, np.float32)
        np.minimum(asked[0], 1, out=presence[:-1])
        return partial(_PartsState, presence, float(out[0].sum()))

    def read(self, query: QueryFeatures) -> Matrix:
        """Whether and how often each part asks for each seen tool; shape (2, parts, seen)."""
        parts = part_terms(query.terms, query.parts)
        columns = np.concatenate(parts)
        values = self._scale[columns]
        rows = np.zeros((len(parts), len(columns)), np.float32)
        end = 0
        for row, part in zip(rows, parts, strict=True):
            begin, end = end, end + len(part)
            row[begin:end] = values[begin:end]
        asked: Matrix = rows @ self._weights[columns]
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        asked /= np.maximum(lengths, np.float32(1e-9))[:, None]
        asked += self._means
        np.maximum(asked, 0, out=asked)
        return asked.reshape(len(parts), *self.mean.shape).swapaxes(0, 1)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The weights of words, and the means."""
        return {"weights": self.weights, "mean": self.mean}

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The weights that were saved."""
        return cls(arrays["weights"], arrays["mean"].astype(np.float32), training)


class _PartsState:
    __slots__ = (
        *("_asked", "_by_part", "_end", "_last", "_left"),
        *("_parts", "_seen", "_steps", "_total", "_windows"),
    )

    def __init__(self, asked: Matrix, total: float, rows: Matrix) -> None:
        self._parts = parts = len(asked) - 1
        self._asked, self._left, self._total = asked, rows[0], total
        self._seen, self._end = rows[1 : 1 + _WINDOWS], rows[1 + _WINDOWS :, -1]
        by_part = asked[:-1] + np.float32(_LITTLE)
        by_part *= 1 / by_part.sum(axis=1, keepdims=True)
        self._by_part = by_part.T
        places = _places(parts)
        self._steps, self._last, self._windows = places.steps, places.first, places.first_windows

    def call(self, event: CallEvent) -> None:
        column = event.column
        if column < 0:
            return
        parts = self._parts
        last = self._last * self._by_part[column]
        after = last @ self._steps
        after *= 1 / after[-1]  # the sum of what is multiplied
        self._last, self._windows = after[:parts], after[parts:].reshape(_WINDOWS, -1)
        before = float(self._left[column])
        self._left[column] = left = max(before - 1, -1.0)
        self._total += max(left, 0.0) - max(before, 0.0)

    def write(self) -> None:
        seen, end = self._seen, self._end
        np.matmul(self._windows, self._asked, out=seen)
        np.log(seen, out=seen)
        ahead = seen[1]
        end[0] = ahead[ahead.argmax()]
        end[1] = self._total


class _Places:
    """What follows from the number of parts alone.

    Attributes:
        first: shape (parts,): how probable it is that the first call is for each part.
        first_windows: shape (4, parts + 1): which parts are looked at before any call: where the
            calls are, after it, next to it and before it; and ones.
        steps: shape (parts, 5 parts + 4): of a call for each part, how probable the next one is
            for each, and the windows.
    """

    def __init__(self, parts: int) -> None:
        number = np.arange(parts)
        first = _FIRST**number
        self.first: Matrix = (first / first.sum()).astype(np.float32)
        away = number[None] - number[:, None]
        clipped = np.clip(away, -_FARTHEST, _FARTHEST)
        moves = _MOVES[clipped + _FARTHEST]
        for side in (-_FARTHEST, _FARTHEST):  # all that is so far away shares one number
            alike = clipped == side
            moves /= np.where(alike, alike.sum(axis=1, keepdims=True), 1)
        windows = np.ones((parts, _WINDOWS, parts + 1))
        for window, looked_at in enumerate((away == 0, away > 0, away == 1, away < 0)):
            windows[:, window, :-1] = looked_at
        moves /= moves.sum(axis=1, keepdims=True)
        steps = np.concatenate([moves, windows.reshape(parts, -1)], axis=1)
        self.steps: Matrix = steps.astype(np.float32)
        self.first_windows: Matrix = windows[0].astype(np.float32)
        self.first_windows[1, 0] = 1  # nothing is served yet


_places = lru_cache(maxsize=64)(_Places)


def _divide_calls(training: TrainingSet) -> tuple[Weights, Matrix]:
    """The weights of words, shape (words, 2 seen), and the mean of a part, shape (2, seen)."""
    # A process that loads a model and ranks does not need it.
    from scipy.linalg import cho_factor, cho_solve

    plans = training.plans
    parts, sizes = training.featurizer.parts
    chosen = _draw(sizes, training.seed)
    parts, sizes = (
        csr_array(parts[np.isin(np.repeat(np.arange(len(sizes)), sizes), chosen)]),
        sizes[chosen],
    )
    number = int(sizes.sum())
    seen = training.seen[:-1] if len(training.seen) <= MOST_DESCRIBED else training.seen[:0]
    tools = [training.tools.tools[tool] for tool in seen.tolist()]
    described = [f"{name_words(tool.name)} {tool.description}" for tool in tools]
    rows = csr_array(
        vstack([parts, training.featurizer.encode_words(described)], format="csr")
        if tools
        else parts
    )
    importance = np.append(np.repeat(plans.weights[chosen], sizes), np.ones(len(seen)))
    of_plan = np.repeat(_targets(plans.called[chosen], training.seen), sizes, axis=0)
    wanted = np.zeros((rows.shape[0], 2, len(training.seen)), np.float32)
    wanted[number + np.arange(len(seen)), :, np.arange(len(seen))] = 1
    kernel = (rows @ rows.T).toarray()
    kernel[np.diag_indices_from(kernel)] += _RIDGE / importance

    fold = np.append(np.repeat(np.arange(len(sizes)) % _FOLDS, sizes), np.full(len(seen), -1))
    folds = [
        (out, known, kernel[np.ix_(out, known)], cho_factor(kernel[np.ix_(known, known)]))
        for out, known in (
            (np.flatnonzero(fold == one), np.flatnonzero(fold != one)) for one in range(_FOLDS)
        )
        if len(out) and len(known)
    ]
    shares = np.repeat(1 / sizes, sizes)[:, None].astype(np.float32)
    for _ in range(_ROUNDS):
        presence = of_plan[:, 0] * shares
        mean = _mean(presence, importance[:number])
        above = np.concatenate([presence, wanted[number:, 0]]) - mean
        asked = np.zeros_like(presence)
        for out, known, across, factor in folds:
            asked[out] = across @ cho_solve(factor, above[known]) + mean
        shares = _shares(asked, sizes)
    wanted[:number] = of_plan * shares[:, None]
    mean = _mean(wanted[:number], importance[:number])
    above = (wanted - mean).reshape(len(wanted), -1)
    weights = rows.T @ cho_solve(cho_factor(kernel, overwrite_a=True), above)
    return weights.astype(np.float16), mean


def _draw(sizes: npt.NDArray[np.int64], seed: int) -> Indices:
    """Places of queries, rising, that have ``_MOST_PARTS`` parts together at most."""
    if sizes.sum() <= _MOST_PARTS:
        return np.arange(len(sizes))
    order = np.random.default_rng(seed).permutation(len(sizes))
    return np.sort(order[: max(1, int((np.cumsum(sizes[order]) <= _MOST_PARTS).sum()))])


def _mean(wanted: Matrix, importance: npt.NDArray[np.float64]) -> Matrix:
    mean: Matrix = np.tensordot(importance / importance.sum(), wanted, axes=1).astype(np.float32)
    return mean


def _shares(asked: Matrix, sizes: npt.NDArray[np.int64]) -> Matrix:
    """How the calls of each tool are divided among the parts of queries; shape (parts, seen)."""
    likely = np.maximum(asked, _LEAST_SHARE)
    sums = np.add.reduceat(likely, np.cumsum(sizes) - sizes, axis=0)
    shares: Matrix = likely / np.repeat(sums, sizes, axis=0)
    return shares


def _targets(called: csr_array, seen: Indices) -> Matrix:
    """Presence and number of calls of each tool in each plan; shape (plans, 2, seen)."""
    counts = called[:, seen].toarray()
    return np.stack([np.minimum(counts, 1), np.minimum(counts, _MOST)], axis=1).astype(np.float32)
