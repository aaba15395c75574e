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

from dtdr.text.sparse import coo_array, csr_array

Hashes = npt.NDArray[np.uint32]
Buckets = npt.NDArray[np.int32]
Codes = npt.NDArray[np.integer[Any]]

BITS = 22
"""With 20 bits, calls filled exactly fell from .654 to .639 on TRAJECT-Bench, from .599 to .597 on
TinyAgent, and from .561 to .550 there with 18."""
BUCKETS = 1 << BITS
LEVELS = 3
"""Keys of a slot, see ``parameter_keys``."""
KIND_LEVELS = 1
"""Kinds are joined with the tool's slot alone."""

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]

_RATE = 0.05
_LEAST_SQUARE = 1e-3
_SETTLED_SQUARE = 1.0
"""Squared step of learned weights: a further example changes them by a tenth at most."""
_BATCH = 64
_LEAST_BATCHES = 32
"""Fewest batches: few examples are split into smaller ones."""
_PASSES = 4
_HIGHEST = 600.0
"""Highest score; scores stay below 100, and the exponential function is finite there."""
_LEAST_WEIGHT = 0.02
"""On half of an inner fold of TRAJECT-Bench, .657 of calls were exact with all weights, .663 with
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
    """Hashes that features are joined with, from specific to general; shape (3,).

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
        if isinstance(parts, np.ndarray):
            return cls(parts.ravel(), np.full(len(parts), parts.shape[1]), levels)
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return cls(np.concatenate([np.zeros(0, np.uint32), *parts]), lengths, levels)

    def take(self, codes: Codes) -> tuple[Rows, Codes]:
        """The rows that codes name and no others, and the codes for these."""
        is_used = np.bincount(codes, minlength=len(self.lengths)) > 0
        hashes = self.hashes[np.repeat(is_used, self.lengths)]
        row_of = np.cumsum(is_used) - 1
        return Rows(hashes, self.lengths[is_used], self.levels), row_of[codes]


class CandidateBlock(NamedTuple):
    """Rows that some candidates in a row have: the first of these, and the row of each."""

    rows: Rows
    first: int
    codes: Codes


class SlotExample(NamedTuple):
    """The c candidates of one slot for learning, and the positions of the right ones."""

    keys: Hashes
    candidates: int
    blocks: Sequence[CandidateBlock]
    targets: Positions


class ValueRanker:
    """Weights of hashed features.

    Args:
        buckets: of the features that have a weight; shape (f,).
        weights: shape (f,).

    Raises:
        ValueError: they cannot be buckets and weights.
    """

    def __init__(self, buckets: Buckets | None = None, weights: Floats | None = None) -> None:
        buckets = np.zeros(0, np.int32) if buckets is None else buckets
        weights = np.zeros(0, np.float32) if weights is None else weights
        if weights.ndim != 1 or weights.shape != buckets.shape:
            raise ValueError("buckets and weights have other shapes than (f,)")
        if not ((buckets >= 0) & (buckets < BUCKETS) & np.isfinite(weights)).all():
            raise ValueError("a bucket is out of range, or a weight is not finite")
        self._weights = np.zeros(BUCKETS, np.float32)
        self._weights[buckets] = weights
        self._squares: Floats | None = None
        # Names the weights in the scores that rows keep.
        self._mark = object()

    def arrays(self) -> tuple[Buckets, Floats]:
        """Buckets and their weights, as the constructor takes them."""
        places = np.flatnonzero(self._weights).astype(np.int32)
        return places, self._weights[places]

    def copy(self) -> ValueRanker:
        """One that learns on from the same weights, in smaller steps."""
        result = ValueRanker(*self.arrays())
        settled = np.where(result._weights != 0, _SETTLED_SQUARE, _LEAST_SQUARE)
        result._squares = settled.astype(np.float32)
        return result

    def probabilities(
        self, keys: Hashes, count: int, blocks: Sequence[CandidateBlock]
    ) -> npt.NDArray[np.float64]:
        """Probabilities of the c candidates of a slot; they sum to 1, shape (c,)."""
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

    def train(self, examples: Sequence[SlotExample], seed: int) -> None:
        """Learn from examples, going on from the weights there are.

        A feature gets a weight where it occurs in two batches: one that occurs once would be
        learned by heart.
        """
        if not examples:
            return
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(examples)).tolist()
        size = max(1, min(_BATCH, len(order) // _LEAST_BATCHES))
        starts = range(0, len(order), size)
        batches = [_Batch([examples[item] for item in order[at : at + size]]) for at in starts]
        if self._squares is None:
            self._squares = np.full(BUCKETS, _LEAST_SQUARE, np.float32)
        batches_with = np.zeros(BUCKETS, np.uint16)
        for batch in batches:
            batches_with[batch.distinct] += 1
        # Arrays of the trained buckets alone are several times as fast as those of all buckets.
        trained = np.flatnonzero((batches_with > 1) | (self._weights != 0))
        column_of = np.full(BUCKETS, -1, np.int32)
        column_of[trained] = np.arange(len(trained), dtype=np.int32)
        weights, squares = self._weights[trained], self._squares[trained]
        scratch = np.empty(BUCKETS, np.int32)
        for batch in batches:
            batch.compile(column_of, scratch)
        for _ in range(_PASSES):
            for item in rng.permutation(len(batches)).tolist():
                columns = batches[item].columns
                before = weights[columns]
                gradient = batches[item].gradient(before)
                # AdaGrad (Duchi et al. 2011)
                square = squares[columns] + gradient * gradient
                squares[columns] = square
                weights[columns] = before - _RATE * gradient / np.sqrt(square)
        self._weights[trained], self._squares[trained] = weights, squares
        self._mark = object()


class _Batch:
    """The candidates of several slots: a matrix from weights to rows, one from rows to scores.

    Attributes:
        flat: the buckets of all rows, until ``compile``.
        distinct: each of them once, sorted.
        columns: the numbers of the features with a weight; shape (w,).
    """

    def __init__(self, examples: Sequence[SlotExample]) -> None:
        counts = np.array([item.candidates for item in examples])
        firsts = np.cumsum(counts) - counts
        self._owner = np.repeat(np.arange(len(examples)), counts)
        self._is_target = np.zeros(len(self._owner), np.bool_)
        offsets: dict[tuple[int, bytes], int] = {}
        tables, keys = list[Rows](), list[Hashes]()
        ranges, codes = list[tuple[int, int, int]](), list[Codes]()
        size = 0
        for first, example in zip(firsts.tolist(), examples, strict=True):
            self._is_target[example.targets + first] = True
            slot = example.keys.tobytes()
            for block in example.blocks:
                name = id(block.rows), slot
                if name not in offsets:
                    offsets[name] = size
                    size += len(block.rows.lengths)
                    tables.append(block.rows)
                    keys.append(example.keys)
                codes.append(block.codes)
                ranges.append((first + block.first, offsets[name], len(block.codes)))
        starts, offset, sizes = np.array(ranges).T
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes - starts, sizes)
        rows = np.concatenate(codes) + np.repeat(offset, sizes)
        is_used = np.bincount(rows, minlength=size) > 0
        lengths = np.concatenate([item.lengths for item in tables])
        taken = np.repeat(is_used, lengths)
        hashes = np.concatenate([item.hashes for item in tables])[taken]
        table = np.repeat(np.arange(len(tables)), [len(item.hashes) for item in tables])[taken]
        levels = np.array([item.levels for item in tables])
        is_joined = np.arange(LEVELS) < levels[table, None]
        self.flat = buckets(hashes[:, None], np.stack(keys)[table])[is_joined]
        joined = np.repeat(levels, [len(item.lengths) for item in tables])
        self._lengths = (lengths * joined)[is_used]
        ordered = np.sort(self.flat)
        self.distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])]
        row_of = np.cumsum(is_used, dtype=np.int32) - 1
        entries = np.ones(len(rows), np.float32), (within.astype(np.int32), row_of[rows])
        self._rows = coo_array(entries, shape=(len(self._owner), len(self._lengths)))

    def compile(self, column_of: npt.NDArray[np.int32], column: npt.NDArray[np.int32]) -> None:
        """Make the matrix of features, by each bucket's weight (-1: none); ``column`` is room."""
        columns = column_of[self.distinct]
        has_weight = columns >= 0
        self.columns = columns[has_weight]
        column[self.distinct] = np.where(has_weight, np.cumsum(has_weight) - 1, -1)
        columns = column[self.flat]
        keep = columns >= 0
        ends = np.cumsum(keep, dtype=np.int32)[np.cumsum(self._lengths) - 1]
        columns, starts = columns[keep], np.append(np.int32(0), ends)
        entries = np.ones(len(columns), np.float32), columns, starts
        self._features = csr_array(entries, shape=(len(ends), len(self.columns)))
        self.flat = self.distinct = self.flat[:0]

    def gradient(self, weights: Floats) -> Floats:
        """The derivative of the loss by the weights; shape (w,)."""
        scores, owner = (self._rows @ (self._features @ weights)).astype(np.float64), self._owner
        raised = np.exp(np.minimum(scores, _HIGHEST))
        wanted = np.where(self._is_target, raised, 0.0)
        errors = raised / np.bincount(owner, raised)[owner]
        errors -= wanted / np.bincount(owner, wanted)[owner]
        result: Floats = self._features.T @ (self._rows.T @ errors.astype(np.float32))
        return result
