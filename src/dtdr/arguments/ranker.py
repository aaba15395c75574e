"""A log-linear ranker of candidates with hashed features, trained by AdaGrad.

A span's score is that of its first token, plus that of its last, plus what is known of both
together (a pointer network's factors, Vinyals et al. 2015, with a linear model for the network), so
that a text of n tokens costs n scores and not n times the length of spans. Several candidates may
hold the wanted value: the loss is the negative log of their joint probability.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtdr.arguments.batch import (
    LEVELS,
    Batch,
    Example,
    Floats,
    MemberExample,
    MemberRows,
    Positions,
    cross_kinds,
    join_keys,
    member_arrays,
    span_kinds,
)
from dtdr.arguments.candidates import CandidateFeatures, TextView
from dtdr.arguments.features import COLUMNS, LAST_USED, USAGE
from dtdr.arguments.hashing import BUCKETS, Buckets, Hashes, buckets

_RATE = 0.05
_LEAST_SQUARE = 1e-3
_SETTLED_SQUARE = 1.0
"""Of weights that were learned before: a further example changes them by a tenth at most."""
_SURE = 0.99
"""An example whose right values are more probable teaches little: the next pass leaves it out."""
_BATCH = 64
_MEMBER_BATCH = 512
_HIGHEST = 600.0
"""Of scores, which stay below 100 by far; the exponential function is finite there."""
_LEAST_WEIGHT = 0.02
"""Of half the calls of an inner fold of TRAJECT-Bench .657 were exact with all weights, .663 with
the 1.8 of 4.0 million above this."""


@dataclass(slots=True, eq=False)
class _TextScores:
    """What a table of weights says of spans before it is known which were used; shape (m,)."""

    table: Floats
    spans: Floats


class _KeyScores:
    """What a table of weights says of features that do not depend on texts, key by key."""

    _HASHES = np.concatenate([COLUMNS, LAST_USED, USAGE.ravel()])
    _PARTS = np.cumsum([len(COLUMNS), len(LAST_USED)])

    def __init__(self) -> None:
        self._scores: dict[tuple[int, ...], tuple[Floats, ...]] = {}

    def of(self, keys: Hashes, table: Floats) -> tuple[Floats, ...]:
        """Of each of ``COLUMNS``, ``LAST_USED`` and ``USAGE``."""
        name = tuple(keys.tolist())
        if name not in self._scores:
            scores = table[buckets(self._HASHES, keys[:, None])].sum(axis=0)
            columns, last, usage = np.split(scores, self._PARTS)
            self._scores[name] = columns, last, usage.reshape(USAGE.shape).sum(axis=1)
        return self._scores[name]


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
        self._key_scores = _KeyScores()

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
        """Score the texts of a run for several parameters at once, those that have no scores."""
        table = self._lookup()
        views = [
            view
            for view in views
            if not isinstance(view.scores, _TextScores) or view.scores.table is not table
        ]
        if not views:
            return
        texts = views[0].texts
        # Keys that parameters share are computed once.
        keys, places = np.unique(np.stack([view.keys for view in views]), return_inverse=True)
        places = places.reshape(len(views), LEVELS)

        def score(hashes: Hashes) -> Floats:
            rows = table[buckets(hashes, keys[:, None, None])].sum(axis=2)
            result: Floats = rows[places].sum(axis=1)
            return result

        starts, ends = score(texts.start_features), score(texts.end_features)
        types = score(texts.type_features)
        for number, view in enumerate(views):
            columns = self._key_scores.of(view.keys, table)[0]
            first = starts[number] + columns[view.columns].sum(axis=1)
            spans = first[texts.first] + ends[number][texts.last] + types[number][texts.span_type]
            view.scores = _TextScores(table, spans)

    def probabilities(self, candidates: CandidateFeatures) -> npt.NDArray[np.float64]:
        """Shape (m + o,): of each span, then of each other candidate; they sum to 1."""
        table, view = self._lookup(), candidates.view
        self.score_texts([view])
        _, last_used, usage = self._key_scores.of(view.keys, table)
        rows = table[buckets(np.concatenate(candidates.row_parts), view.keys[:, None])].sum(axis=0)
        firsts = np.cumsum(candidates.row_lengths, dtype=np.int64) - candidates.row_lengths
        others = np.add.reduceat(rows, firsts)[candidates.other_row]
        context = np.concatenate([view.context, candidates.context])
        crossed = table[cross_kinds(candidates.kinds, context, view.keys)]
        kinds = crossed.reshape(len(candidates.kinds), -1).sum(axis=1)
        spans = view.scores.spans + usage[candidates.usage]
        spans += last_used[candidates.last_used][view.texts.first]
        spans += kinds[1] if candidates.message_kind == 1 else kinds[span_kinds(candidates)]
        scores = np.concatenate([spans, others + kinds[candidates.other_kind]]).astype(np.float64)
        raised = np.exp(scores - scores.max())
        result: npt.NDArray[np.float64] = raised / raised.sum()
        return result

    def member_probabilities(self, rows: MemberRows) -> npt.NDArray[np.float64]:
        """Shape (2, n): how likely each belongs to a list, if the one before does not or does."""
        table = self._lookup()
        own = table[join_keys(rows.hashes, rows.keys[None])].sum(axis=1)
        links = table[join_keys(rows.links.reshape(-1, 1), rows.keys[None])].sum(axis=1)
        return _logistic(own + links.reshape(-1, 2).T)

    def _lookup(self) -> Floats:
        """The weight of every bucket."""
        if self._table is None:
            table = np.zeros(BUCKETS, np.float32)
            table[self._buckets] = self._weights[1:]
            self._table = table
            self._key_scores = _KeyScores()
        return self._table

    def drop_small(self) -> None:
        """Drop the weights that hardly count, more than half of them."""
        keep = np.abs(self._weights[1:]) > _LEAST_WEIGHT
        self._buckets = self._buckets[keep]
        self._weights = np.concatenate([self._weights[:1], self._weights[1:][keep]])
        self._squares = self._table = None

    # -- training ------------------------------------------------------------------------------

    def add_features(self, examples: Sequence[Example], members: Sequence[MemberExample]) -> None:
        """Give a weight to every feature that occurs at least twice; those there are stay."""
        # One that occurs once would be learned by heart.
        is_seen, is_repeated = np.zeros(BUCKETS, np.bool_), np.zeros(BUCKETS, np.bool_)

        def note(buckets: Buckets) -> None:
            ordered = np.sort(buckets)
            is_new = np.ones(len(ordered), np.bool_)
            is_new[1:] = ordered[1:] != ordered[:-1]
            distinct = ordered[is_new]
            is_repeated[distinct[is_seen[distinct]]] = True
            is_repeated[ordered[~is_new]] = True
            is_seen[distinct] = True

        for part in _parts(np.arange(len(examples)), _BATCH):
            note(Batch([examples[place].features for place in part]).buckets)
        for start in range(0, len(members), _MEMBER_BATCH):
            hashes, keys, _ = member_arrays(members[start : start + _MEMBER_BATCH])
            note(join_keys(hashes, keys).ravel())
        is_repeated[self._buckets] = False
        added = np.flatnonzero(is_repeated).astype(np.int32)
        self._buckets = np.concatenate([self._buckets, added])
        self._weights = np.concatenate([self._weights, np.zeros(len(added), np.float32)])
        if self._squares is not None:
            more = np.full(len(added), _LEAST_SQUARE, np.float32)
            self._squares = np.concatenate([self._squares, more])

    def train(self, examples: Sequence[Example], epochs: int, seed: int) -> None:
        """Learn from examples, in another order each time; goes on from the weights there are."""
        from scipy.sparse import csr_array

        index = self._index()
        ones = np.ones(0, np.float32)
        rng = np.random.default_rng(seed)
        shares = np.zeros(len(examples))  # of the right values, 0 where not seen in the last pass
        for _ in range(epochs):
            order = rng.permutation(len(examples))
            order = order[shares[order] < _SURE]
            shares[shares >= _SURE] = 0
            for part in _parts(order, _BATCH):
                chosen = [examples[place] for place in part]
                batch = Batch([item.features for item in chosen])
                if len(ones) < len(batch.buckets):
                    ones = np.ones(2 * len(batch.buckets), np.float32)
                matrix = csr_array(
                    (ones[: len(batch.buckets)], index[batch.buckets], batch.rows.astype(np.int32)),
                    shape=(len(batch.rows) - 1, len(self._weights)),
                )
                scores = batch.candidate_scores(matrix @ self._weights)
                is_target = batch.targets(chosen)
                wanted = np.where(is_target, scores, -np.inf)
                predicted = _softmax(scores, batch.owner, batch.count)
                shares[part] = np.bincount(batch.owner, predicted * is_target, batch.count)
                errors = predicted - _softmax(wanted, batch.owner, batch.count)
                self._step(matrix.T @ batch.row_errors(errors))

    def train_members(self, members: Sequence[MemberExample], epochs: int, seed: int) -> None:
        """Learn which candidates belong to lists."""
        index = self._index()
        hashes, keys, labels = member_arrays(members)
        rng = np.random.default_rng(seed)
        for _ in range(epochs):
            for part in _parts(rng.permutation(len(hashes)), _MEMBER_BATCH):
                chosen = index[join_keys(hashes[part], keys[part])]
                errors = _logistic(self._weights[chosen].sum(axis=1)) - labels[part]
                repeated = np.repeat(errors, chosen.shape[1])
                gradient = np.bincount(chosen.ravel(), repeated, len(self._weights))
                self._step(gradient.astype(np.float32))

    def _index(self) -> Buckets:
        """The position of the weight of every bucket; 0 where there is none."""
        index = np.zeros(BUCKETS, np.int32)
        index[self._buckets] = np.arange(1, len(self._weights), dtype=np.int32)
        return index

    def _step(self, gradient: Floats) -> None:
        """One step of AdaGrad (Duchi et al. 2011)."""
        if self._squares is None:
            self._squares = np.full(len(self._weights), _LEAST_SQUARE, np.float32)
        gradient[0] = 0
        touched = np.flatnonzero(gradient != 0)  # four times as fast as of the numbers themselves
        slopes = gradient[touched]
        squares = self._squares[touched] + slopes * slopes
        self._squares[touched] = squares
        self._weights[touched] -= _RATE * slopes / np.sqrt(squares)
        self._table = None


def _parts(order: Positions, size: int) -> Iterable[Positions]:
    return (order[start : start + size] for start in range(0, len(order), size))


def _logistic(scores: Floats) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(scores.astype(np.float64), -30, 30)))
    return result


def _softmax(scores: Floats, owner: Positions, count: int) -> npt.NDArray[np.float64]:
    """Within each parameter; a score of minus infinity has probability 0."""
    raised = np.exp(np.minimum(scores.astype(np.float64), _HIGHEST))
    result: npt.NDArray[np.float64] = raised / np.bincount(owner, raised, count)[owner]
    return result
