"""Which part of the query each tool serves, and how far into the query the calls have come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.retrievers.factored.blocks.base import (
    Arrays,
    Begin,
    Block,
    CallEvent,
    PlanUpdate,
    Query,
    TrainingSet,
    read_word_weights,
)
from dtdr.retrievers.factored.blocks.descriptions import best_of_others
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.query_features import QueryFeatures
from dtdr.retrievers.factored.ridge import correct_weights, insert_rows, pick_columns
from dtdr.retrievers.factored.tool_texts import DENSE_VALUES
from dtdr.retrievers.nn import Indices, Matrix

BINS = 32
"""Parts that a query is divided into."""
_MAX_WORDS = 400
"""Words of a query that are looked at; the longest query of four public sets has 291."""
_BACK = 2
"""Parts that a call may reach back: plans follow the query's order, but not to the word."""
_SERVED = 0.15
"""A call moves the pointer if more than this share of its tool's score is still ahead."""
_NOWHERE = 1.5
"""Centre of a tool that no word ahead speaks for: past the end of the query."""
_GRID = 4
"""Steps of the pointer within a part that are told apart."""
_SCORES = 5
"""Rows that ``QueryAlignment.scores`` writes."""
_LITTLE = 1e-3
"""Added to scores before their logarithm; a score as low as this has its centre half-way to
``_NOWHERE``."""
_LEAST = 1e-5
"""Lower scores than this move no pointer."""
_CACHED_WORDS = 64
"""Most queries are no longer; their windows are cached: at most 21 MB, made in a tenth of a
millisecond a length."""


class Alignment(Block):
    """How much each word of a query speaks for each tool, and a pointer that calls move along.

    A word speaks for a tool by ridge regression of "the plan uses this tool" on words, and by the
    descriptions with its stem, which count the less the more demonstrations a tool has.

    Args:
        weights: of words and pairs of words for the seen tools; shape (words, seen), float16.
        training: what they were learned from.
    """

    name = "alignment"
    about = "the part of the query that names it"
    names = (
        *("ahead", "behind", "described_ahead", "near", "centre_ahead"),
        *("pointer", "best_ahead", "best_near", "centre_of_last"),
        *("pointer_at_end", "best_ahead_at_end", "centre", "from_last"),
    )
    new_tool_names = ("described_ahead", "described_above_others", "unexplained")

    def __init__(self, weights: npt.NDArray[np.float16], training: TrainingSet) -> None:
        self.weights = weights
        self._slots = training.slots[:-1]
        self._complete = len(training.seen) == len(training.tools)
        # A last row and a last column of zeros, for words and tools that are not known.
        scale = np.asarray(training.featurizer.words.idf_, np.float32)
        self._by_word = np.zeros((len(weights) + 1, weights.shape[1] + 1), np.float32)
        np.multiply(weights.astype(np.float32), scale[:, None], out=self._by_word[:-1, :-1])
        tools = training.tools
        stem_scale = np.float32(0.2) * np.asarray(tools.encoder.idf_, np.float32)
        by_stem = csr_array(tools.documents.T * stem_scale[:, None])
        by_stem.resize((by_stem.shape[0] + 1, len(tools)))
        dense = by_stem.shape[0] * len(tools) <= DENSE_VALUES
        self._by_stem: Matrix | csr_array = by_stem.toarray() if dense else by_stem
        self._trust = (0.3 * (0.1 + 0.9 / (1 + training.frequency / 2))).astype(np.float32)

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Learn the weights of words."""
        used = _count_used(training.plans, training.seen)
        return cls(training.word_regression.learn(used), training)

    def update(self, update: PlanUpdate) -> Block:
        """Learn from each further plan, and anew where all plans are at hand."""
        training = update.training
        if update.is_complete:
            return self.fit(training)
        used = _count_used(update.plans, training.seen)
        mean = training.plans.share[training.seen].astype(np.float32)
        weights = correct_weights(self.weights, update.queries.word_vectors, used, mean)
        return Alignment(weights, training)

    def renumber(self, training: TrainingSet, slots: Indices) -> Block:
        """Move the tools; new ones have no weights yet."""
        return Alignment(pick_columns(self.weights, slots), training)

    def widen(self, training: TrainingSet, first: int, count: int) -> Block:
        """Rows of zeros for the new words."""
        return Alignment(insert_rows(self.weights, first, count), training)

    def start(self, query: Query, out: Matrix) -> Begin:
        """Nothing is served yet. The evidence stands in the memo for ``query_position``."""
        alignment = self.align(query.features, query.view.tools)
        out[11] = alignment.centre
        query.memo[self.name] = alignment.evidence
        return partial(_AlignmentState, alignment, query.view.seen)

    def align(self, query: QueryFeatures, tools: Indices | None = None) -> QueryAlignment:
        """What each word of a query says about some tools, rising; None for all."""
        learned = _spread(self._read_learned(query))
        words = len(learned)
        described = _spread(self._read_descriptions(query.stems[:_MAX_WORDS]))
        trust = self._trust
        if tools is not None:
            learned = learned.take(self._slots[tools], axis=1, mode="wrap")
            described, trust = described.take(tools, axis=1), trust[tools]
        elif self._complete:
            learned = learned[:, :-1]
        else:
            learned = learned.take(self._slots, axis=1, mode="wrap")
        evidence = np.empty((2 * words + 1, len(trust)), np.float32)
        evidence[-1] = 1
        both, by_text = evidence[:words], evidence[words:-1]
        np.maximum(learned, 0, out=both)
        both *= both
        np.multiply(described, described, out=by_text)
        both += by_text * trust
        by_text *= np.float32(0.3)
        evidence[:-1, -1] = 0
        return QueryAlignment(evidence)

    def _read_learned(self, query: QueryFeatures) -> Matrix:
        """What each word, alone and with its neighbours, says; shape (words, seen + 1)."""
        terms, length = query.terms, len(query.stems)
        cut = min(length, _MAX_WORDS)
        # An unknown term is -1: the last row, which is zero.
        rows: Matrix = self._by_word[terms[:cut] or [-1]]
        if cut > 1:
            pairs = self._by_word[terms[length : length + cut - 1]]
            pairs *= np.float32(0.5)
            rows[:-1] += pairs
            rows[1:] += pairs
        return rows

    def _read_descriptions(self, stems: Sequence[int]) -> Matrix:
        """What the descriptions with each word's stem say; shape (words, tools)."""
        by_stem = self._by_stem
        none = by_stem.shape[0] - 1
        chosen = by_stem[[none if column < 0 else column for column in stems] or [none]]
        rows: Matrix = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
        return rows

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The weights of words."""
        return {"weights": self.weights}

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The weights that were saved."""
        return cls(read_word_weights(arrays, training, "the alignment"), training)


class QueryAlignment:
    """Which words of one query speak for which tool, seen from any place in the query.

    Only the places that calls lead to are looked at: a query of five calls asks for five or six of
    129, and looking at all of them first took a tenth of a millisecond.

    Args:
        evidence: shape (2 words + 1, tools): how much each word speaks for each tool, at least 0;
            the same from descriptions alone; and ones.

    Attributes:
        evidence: as it was given.
        centre: shape (tools,): centre of mass in [0, 1]; 1 for the end of plan.
    """

    __slots__ = ("_total", "_unexplained", "_words", "centre", "evidence")

    def __init__(self, evidence: Matrix) -> None:
        self.evidence, self._words = evidence, len(evidence) // 2
        words = self._words
        total, moments = self._window(0)[::4, :words] @ evidence[:words]
        self.centre: Matrix = moments / (total + np.float32(1e-6))
        self.centre[-1] = 1
        self._total: Matrix = total
        self._unexplained: Matrix | None = None

    def scores(self, pointer: float, out: Matrix) -> None:
        """Write what is seen from the pointer.

        Args:
            pointer: the place, in parts.
            out: shape (5, tools): the logarithms of the scores ahead, behind, ahead from
                descriptions alone, and near, each plus .001; and the centre of what is ahead, in
                [0, 1], or up to ``_NOWHERE`` the less there is.
        """
        np.matmul(self._window(int(pointer * _GRID)), self.evidence, out=out)
        np.divide(out[4], out[0], out=out[4])
        logarithms = out[:4]
        np.log(logarithms, out=logarithms)

    def advance(self, pointer: float, column: int, scores: Matrix) -> float:
        """Where a call moves the pointer: to the centre of its tool's score ahead.

        What is behind counts as served, so that a tool called twice is looked for twice.

        Args:
            pointer: the place, in parts.
            column: of the called tool.
            scores: what ``scores`` wrote from there.
        """
        ahead = math.exp(scores[0, column])
        mass = ahead - _LITTLE
        if mass > _LEAST and mass > _SERVED * float(self._total[column]):
            moment = float(scores[4, column]) * ahead - _NOWHERE * _LITTLE
            return min(max(pointer - _BACK, BINS * moment / mass), BINS)
        return pointer

    def count_unexplained(self) -> Matrix:
        """How far what is described is not explained by other tools; shape (tools,).

        Of each part of the query, the share that speaks for a tool, weighted by how much it does;
        the logarithm of their sum plus .001.
        """
        if self._unexplained is None:
            words, parts = self._words, parts_of(self._words)
            learned, described = self.evidence[:words], parts @ self.evidence[words:-1]
            others = (parts @ learned.sum(axis=1))[:, None] - parts @ learned
            share = described * described / (described + others + np.float32(_LITTLE))
            self._unexplained = np.log(share.sum(axis=0) + np.float32(_LITTLE))
        return self._unexplained

    def _window(self, place: int) -> Matrix:
        if self._words <= _CACHED_WORDS:
            cached: Matrix = _cached_windows(self._words)[place]
            return cached
        window: Matrix = _windows(self._words, np.array([place]))[0]
        return window


class _AlignmentState:
    __slots__ = (
        "_alignment",
        "_best",
        "_centre",
        "_centre_of_last",
        "_constants",
        "_end",
        "_from_last",
        "_pointer",
        "_scores",
        "_seen",
        "_seen_from",
    )

    def __init__(self, alignment: QueryAlignment, seen: Indices | None, rows: Matrix) -> None:
        self._alignment, self._seen = alignment, seen
        self._scores: Matrix = rows[:_SCORES]
        self._best = (rows[0], rows[3])
        self._constants = list(rows[_SCORES:9])
        self._end = rows[9:11, -1]
        self._from_last = rows[12]
        self._pointer = 0.0
        self._seen_from = -1.0
        self._centre_of_last = 0.0

    def call(self, event: CallEvent) -> None:
        column = event.column
        if column < 0:
            self._centre_of_last = 0.0
            return
        self._look()
        self._pointer = self._alignment.advance(self._pointer, column, self._scores)
        self._centre_of_last = float(self._alignment.centre[column])

    def write(self) -> None:
        self._look()
        distance = self._from_last
        self._constants[3].fill(self._centre_of_last)
        np.subtract(self._alignment.centre, self._centre_of_last, out=distance)
        np.abs(distance, out=distance)

    def _look(self) -> None:
        """See the query from the pointer, unless it was seen from there."""
        pointer = self._pointer
        if pointer == self._seen_from:
            return
        self._seen_from = pointer
        self._alignment.scores(pointer, self._scores)
        ahead, near = self._best
        if self._seen is not None:
            ahead, near = ahead[self._seen], near[self._seen]
        reached, best = pointer / BINS, ahead[ahead.argmax()]  # a third of the time of max()
        constants = self._constants
        constants[0].fill(reached)
        constants[1].fill(best)
        constants[2].fill(near[near.argmax()])
        self._end[0] = reached
        self._end[1] = best

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        described = self._scores[2]
        ahead = described.take(columns, out=out[0], mode="clip")
        np.subtract(ahead, best_of_others(described, columns), out=out[1])
        self._alignment.count_unexplained().take(columns, out=out[2], mode="clip")


# -- windows of a query ------------------------------------------------------------------------


def _decays() -> Matrix:
    distance = np.arange(BINS)[None] - np.arange(BINS * _GRID + 1)[:, None] / _GRID
    # What was just served fades within one part, what is to come within four.
    decays = np.where(
        distance >= 0, np.exp(-np.maximum(distance, 0) / 4), np.exp(np.minimum(distance, 0))
    )
    result: Matrix = decays.astype(np.float32)
    return result


_DECAYS = _decays()


def parts_of(words: int, parts: int = BINS) -> Matrix:
    """Which words make each part of a query; shape (parts, words), 1 or 0."""
    part = np.arange(words) * parts // words
    members: Matrix = (part == np.arange(parts)[:, None]).astype(np.float32)
    return members


def _windows(words: int, places: Indices) -> Matrix:
    """What makes the rows of ``QueryAlignment.scores`` at some places, but for the logarithms.

    Args:
        words: of the query.
        places: shape (places,): numbers up to ``BINS * _GRID``.

    Returns:
        Shape (places, 5, 2 words + 1): weights of what each word says, of what descriptions say,
        and of 1.
    """
    parts = parts_of(words)
    number = np.arange(BINS, dtype=np.float32)
    ahead = (number >= np.floor(places / _GRID - _BACK)[:, None]).astype(np.float32) @ parts
    windows = np.zeros((len(places), _SCORES, 2 * words + 1), np.float32)
    windows[:, 0, :words] = ahead
    windows[:, 1, :words] = 1 - ahead
    windows[:, 2, words:-1] = ahead
    windows[:, 3, :words] = _DECAYS[places] @ parts
    windows[:, 4, :words] = ahead * (number @ parts / BINS)
    windows[:, :, -1] = _LITTLE
    windows[:, 4, -1] *= _NOWHERE  # the centre of nothing
    return windows


@lru_cache(maxsize=_CACHED_WORDS)
def _cached_windows(words: int) -> Matrix:
    return _windows(words, np.arange(BINS * _GRID + 1))


def _spread(rows: Matrix) -> Matrix:
    # A word lends half of its weight to its right neighbour: "send" to "the mail".
    rows[1:] += np.float32(0.5) * rows[:-1]
    return rows


def _count_used(plans: EncodedPlans, seen: Indices) -> csr_array:
    """Shape (plans, seen): 1 where the plan calls the tool."""
    return csr_array(plans.called[:, seen] > 0, dtype=np.float64)
