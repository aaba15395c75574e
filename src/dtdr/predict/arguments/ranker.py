"""A log-linear ranker of candidates with hashed features, trained by AdaGrad.

Features are 32-bit hashes; joined with keys of a slot they name a bucket, which has a weight. A
candidate's score is the sum of its rows. A span has a row of its first token, one of its last,
and one for both together (a pointer network's factors, Vinyals et al. 2015, with a linear model for
the network), so that a text of n tokens costs n scores and not n times the length of spans. Several
candidates may have the wanted value: the loss is the negative log of their joint probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

Hashes = npt.NDArray[np.uint32]
Buckets = npt.NDArray[np.int32]
Codes = npt.NDArray[np.integer[Any]]

BITS = 22
"""With 20 bits, calls filled exactly fell from .654 to .639 on TRAJECT-Bench, from .599 to .597 on
TinyAgent, and from .561 to .550 there with 18."""
BUCKETS = 1 << BITS
LEVELS = 3
"""Keys of a slot, see ``parameter_keys``."""
KIND_LEVELS = 2
"""Kinds are joined with the tool's slot and with the slot's name, not with any."""

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


@lru_cache(maxsize=1 << 15)
def feature(text: str) -> int:
    """The hash of a feature's name; common ones are remembered."""
    return crc32(text.encode("utf-8", "surrogatepass"))


def features(texts: Sequence[str]) -> Hashes:
    """The hashes of several features; shape (n,)."""
    return np.fromiter(map(feature, texts), np.uint32, len(texts))


def parameter_keys(tool: str, parameter: str) -> Hashes:
    """What features are joined with, from the specific to the general; shape (3,).

    The parameter of this tool, the parameter of that name in any tool, and any parameter: a
    parameter that was never seen has weights from the last two. Of a field of an object the name
    is that of the field.
    """
    name = parameter.rpartition("/")[2]
    return features([f"tool:{tool}\x00{parameter}", f"name:{name}", "any"])


def buckets(hashes: Hashes, keys: Hashes) -> Buckets:
    """The places of the weights of features joined with keys; the shapes are broadcast."""
    mixed = (hashes ^ keys) * np.uint32(0x9E3779B1)
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x85EBCA6B)
    mixed >>= np.uint32(32 - BITS)
    return mixed.view(np.int32)


@dataclass(slots=True, eq=False)
class Rows:
    """Rows of features, which one slot after the other is scored with.

    Attributes:
        hashes: the features of all r rows, one row after the other; shape (f,).
        lengths: how many each row has; shape (r,).
        levels: with how many of a slot's keys they are joined.
        known: scores by keys, with the mark of the weights that gave them; a ranker's own.
    """

    hashes: Hashes
    lengths: npt.NDArray[np.int64]
    levels: int = LEVELS
    known: dict[bytes, tuple[object, Floats]] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Sequence[Hashes] | Hashes, levels: int = LEVELS) -> Rows:
        """Rows of any length, or those of a table of shape (r, k)."""
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return cls(np.concatenate([np.zeros(0, np.uint32), *parts]), lengths, levels)

    def take(self, codes: Codes) -> tuple[Rows, Codes]:
        """The rows that codes name and no others, and the codes for these."""
        used, renumbered = np.unique(codes, return_inverse=True)
        if len(used) == len(self.lengths):
            return self, codes
        ends = np.cumsum(self.lengths)
        parts = [self.hashes[ends[row] - self.lengths[row] : ends[row]] for row in used.tolist()]
        return Rows.of(parts, self.levels), renumbered


class Block(NamedTuple):
    """Rows that some candidates in a row have: the first of these, and the row of each."""

    rows: Rows
    first: int
    codes: Codes


@dataclass(slots=True, eq=False)
class Example:
    """What learning needs of the c candidates of one slot, and the positions of the right ones."""

    keys: Hashes
    count: int
    blocks: list[Block]
    targets: Positions

    @classmethod
    def of(cls, keys: Hashes, count: int, blocks: Sequence[Block], targets: Positions) -> Example:
        """An example without the rows that no candidate has."""
        taken = [(block.first, *block.rows.take(block.codes)) for block in blocks]
        kept = [Block(rows, first, codes.astype(np.int32)) for first, rows, codes in taken]
        return cls(keys, count, kept, targets)


class CandidateRanker:
    """Weights of hashed features.

    Args:
        buckets: of the features that have a weight; shape (f,).
        weights: shape (f,).

    Raises:
        ValueError: they cannot be buckets and weights.
    """

    def __init__(self, buckets: Buckets | None = None, weights: Floats | None = None) -> None:
        places = np.zeros(0, np.int32) if buckets is None else buckets
        own = np.zeros(0, np.float32) if weights is None else weights
        is_bucket = (places >= 0) & (places < BUCKETS)
        if own.ndim != 1 or own.shape != places.shape or not (is_bucket & np.isfinite(own)).all():
            raise ValueError("no buckets and weights")
        self._weights = np.zeros(BUCKETS, np.float32)
        self._weights[places] = own
        self._squares: Floats | None = None
        # Names the weights in the scores that rows keep.
        self._mark = object()

    def arrays(self) -> tuple[Buckets, Floats]:
        """Buckets and their weights, as the constructor takes them."""
        places = np.flatnonzero(self._weights).astype(np.int32)
        return places, self._weights[places]

    def copy(self) -> CandidateRanker:
        """One that learns on from the same weights, in smaller steps."""
        result = CandidateRanker(*self.arrays())
        settled = np.where(result._weights != 0, _SETTLED_SQUARE, _LEAST_SQUARE)
        result._squares = settled.astype(np.float32)
        return result

    def probabilities(
        self, keys: Hashes, count: int, blocks: Sequence[Block]
    ) -> npt.NDArray[np.float64]:
        """Of each of the c candidates of a slot; they sum to 1, shape (c,)."""
        total = np.zeros(count, np.float32)
        for rows, first, codes in blocks:
            total[first : first + len(codes)] += self._score(rows, keys)[codes]
        raised = np.exp((total - total.max()).astype(np.float64))
        result: npt.NDArray[np.float64] = raised / raised.sum()
        return result

    def _score(self, rows: Rows, keys: Hashes) -> Floats:
        """The scores of rows for a slot; shape (r,)."""
        name = keys.tobytes()
        known = rows.known.get(name)
        if known is not None and known[0] is self._mark:
            return known[1]
        if not len(rows.hashes):
            return np.zeros(len(rows.lengths), np.float32)
        weights = self._weights[buckets(rows.hashes, keys[: rows.levels, None])].sum(axis=0)
        scores: Floats = np.add.reduceat(weights, np.cumsum(rows.lengths) - rows.lengths)
        if len(rows.known) >= _MOST_KNOWN:
            rows.known.clear()
        rows.known[name] = (self._mark, scores)
        return scores

    def finish(self) -> None:
        """End training: drop the weights that hardly count, more than half of them."""
        self._weights[np.abs(self._weights) <= _LEAST_WEIGHT] = 0.0
        self._squares, self._mark = None, object()

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
        batches = [
            _Batch([examples[place] for place in order[start : start + size]])
            for start in range(0, len(order), size)
        ]
        if self._squares is None:
            self._squares = np.full(BUCKETS, _LEAST_SQUARE, np.float32)
        has_weight, is_seen = self._weights != 0, np.zeros(BUCKETS, np.bool_)
        for batch in batches:
            has_weight[batch.flat[is_seen[batch.flat]]] = True
            is_seen[batch.flat] = True
        for batch in batches:
            batch.compile(has_weight)
        for _ in range(epochs):
            for number in rng.permutation(len(batches)).tolist():
                columns = batches[number].columns
                gradient = batches[number].gradient(self._weights[columns])
                # AdaGrad (Duchi et al. 2011)
                self._squares[columns] += gradient * gradient
                self._weights[columns] -= _RATE * gradient / np.sqrt(self._squares[columns])
        self._mark = object()


class _Batch:
    """The candidates of several slots: a matrix from weights to rows, one from rows to scores.

    Attributes:
        flat: the buckets of all rows, until ``compile``.
        lengths: how many buckets each row has.
        owner: the slot of each candidate.
        columns: the buckets with a weight; shape (w,).
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

    def compile(self, has_weight: npt.NDArray[np.bool_]) -> None:
        """Make the matrix of features, of the buckets that have a weight."""
        keep = has_weight[self.flat]
        places, rows = self.flat[keep], np.repeat(np.arange(len(self.lengths)), self.lengths)[keep]
        self.flat = self.flat[:0]
        is_used = np.zeros(BUCKETS, np.bool_)
        is_used[places] = True
        self.columns = np.flatnonzero(is_used)
        local = np.empty(BUCKETS, np.int32)
        local[self.columns] = np.arange(len(self.columns), dtype=np.int32)
        self._features = _matrix(rows, local[places], (len(self.lengths), len(self.columns)))

    def gradient(self, weights: Floats) -> Floats:
        """The derivative of the loss by the weights; shape (w,)."""
        scores = (self._rows @ (self._features @ weights)).astype(np.float64)
        raised = np.exp(np.minimum(scores, _HIGHEST))
        wanted = np.where(self._is_target, raised, 0.0)
        count, owner = self._count, self.owner
        errors = raised / np.bincount(owner, raised, count)[owner]
        errors -= wanted / np.bincount(owner, wanted, count)[owner]
        result: Floats = self._features.T @ (self._rows.T @ errors.astype(np.float32))
        return result


def _matrix(rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
    return csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
