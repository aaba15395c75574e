"""Which part of the query each tool serves, and how far into the query the calls have come."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.encoders.lexical import LexicalEncoder
from dtdr.retrievers.factored.text import StemEncoder, stem

Array = npt.NDArray[Any]

BINS = 32
"""Parts that a query is divided into."""
_MAX_WORDS = 400
"""Words of a query that are looked at; the longest query of four public sets has 291."""
_RIDGE = 0.3
_MAX_PLANS = 3_000
"""Plans that the words' weights are learned from: the dual problem is cubic in them."""
_BACK = 2.0
"""Parts that a call may reach back: plans follow the query's order, but not to the word."""
_SERVED = 0.15
"""A call moves the pointer if more than this share of its tool's evidence is still ahead."""
_NOWHERE = 1.5
"""Centre of a tool that no word ahead speaks for: past the end of the query."""
_GRID = 4
"""Steps of the pointer within a part that ``near`` tells apart."""
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


@dataclass(frozen=True, slots=True)
class Evidence:
    """Of one query.

    Attributes:
        parts: shape (BINS, tools): how much each part speaks for each tool, at least 0.
        ahead: shape (BINS + 1, tools): sum of ``parts`` from each part on.
        moments: shape (BINS + 1, tools): the same sum, each part times its number.
        rows: shape (BINS + 1, 4, tools): for each part, the logarithms of the evidence ahead of
            it, behind it, and ahead from descriptions alone, each plus .001; and the centre of
            what is ahead, in [0, 1], or ``_NOWHERE``.
        centre: shape (tools,): centre of mass in [0, 1]; 1 for the end of plan.
        described: shape (BINS, tools): as ``parts``, from descriptions alone.
    """

    parts: Array
    ahead: Array
    moments: Array
    rows: Array
    centre: Array
    described: Array

    def moved(self, pointer: float, tool: int) -> float:
        """Where a call moves the pointer: to the centre of its tool's evidence ahead.

        Evidence behind counts as served, so that a tool called twice is looked for twice.
        """
        start = int(max(pointer - _BACK, 0))
        mass = self.ahead[start, tool]
        if mass > 1e-6 and mass > _SERVED * self.ahead[0, tool]:
            return max(pointer - _BACK, float(self.moments[start, tool] / mass))
        return pointer

    def near(self, pointer: float) -> Array:
        """Evidence of the parts around the pointer; shape (tools,)."""
        result: Array = _DECAYS[int(pointer * _GRID)] @ self.parts
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
        self._stems = stem_encoder.vocabulary_
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
        self, found: Sequence[str], terms: Sequence[int | None], columns: Array | None = None
    ) -> Evidence:
        """The evidence of a query.

        Args:
            found: its words, in order.
            terms: columns of the words and then of the pairs of neighbours, None where unknown.
            columns: the tools that are looked at, rising, the end of plan last; None for all.
        """
        learned = _spread(self._learned(len(found), terms))
        if self._seen is not None:
            scattered = np.zeros((len(learned), self._tools), np.float32)
            scattered[:, self._seen] = learned
            learned = scattered
        if columns is not None:
            learned = learned[:, columns]
        np.maximum(learned, 0, out=learned)
        learned *= learned
        learned[:, -1] = 0
        if self._by_stem is None:
            return _gathered(learned, None)
        described, trust = _spread(self._described(found[:_MAX_WORDS])), self._trust
        if columns is not None:
            described, trust = described[:, columns[:-1]], trust[columns[:-1]]
        described *= described
        learned[:, :-1] += described * trust
        described *= 0.3
        return _gathered(learned, described)

    def _learned(self, length: int, terms: Sequence[int | None]) -> Array:
        """What each word, alone and with its neighbours, says; shape (words, columns)."""
        cut = min(length, _MAX_WORDS)
        none = len(self._weights) - 1
        chosen = [none if term is None else term for term in terms[:cut]]
        rows: Array = self._weights[chosen or [none]]
        chosen = [none if term is None else term for term in terms[length : length + cut - 1]]
        if chosen:
            both = self._weights[chosen]
            both *= 0.5
            rows[:-1] += both
            rows[1:] += both
        return rows

    def _described(self, found: Sequence[str]) -> Array:
        """What the descriptions with each word's stem say; shape (words, tools - 1)."""
        column, none = self._stems.get, self._by_stem.shape[0] - 1
        chosen = self._by_stem[[column(stem(word), none) for word in found] or [none]]
        result: Array = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
        return result


def _spread(rows: Array) -> Array:
    # A word lends half of its weight to its right neighbour: "send" to "the mail".
    rows[1:] += 0.5 * rows[:-1]
    return rows


@lru_cache(maxsize=64)
def _sums(words: int) -> Array:
    """What makes sums over parts of rows, one a word; shape (3 BINS + 2, words).

    First each part, then everything from each part on, then the same times the part's number.
    One product is five times as fast as sums and running sums.
    """
    part = np.arange(words) * BINS // words
    found = np.zeros((3 * BINS + 2, words), np.float32)
    found[part, np.arange(words)] = 1
    ahead = part >= np.arange(BINS + 1)[:, None]
    found[BINS : 2 * BINS + 1] = ahead
    found[2 * BINS + 1 :] = ahead * part
    return found


def _gathered(learned: Array, described: Array | None) -> Evidence:
    """The evidence from what each word says."""
    words, tools = learned.shape
    sums = _sums(words)
    every = sums @ learned
    parts, ahead, moments = every[:BINS], every[BINS : 2 * BINS + 1], every[2 * BINS + 1 :]
    # Logarithms of an array without gaps: three times as fast.
    work = np.zeros((BINS + 1, 3, tools), np.float32)
    work[:, 0] = ahead
    np.subtract(ahead[0], ahead, out=work[:, 1])
    described_parts = np.zeros((BINS, tools), np.float32)
    if described is not None:
        from_each = sums[: 2 * BINS + 1] @ described
        described_parts[:, :-1] = from_each[:BINS]
        work[:, 2, :-1] = from_each[BINS:]
    np.maximum(work, 0, out=work)
    work += 1e-3
    np.log(work, out=work)
    rows = np.empty((BINS + 1, 4, tools), np.float32)
    rows[:, :3] = work
    centres = rows[:, 3]
    np.divide(moments, ahead + 1e-6, out=centres)
    centres *= 1 / BINS
    centre = centres[0].copy()
    centre[-1] = 1
    np.copyto(centres, _NOWHERE, where=ahead <= 1e-4)
    return Evidence(parts, ahead, moments, rows, centre, described_parts)
