"""A log-linear ranker of candidates with hashed features, trained by AdaGrad.

A candidate's score is the sum of its rows. A span has a row of its first token, one of its last,
and one for both together (a pointer network's factors, Vinyals et al. 2015, with a linear model for
the network), so that a text of n tokens costs n scores and not n times the length of spans. Several
candidates may have the wanted value: the loss is the negative log of their joint probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.candidates import Candidates
from dtdr.predict.arguments.hashing import BUCKETS, Block, Buckets, Hashes, Rows, buckets

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]

_RATE = 0.05
_LEAST_SQUARE = 1e-3
_SETTLED_SQUARE = 1.0
"""Of weights that were learned before: a further example changes them by a tenth at most."""
_BATCH = 64
_LEAST_BATCHES = 32
"""Of few examples smaller batches are made."""
_HIGHEST = 600.0
"""Of scores, which stay below 100 by far; the exponential function is finite there."""
_LEAST_WEIGHT = 0.02
"""Of half the calls of an inner fold of TRAJECT-Bench .657 were exact with all weights, .663 with
the 1.8 of 4.0 million above this."""
_MOST_KNOWN = 256
"""Slots that the scores of rows are kept for; those of a text of 40 words take 10 KB."""


@dataclass(slots=True, eq=False)
class Example:
    """What learning needs of the c candidates of one slot, and the positions of the right ones."""

    keys: Hashes
    count: int
    blocks: list[Block]
    targets: Positions

    @classmethod
    def of(cls, candidates: Candidates, targets: Positions) -> Example:
        """An example without the rows that no candidate has."""
        blocks = []
        for block in candidates.blocks:
            rows, codes = block.rows.take(block.codes)
            blocks.append(Block(rows, block.first, codes.astype(np.int32)))
        return cls(candidates.keys, len(candidates), blocks, targets)


class CandidateRanker:
    """Weights of hashed features.

    Args:
        buckets: of the features that have a weight; shape (f,).
        weights: shape (f,).

    Raises:
        ValueError: they cannot be buckets and weights.
    """

    def __init__(self, buckets: Buckets | None = None, weights: Floats | None = None) -> None:
        self._buckets = np.zeros(0, np.int32) if buckets is None else buckets
        own = np.zeros(0, np.float32) if weights is None else weights
        is_sound = (
            own.ndim == 1
            and own.shape == self._buckets.shape
            and bool(((self._buckets >= 0) & (self._buckets < BUCKETS)).all())
            and bool(np.isfinite(own).all())
        )
        if not is_sound:
            raise ValueError("no buckets and weights")
        # The first is the weight of all features that have none.
        self._weights = np.concatenate([np.zeros(1, np.float32), own])
        self._squares: Floats | None = None
        self._table: Floats | None = None
        # Names the table in the scores that rows keep, so that no rows keep an old table itself.
        self._mark = object()

    def arrays(self) -> tuple[Buckets, Floats]:
        """Buckets and their weights, as the constructor takes them."""
        return self._buckets, self._weights[1:]

    def copy(self) -> CandidateRanker:
        """One that learns on from the same weights, in smaller steps."""
        result = CandidateRanker(*self.arrays())
        result._squares = np.full(len(self._weights), _SETTLED_SQUARE, np.float32)
        return result

    # -- scoring -------------------------------------------------------------------------------

    def probabilities(self, candidates: Candidates) -> npt.NDArray[np.float64]:
        """Of each candidate; they sum to 1, shape (c,)."""
        total = np.zeros(len(candidates), np.float32)
        for rows, first, codes in candidates.blocks:
            total[first : first + len(codes)] += self._score(rows, candidates.keys)[codes]
        raised = np.exp((total - total.max()).astype(np.float64))
        result: npt.NDArray[np.float64] = raised / raised.sum()
        return result

    def _score(self, rows: Rows, keys: Hashes) -> Floats:
        """The scores of rows for a slot; shape (r,)."""
        if self._table is None:
            self._table = np.zeros(BUCKETS, np.float32)
            self._table[self._buckets] = self._weights[1:]
            self._mark = object()
        name = keys.tobytes()
        known = rows.known.get(name)
        if known is not None and known[0] is self._mark:
            return known[1]
        if not len(rows.hashes):
            return np.zeros(len(rows.lengths), np.float32)
        weights = self._table[buckets(rows.hashes, keys[: rows.levels, None])].sum(axis=0)
        scores: Floats = np.add.reduceat(weights, np.cumsum(rows.lengths) - rows.lengths)
        if len(rows.known) >= _MOST_KNOWN:
            rows.known.clear()
        rows.known[name] = (self._mark, scores)
        return scores

    def drop_small(self) -> None:
        """Drop the weights that hardly count, more than half of them."""
        keep = np.abs(self._weights[1:]) > _LEAST_WEIGHT
        self._buckets = self._buckets[keep]
        self._weights = np.concatenate([self._weights[:1], self._weights[1:][keep]])
        self._squares = self._table = None

    # -- training ------------------------------------------------------------------------------

    def train(self, examples: Sequence[Example], epochs: int, seed: int) -> None:
        """Learn from examples, goes on from the weights there are.

        A feature gets a weight where it occurs at least twice: one that occurs once would be
        learned by heart.
        """
        if not examples:
            return
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(examples)).tolist()
        size = max(1, min(_BATCH, len(order) // _LEAST_BATCHES))
        parts = [
            _Batch([examples[place] for place in order[start : start + size]])
            for start in range(0, len(order), size)
        ]
        self._add_features(parts)
        index = self._positions()
        for part in parts:
            part.compile(index)
        if self._squares is None:
            self._squares = np.full(len(self._weights), _LEAST_SQUARE, np.float32)
        for _ in range(epochs):
            for number in rng.permutation(len(parts)).tolist():
                batch = parts[number]
                gradient = batch.gradient(self._weights[batch.columns])
                # AdaGrad (Duchi et al. 2011)
                squares = self._squares[batch.columns] + gradient * gradient
                self._squares[batch.columns] = squares
                self._weights[batch.columns] -= _RATE * gradient / np.sqrt(squares)
        self._table = None

    def _positions(self) -> Buckets:
        """The position of the weight of every bucket; 0 where there is none."""
        index = np.zeros(BUCKETS, np.int32)
        index[self._buckets] = np.arange(1, len(self._weights), dtype=np.int32)
        return index

    def _add_features(self, batches: Sequence[_Batch]) -> None:
        """Give a weight to every feature that two batches have, however few of them there are."""
        is_seen, is_repeated = np.zeros(BUCKETS, np.bool_), np.zeros(BUCKETS, np.bool_)
        for batch in batches:
            is_repeated[batch.flat[is_seen[batch.flat]]] = True
            is_seen[batch.flat] = True
        is_repeated[self._buckets] = False
        added = np.flatnonzero(is_repeated).astype(np.int32)
        self._buckets = np.concatenate([self._buckets, added])
        self._weights = np.concatenate([self._weights, np.zeros(len(added), np.float32)])
        if self._squares is not None:
            more = np.full(len(added), _LEAST_SQUARE, np.float32)
            self._squares = np.concatenate([self._squares, more])


class _Batch:
    """The candidates of several slots: a matrix from weights to rows, one from rows to scores.

    Attributes:
        flat: the buckets of all rows, until ``compile``.
        lengths: how many buckets each row has.
        owner: the slot of each candidate.
        columns: positions of the weights; shape (w,).
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        counts = [one.count for one in examples]
        firsts = np.cumsum([0, *counts])
        self.owner = np.repeat(np.arange(len(examples)), counts)
        self._count = len(examples)
        self._is_target = np.zeros(len(self.owner), np.bool_)
        flat, lengths, candidates, rows = [], [], [], []
        offset = 0
        for first, example in zip(firsts.tolist(), examples, strict=False):
            self._is_target[example.targets + first] = True
            for block in example.blocks:
                levels = block.rows.levels
                joined = buckets(block.rows.hashes[:, None], example.keys[:levels])
                flat.append(joined.ravel())
                lengths.append(block.rows.lengths * levels)
                candidates.append(np.arange(len(block.codes)) + (first + block.first))
                rows.append(block.codes + offset)
                offset += len(block.rows.lengths)
        self.flat, self.lengths = np.concatenate(flat), np.concatenate(lengths)
        self._rows = _matrix(
            np.concatenate(candidates), np.concatenate(rows), (len(self.owner), offset)
        )

    def compile(self, index: Buckets) -> None:
        """Make the matrix of features, by what ``CandidateRanker._positions`` gives."""
        places = index[self.flat]
        rows = np.repeat(np.arange(len(self.lengths)), self.lengths)[places > 0]
        self.flat = self.flat[:0]
        places = places[places > 0]
        is_used = np.zeros(int(places.max(initial=0)) + 1, np.bool_)
        is_used[places] = True
        self.columns = np.flatnonzero(is_used)
        local = np.zeros(len(is_used), np.int32)
        local[self.columns] = np.arange(len(self.columns), dtype=np.int32)
        self._features = _matrix(rows, local[places], (len(self.lengths), len(self.columns)))

    def scores(self, weights: Floats) -> Floats:
        """Of each candidate, with the weights of ``columns``."""
        result: Floats = self._rows @ (self._features @ weights)
        return result

    def gradient(self, weights: Floats) -> Floats:
        """The derivative of the loss by the weights; shape (w,)."""
        raised = np.exp(np.minimum(self.scores(weights).astype(np.float64), _HIGHEST))
        wanted = np.where(self._is_target, raised, 0.0)
        count, owner = self._count, self.owner
        errors = raised / np.bincount(owner, raised, count)[owner]
        errors -= wanted / np.bincount(owner, wanted, count)[owner]
        result: Floats = self._features.T @ (self._rows.T @ errors.astype(np.float32))
        return result


def _matrix(rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
