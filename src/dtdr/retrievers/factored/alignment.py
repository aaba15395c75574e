"""Which part of the query each tool serves, and how far into the query the calls have come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.encoders.lexical import LexicalEncoder
from dtdr.retrievers.factored.text import StemEncoder

Array = npt.NDArray[Any]

BINS = 32
"""Parts that a query is divided into."""
_MAX_WORDS = 400
"""Words of a query that are looked at; the longest query of four public sets has 291."""
_RIDGE = 0.3
_MAX_PLANS = 3_000
"""Plans that the words' weights are learned from: the dual problem is cubic in them."""
_BACK = 2
"""Parts that a call may reach back: plans follow the query's order, but not to the word."""
_SERVED = 0.15
"""A call moves the pointer if more than this share of its tool's evidence is still ahead."""
_NOWHERE = 1.5
"""Centre of a tool that no word ahead speaks for: past the end of the query."""
_GRID = 4
"""Steps of the pointer within a part that are told apart."""
ROWS = 5
"""What ``Evidence.look`` writes."""
DENSE_VALUES = 2_000_000
"""Stems times tools up to which the descriptions' matrix is kept dense: 8 MB."""


def _decays() -> Array:
    distance = np.arange(BINS)[None] - np.arange(BINS * _GRID + 1)[:, None] / _GRID
    # What was just served fades within one part, what is to come within four.
    found = np.where(
        distance >= 0, np.exp(-np.maximum(distance, 0) / 4), np.exp(np.minimum(distance, 0))
    )
    return found.astype(np.float32)


_DECAYS = _decays()
_LITTLE = 1e-3
"""Added to evidence before its logarithm; as little evidence as this has its centre half-way to
``_NOWHERE``."""
_LEAST = 1e-5
"""Less evidence than this moves no pointer."""


def _parts(words: int) -> Array:
    """Which words make each part; shape (BINS, words), 1 or 0."""
    part = np.arange(words) * BINS // words
    found: Array = (part == np.arange(BINS)[:, None]).astype(np.float32)
    return found


def _made_views(words: int, places: Array, both: bool) -> Array:
    """What makes the rows of ``Evidence.look`` at some places, but for the logarithms.

    Args:
        words: of the query.
        places: shape (places,): numbers up to ``BINS * _GRID``.
        both: whether there are descriptions.

    Returns:
        Shape (places, ROWS, columns): weights of what each word says, of what descriptions say
        where there are any, and of 1.
    """
    parts = _parts(words)
    number = np.arange(BINS, dtype=np.float32)
    ahead = (number >= np.floor(places / _GRID - _BACK)[:, None]).astype(np.float32) @ parts
    views = np.zeros((len(places), ROWS, (2 if both else 1) * words + 1), np.float32)
    views[:, 0, :words] = ahead
    views[:, 1, :words] = 1 - ahead
    views[:, 3, :words] = _DECAYS[places] @ parts
    views[:, 4, :words] = ahead * (number @ parts / BINS)
    if both:
        views[:, 2, words:-1] = ahead
    views[:, :, -1] = _LITTLE
    views[:, 4, -1] *= _NOWHERE  # the centre of nothing
    return views


_KEPT_WORDS = 64
"""Most queries are no longer; their views are kept: at most 21 MB, made in a tenth of a
millisecond a length."""


@lru_cache(maxsize=_KEPT_WORDS)
def _kept_views(words: int, both: bool) -> Array:
    return _made_views(words, np.arange(BINS * _GRID + 1), both)


class Evidence:
    """Which words of one query speak for which tool, seen from any place in the query.

    Only the places that calls lead to are looked at: a query of five calls asks for five or six of
    129, and looking at all of them first took a tenth of a millisecond.

    Args:
        said: shape (words + 1, tools), or (2 words + 1, tools) with descriptions: how much each
            word speaks for each tool, at least 0; the same from descriptions alone; and ones.
        words: how many there are.

    Attributes:
        centre: shape (tools,): centre of mass in [0, 1]; 1 for the end of plan.
    """

    __slots__ = ("_both", "_said", "_total", "_words", "centre")

    def __init__(self, said: Array, words: int) -> None:
        self._said, self._words = said, words
        self._both = len(said) > words + 1
        total, moments = self._view(0)[::4, :words] @ said[:words]
        self.centre: Array = moments / (total + np.float32(1e-6))
        self.centre[-1] = 1
        self._total = total

    def moved(self, pointer: float, tool: int, seen: Array) -> float:
        """Where a call moves the pointer: to the centre of its tool's evidence ahead.

        Evidence behind counts as served, so that a tool called twice is looked for twice.

        Args:
            pointer: the place, in parts.
            tool: the column of the called tool.
            seen: what ``look`` wrote from there.
        """
        ahead = math.exp(seen[0, tool])
        mass = ahead - _LITTLE
        if mass > _LEAST and mass > _SERVED * float(self._total[tool]):
            moment = float(seen[4, tool]) * ahead - _NOWHERE * _LITTLE
            return min(max(pointer - _BACK, BINS * moment / mass), BINS)
        return pointer

    def look(self, pointer: float, out: Array) -> None:
        """Write what is seen from the pointer.

        Args:
            pointer: the place, in parts.
            out: shape (ROWS, tools): the logarithms of the evidence ahead, behind, ahead from
                descriptions alone, and near, each plus .001; and the centre of what is ahead, in
                [0, 1], or up to ``_NOWHERE`` the less there is.
        """
        np.matmul(self._view(int(pointer * _GRID)), self._said, out=out)
        np.divide(out[4], out[0], out=out[4])
        found = out[:4]
        np.log(found, out=found)

    def _view(self, place: int) -> Array:
        if self._words <= _KEPT_WORDS:
            kept: Array = _kept_views(self._words, self._both)[place]
            return kept
        made: Array = _made_views(self._words, np.array([place]), self._both)[0]
        return made

    def shared(self, tools: Array) -> Array:
        """How far what is described is not explained by other tools; shape (tools,).

        Of each part of the query, the share that speaks for a tool, weighted by how much it does.
        """
        words = self._words
        if not self._both:
            return np.zeros(len(tools), np.float32)
        parts = _parts(words)
        learned = self._said[:words]
        said = parts @ self._said[words : 2 * words, tools]
        taken = (parts @ learned.sum(axis=1))[:, None] - parts @ learned[:, tools]
        result: Array = (said * said / (said + taken + np.float32(_LITTLE))).sum(axis=0)
        return result


def learn_weights(queries: csr_array, used: Array, importance: Array, seed: int = 0) -> Array:
    """Ridge regression of "the plan uses this tool" on words; shape (words, tools), float16.

    Solved in the dual, plans being fewer than words.

    Args:
        queries: shape (plans, words).
        used: shape (plans, tools): 1 where the plan calls the tool.
        importance: shape (plans,): how much each plan counts, above 0.
        seed: which plans are taken where there are too many.
    """
    plans = queries.shape[0]
    chosen = np.arange(plans)
    if plans > _MAX_PLANS:
        chosen = np.sort(np.random.default_rng(seed).choice(plans, _MAX_PLANS, replace=False))
    rows, counts = queries[chosen], importance[chosen]
    targets = used[chosen] - np.average(used, axis=0, weights=importance)
    kernel = (rows @ rows.T).toarray().astype(np.float64) + np.diag(_RIDGE / counts)
    result: Array = (rows.T @ np.linalg.solve(kernel, targets)).astype(np.float16)
    return result


def corrected(weights: Array, rows: csr_array, used: Array, mean: Array) -> Array:
    """The weights of ``learn_weights`` after further plans, one at a time.

    Kaczmarz's projection with the same ridge: each plan moves the weights of its words as far as
    it takes to predict its tools, were it the only one.

    Args:
        weights: shape (words, tools).
        rows: shape (plans, words): the words of the further plans.
        used: shape (plans, tools): 1 where the plan calls the tool.
        mean: shape (tools,): share of all plans that call it.
    """
    found = weights.astype(np.float32)
    for number, targets in enumerate(used - mean):
        part = slice(rows.indptr[number], rows.indptr[number + 1])
        columns, values = rows.indices[part], rows.data[part]
        error = targets - values @ found[columns]
        found[columns] += np.outer(values, error) / (values @ values + _RIDGE)
    return found.astype(np.float16)


class Alignment:
    """Evidence of the words of a query for the tools.

    Args:
        encoder: words and pairs of words.
        weights: what ``learn_weights`` gave.
        columns: the tools that its columns stand for, rising.
        stem_encoder: stems of descriptions.
        documents: shape (tools - 1, stems): the descriptions' vectors; None without descriptions.
        frequency: shape (tools,): how often each tool was called; descriptions count the less the
            more there is to learn from.
    """

    def __init__(
        self,
        encoder: LexicalEncoder,
        weights: Array,
        columns: Array,
        stem_encoder: StemEncoder,
        documents: csr_array | None,
        frequency: Array,
    ) -> None:
        self._weigh(weights, np.asarray(encoder.idf_, np.float32), frequency)
        self._tools = len(frequency)
        self._seen = None if len(columns) == self._tools else columns
        self._by_stem: Any = None
        if documents is not None:
            stem_scale = np.float32(0.2) * np.asarray(stem_encoder.idf_, np.float32)
            scaled = csr_array(documents.T * stem_scale[:, None])
            scaled.resize((scaled.shape[0] + 1, scaled.shape[1]))
            dense = scaled.shape[0] * self._tools <= DENSE_VALUES
            self._by_stem = scaled.toarray() if dense else scaled

    def updated(self, weights: Array, scale: Array, frequency: Array) -> Alignment:
        """With other weights of the words and other frequencies."""
        other = copy(self)
        other._weigh(weights, scale, frequency)
        return other

    def _weigh(self, weights: Array, scale: Array, frequency: Array) -> None:
        # A last row of zeros for words that are not known, as in the stems' matrix.
        self._weights = np.zeros((len(weights) + 1, weights.shape[1]), np.float32)
        np.multiply(weights.astype(np.float32), scale[:, None], out=self._weights[:-1])
        self._trust = (0.3 * (0.1 + 0.9 / (1 + frequency[:-1] / 2))).astype(np.float32)

    def evidence(
        self, terms: Sequence[int], stems: Sequence[int], columns: Array | None = None
    ) -> Evidence:
        """The evidence of a query.

        Args:
            terms: columns of its words and then of the pairs of neighbours, -1 where unknown.
            stems: columns of the stems of its words, -1 where unknown.
            columns: the tools that are looked at, rising, the end of plan last; None for all.
        """
        learned = _spread(self._learned(len(stems), terms))
        words, tools = len(learned), self._tools if columns is None else len(columns)
        both = self._by_stem is not None
        said = np.empty(((2 if both else 1) * words + 1, tools), np.float32)
        said[-1] = 1
        if self._seen is not None:
            scattered = np.zeros((words, self._tools), np.float32)
            scattered[:, self._seen] = learned
            learned = scattered
        if columns is not None:
            learned = learned[:, columns]
        rows = said[:words]
        np.maximum(learned, 0, out=rows)
        rows *= rows
        rows[:, -1] = 0
        if both:
            described, trust = _spread(self._described(stems[:_MAX_WORDS])), self._trust
            if columns is not None:
                described, trust = described[:, columns[:-1]], trust[columns[:-1]]
            described *= described
            rows[:, :-1] += described * trust
            np.multiply(described, 0.3, out=said[words : 2 * words, :-1])
            said[words:, -1] = 0
            said[-1, -1] = 1
        return Evidence(said, words)

    def _learned(self, length: int, terms: Sequence[int]) -> Array:
        """What each word, alone and with its neighbours, says; shape (words, columns)."""
        cut = min(length, _MAX_WORDS)
        # An unknown term is -1: the last row, which is zero.
        rows: Array = self._weights[terms[:cut] or [-1]]
        if cut > 1:
            both = self._weights[terms[length : length + cut - 1]]
            both *= 0.5
            rows[:-1] += both
            rows[1:] += both
        return rows

    def _described(self, stems: Sequence[int]) -> Array:
        """What the descriptions with each word's stem say; shape (words, tools - 1)."""
        # A matrix that is sparse takes no -1.
        none = self._by_stem.shape[0] - 1
        chosen = self._by_stem[[none if column < 0 else column for column in stems] or [none]]
        result: Array = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
        return result


def _spread(rows: Array) -> Array:
    # A word lends half of its weight to its right neighbour: "send" to "the mail".
    rows[1:] += 0.5 * rows[:-1]
    return rows
