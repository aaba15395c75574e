"""A log-linear ranker of candidates with hashed features, trained by AdaGrad.

A span's score is that of its first token, plus that of its last, plus what is known of both
together (a pointer network's factors, Vinyals et al. 2015, with a linear model for the network), so
that a text of n tokens costs n scores and not n times the length of spans. Several candidates may
hold the wanted value: the loss is the negative log of their joint probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.candidates import Candidates, TextView
from dtdr.predict.arguments.features import COLUMNS
from dtdr.predict.arguments.hashing import BUCKETS, Buckets, Hashes, buckets, features

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]

LEVELS = 3
_KIND_LEVELS = 2
"""Kinds are joined with the tool's slot and with the slot's name, not with any."""
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


@dataclass(slots=True, eq=False)
class Example:
    """The features of the candidates of one slot, and the positions of the right ones."""

    view: TextView
    kinds: Hashes
    context: Hashes
    parts: list[Hashes]
    rows: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int32]
    targets: Positions

    @classmethod
    def of(cls, candidates: Candidates, targets: Positions) -> Example:
        """What learning needs of candidates."""
        table = candidates.table
        return cls(
            candidates.view,
            _kind_hashes(table.kinds),
            np.concatenate([candidates.view.context, table.context, candidates.context]),
            [*table.parts, *candidates.parts],
            np.concatenate([table.rows[:, None], candidates.rows], axis=1).astype(np.int32),
            table.kind.astype(np.int32),
            targets,
        )


class _TableScores(NamedTuple):
    """What a table of weights says of a slot's rows and kinds before anything is decided."""

    table: Floats
    kind_hashes: Hashes
    rows: Floats
    kinds: Floats


@dataclass(slots=True, eq=False)
class _TextScores:
    """What a table of weights says of spans before it is known which were used; shape (m,)."""

    table: Floats
    spans: Floats


class CandidateRanker:
    """Weights of hashed features.

    Args:
        buckets: of the features that have a weight; shape (f,).
        weights: shape (f,).
    """

    def __init__(self, buckets: Buckets | None = None, weights: Floats | None = None) -> None:
        none = np.zeros(1, np.float32)  # the weight of all features that have none
        self._buckets = np.zeros(0, np.int32) if buckets is None else buckets
        self._weights = none if weights is None else np.concatenate([none, weights])
        self._squares: Floats | None = None
        self._table: Floats | None = None

    def arrays(self) -> tuple[Buckets, Floats]:
        """Buckets and their weights, as the constructor takes them."""
        return self._buckets, self._weights[1:]

    def copy(self) -> CandidateRanker:
        """One that learns on from the same weights, in smaller steps."""
        result = CandidateRanker(*self.arrays())
        result._squares = np.full(len(self._weights), _SETTLED_SQUARE, np.float32)
        return result

    # -- scoring -------------------------------------------------------------------------------

    def score_texts(self, views: Sequence[TextView]) -> None:
        """Score the texts of a run for several slots at once, those that have no scores."""
        table = self._lookup()
        views = [
            view
            for view in views
            if not isinstance(view.scores, _TextScores) or view.scores.table is not table
        ]
        if not views:
            return
        texts = views[0].texts
        for view in views:
            if not len(view.spans.first):
                view.scores = _TextScores(table, np.zeros(0, np.float32))
        views = [view for view in views if len(view.spans.first)]
        if not views:
            return
        # Keys that slots share are computed once.
        keys, places = np.unique(np.stack([view.keys for view in views]), return_inverse=True)
        places = places.reshape(len(views), LEVELS)

        def score(hashes: Hashes) -> Floats:
            rows = table[buckets(hashes, keys[:, None, None])].sum(axis=2)
            result: Floats = rows[places].sum(axis=1)
            return result

        starts, ends = score(texts.start_features), score(texts.end_features)
        types = score(texts.type_features)
        for number, view in enumerate(views):
            columns = table[buckets(COLUMNS, view.keys[:, None])].sum(axis=0)
            first = starts[number] + columns[view.columns].sum(axis=1)
            spans = first[texts.start_row] + ends[number][texts.end_row]
            spans += types[number][texts.span_type]
            view.scores = _TextScores(table, spans)

    def probabilities(self, candidates: Candidates) -> npt.NDArray[np.float64]:
        """Shape (m + o,): of each span, then of each other candidate; they sum to 1."""
        weights, view, table = self._lookup(), candidates.view, candidates.table
        self.score_texts([view])
        known = table.scores
        if not isinstance(known, _TableScores) or known.table is not weights:
            hashes = _kind_hashes(table.kinds)
            context = np.concatenate([view.context, table.context])
            kinds = self._score_kinds(hashes, context, view.keys)
            known = _TableScores(weights, hashes, self._score_rows(table.parts, view.keys), kinds)
            table.scores = known
        further = self._score_rows(candidates.parts, view.keys)
        # The last row is that of candidates with fewer.
        rows = np.concatenate([known.rows, further, np.zeros(1, np.float32)])
        kinds = known.kinds + self._score_kinds(known.kind_hashes, candidates.context, view.keys)
        total = rows[table.rows] + rows[candidates.rows].sum(axis=1) + kinds[table.kind]
        total[: candidates.spans] += view.scores.spans
        raised = np.exp((total - total.max()).astype(np.float64))
        result: npt.NDArray[np.float64] = raised / raised.sum()
        return result

    def _score_rows(self, parts: Sequence[Hashes], keys: Hashes) -> Floats:
        if not parts:
            return np.zeros(0, np.float32)
        scores = self._lookup()[buckets(np.concatenate(parts), keys[:, None])].sum(axis=0)
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        result: Floats = np.add.reduceat(scores, np.cumsum(lengths) - lengths)
        return result

    def _score_kinds(self, kinds: Hashes, context: Hashes, keys: Hashes) -> Floats:
        crossed = self._lookup()[_cross(kinds, context, keys)]
        result: Floats = crossed.reshape(len(kinds), -1).sum(axis=1)
        return result

    def _lookup(self) -> Floats:
        """The weight of every bucket."""
        if self._table is None:
            table = np.zeros(BUCKETS, np.float32)
            table[self._buckets] = self._weights[1:]
            self._table = table
        return self._table

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
        index = np.zeros(BUCKETS, np.int32)
        index[self._buckets] = np.arange(1, len(self._weights), dtype=np.int32)
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
        columns: positions of the weights; shape (w,).
    """

    _ones = np.ones(0, np.float32)  # one array for all matrices

    def __init__(self, examples: Sequence[Example]) -> None:
        self.flat, self.lengths, self.table, self.owner = _flatten(examples)
        self._count = len(examples)
        firsts = np.searchsorted(self.owner, np.arange(len(examples)))
        self._is_target = np.zeros(len(self.owner), np.bool_)
        for example, first in zip(examples, firsts.tolist(), strict=True):
            self._is_target[example.targets + first] = True

    def compile(self, index: Buckets) -> None:
        """Make the matrices.

        Args:
            index: the position of the weight of every bucket; 0 where there is none.
        """
        places = index[self.flat]
        self.flat = self.flat[:0]
        is_known = places > 0
        counts = np.zeros(len(places) + 1, np.int32)
        np.cumsum(is_known, out=counts[1:])
        ends = counts[np.r_[0, np.cumsum(self.lengths)]]
        places = places[is_known]
        is_used = np.zeros(int(places.max(initial=0)) + 1, np.bool_)
        is_used[places] = True
        self.columns = np.flatnonzero(is_used)
        local = np.zeros(len(is_used), np.int32)
        local[self.columns] = np.arange(len(self.columns), dtype=np.int32)
        rows = len(self.lengths)
        self._features = self._matrix(local[places], ends, (rows, len(self.columns)))
        has_row = self.table >= 0
        starts = np.r_[0, np.cumsum(has_row.sum(axis=1))]
        self._rows = self._matrix(self.table[has_row], starts, (len(self.table), rows))

    @classmethod
    def _matrix(cls, columns: Any, starts: Any, shape: tuple[int, int]) -> Any:
        from scipy.sparse import csr_array

        if len(cls._ones) < len(columns):
            cls._ones = np.ones(2 * len(columns), np.float32)
        cells = (cls._ones[: len(columns)], columns.astype(np.int32), starts.astype(np.int32))
        return csr_array(cells, shape=shape)

    def gradient(self, weights: Floats) -> Floats:
        """The derivative of the loss by the weights; shape (w,)."""
        scores = self._rows @ (self._features @ weights)
        raised = np.exp(np.minimum(scores.astype(np.float64), _HIGHEST))
        wanted = np.where(self._is_target, raised, 0.0)
        count, owner = self._count, self.owner
        errors = raised / np.bincount(owner, raised, count)[owner]
        errors -= wanted / np.bincount(owner, wanted, count)[owner]
        result: Floats = self._features.T @ (self._rows.T @ errors.astype(np.float32))
        return result


def _flatten(
    examples: Sequence[Example],
) -> tuple[Buckets, Positions, Positions, Positions]:
    """The features of several slots as buckets, row by row.

    Rows are the tokens as first ones, the tokens as last ones, the types of spans, those of
    candidates, and the kinds.

    Returns:
        The buckets of all rows, one after the other; how many each row has; the rows of each
        candidate, -1 where it has fewer, shape (candidates, 7); and the slot of each.
    """
    views = [one.view for one in examples]
    texts = [view.spans for view in views]
    firsts = [len(text.start_features) for text in texts]
    lasts = [len(text.end_features) for text in texts]
    types = [len(text.type_features) for text in texts]
    others = [len(one.parts) for one in examples]
    kinds = [len(one.kinds) for one in examples]
    keys = np.stack([view.keys for view in views])
    starts = np.concatenate(
        [
            np.concatenate([text.start_features for text in texts]),
            COLUMNS[np.concatenate([view.columns for view in views])],
        ],
        axis=1,
    )
    ends = np.concatenate([text.end_features for text in texts])
    type_features = np.concatenate([text.type_features for text in texts])
    parts = [part for one in examples for part in one.parts]
    part_lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    owner_of_part = np.repeat(np.arange(len(examples)), others)
    flat = [
        _join(starts, np.repeat(keys, firsts, axis=0)),
        _join(ends, np.repeat(keys, lasts, axis=0)),
        _join(type_features, np.repeat(keys, types, axis=0)),
        _join(np.concatenate(parts)[:, None], np.repeat(keys[owner_of_part], part_lengths, axis=0)),
        *(
            _cross(one.kinds, one.context, view.keys)
            for one, view in zip(examples, views, strict=True)
        ),
    ]
    lengths = [
        np.full(len(starts), starts.shape[1] * LEVELS),
        np.full(len(ends), ends.shape[1] * LEVELS),
        np.full(len(type_features), type_features.shape[1] * LEVELS),
        part_lengths * LEVELS,
        np.repeat([len(one.context) * _KIND_LEVELS for one in examples], kinds),
    ]
    offset = np.cumsum([0, *map(len, lengths)])
    first_start, first_end = np.cumsum([0, *firsts]), np.cumsum([0, *lasts])
    first_type = np.cumsum([0, *types])
    first_other, first_kind = np.cumsum([0, *others]), np.cumsum([0, *kinds])
    tables = []
    for number, (one, text) in enumerate(zip(examples, texts, strict=True)):
        table = np.full((len(one.kind), 7), -1, np.int64)
        spans = len(text.first)
        table[:spans, 0] = text.start_row + first_start[number]
        table[:spans, 1] = text.end_row + first_end[number] + offset[1]
        table[:spans, 2] = text.span_type + first_type[number] + offset[2]
        table[:, 3:6] = np.where(one.rows < 0, -1, one.rows + first_other[number] + offset[3])
        table[:, 6] = one.kind + first_kind[number] + offset[4]
        tables.append(table)
    owner = np.repeat(np.arange(len(examples)), [len(table) for table in tables])
    return np.concatenate(flat), np.concatenate(lengths), np.concatenate(tables), owner


def _kind_hashes(kinds: Sequence[str]) -> Hashes:
    return features([f"kind {name}" for name in kinds])


def _join(hashes: Hashes, keys: Hashes) -> Buckets:
    """Every feature of n rows joined with each key of its row, one row after the other."""
    return buckets(hashes[:, :, None], keys[:, None, :]).ravel()


def _cross(kinds: Hashes, context: Hashes, keys: Hashes) -> Buckets:
    """Every kind with what decides between kinds, one kind after the other."""
    return buckets((kinds[:, None] ^ context)[:, :, None], keys[:_KIND_LEVELS]).ravel()
