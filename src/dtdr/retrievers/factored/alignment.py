"""Which part of the query each tool serves, and how far into the query the calls have come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.encoders.base import MAX_CHARACTERS
from dtdr.encoders.lexical import LexicalEncoder, words
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


@dataclass(frozen=True)
class Evidence:
    """Of one query.

    Attributes:
        parts: shape (BINS, tools): how much each part speaks for each tool, at least 0.
        ahead: shape (BINS + 1, tools): sum of ``parts`` from each part on.
        moments: shape (BINS + 1, tools): the same sum, each part times its number.
        described: shape (BINS + 1, tools): as ``ahead``, from descriptions alone.
        centre: shape (tools,): centre of mass in [0, 1]; 1 for the end of plan.
    """

    parts: Array
    ahead: Array
    moments: Array
    described: Array
    centre: Array

    def pointer(self, history: Sequence[int]) -> float:
        """Part of the query that the calls have reached, from 0 to ``BINS``.

        Each call moves it to the centre of its tool's evidence ahead. Evidence behind counts as
        served, so that a tool called twice is looked for twice.
        """
        pointer = 0.0
        for tool in history:
            if tool < 0:
                continue
            start = int(max(pointer - _BACK, 0))
            mass = float(self.ahead[start, tool])
            if mass > _SERVED * self.ahead[0, tool] and mass > 1e-6:
                pointer = max(pointer - _BACK, float(self.moments[start, tool]) / mass)
        return pointer


def learn_weights(queries: csr_array, used: Array, seed: int = 0) -> Array:
    """Ridge regression of "the plan uses this tool" on words; shape (words, tools), float16.

    Solved in the dual, plans being fewer than words.

    Args:
        queries: shape (plans, words).
        used: shape (plans, tools): 1 where the plan calls the tool.
        seed: which plans are taken where there are too many.
    """
    plans = queries.shape[0]
    chosen = np.arange(plans)
    if plans > _MAX_PLANS:
        chosen = np.sort(np.random.default_rng(seed).choice(plans, _MAX_PLANS, replace=False))
    rows = queries[chosen]
    targets = used[chosen] - used.mean(axis=0)
    kernel = (rows @ rows.T).toarray().astype(np.float64) + _RIDGE * np.eye(len(chosen))
    result: Array = (rows.T @ np.linalg.solve(kernel, targets)).astype(np.float16)
    return result


class Alignment:
    """Evidence of the words of a query for the tools.

    Args:
        encoder: words and pairs of words.
        weights: what ``learn_weights`` gave.
        stem_encoder: stems of descriptions.
        documents: shape (tools - 1, stems): the descriptions' vectors; None without descriptions.
        frequency: shape (tools,): how often each tool was called; descriptions count the less the
            more there is to learn from.
    """

    def __init__(
        self,
        encoder: LexicalEncoder,
        weights: Array,
        stem_encoder: StemEncoder,
        documents: csr_array | None,
        frequency: Array,
    ) -> None:
        self._columns = encoder.vocabulary_
        scale = np.asarray(encoder.idf_, np.float32)
        self._weights = weights.astype(np.float32) * scale[:, None]
        self._stems = stem_encoder.vocabulary_
        self._stem_scale = np.asarray(stem_encoder.idf_, np.float32)
        self._by_stem = None if documents is None else csr_array(documents.T)
        self._trust = (0.1 + 0.9 / (1 + frequency / 2)).astype(np.float32)

    def evidence(self, query: str) -> Evidence:
        """The evidence of a query."""
        found = words(query[:MAX_CHARACTERS])[:_MAX_WORDS]
        length = max(len(found), 1)
        tools = self._weights.shape[1]
        learned = np.zeros((length + 1, tools), np.float32)
        described = np.zeros((length, tools), np.float32)
        for position, word in enumerate(found):
            column = self._columns.get(word)
            if column is not None:
                learned[position] += self._weights[column]
            if position + 1 < len(found):
                column = self._columns.get(f"{word} {found[position + 1]}")
                if column is not None:
                    learned[position : position + 2] += np.float32(0.5) * self._weights[column]
            if self._by_stem is not None:
                self._describe(described[position], word)
        learned = learned[:length]
        for rows in (learned, described):
            # A word lends half of its weight to its right neighbour: "send" to "the mail".
            rows[1:] += np.float32(0.5) * rows[:-1].copy()
        described = np.float32(0.3) * described * described
        learned = np.maximum(learned, 0) ** 2 + described * self._trust
        learned[:, -1] = 0
        return _cumulate(_binned(learned), _binned(described))

    def _describe(self, row: Array, word: str) -> None:
        column = self._stems.get(stem(word)) if len(word) > 1 else None
        if column is not None and self._by_stem is not None:
            part = slice(self._by_stem.indptr[column], self._by_stem.indptr[column + 1])
            scale = np.float32(0.2) * self._stem_scale[column]
            row[self._by_stem.indices[part]] += scale * self._by_stem.data[part]


def _binned(rows: Array) -> Array:
    bins = np.minimum(np.arange(len(rows)) * BINS // len(rows), BINS - 1)
    result = np.zeros((BINS, rows.shape[1]), np.float32)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    result[bins[starts]] = np.add.reduceat(rows, starts, axis=0)
    return result


def _cumulate(parts: Array, described: Array) -> Evidence:
    numbers = np.arange(BINS, dtype=np.float32)[:, None]
    ahead, moments = _from_each_on(parts), _from_each_on(parts * numbers)
    centre = moments[0] / (ahead[0] + np.float32(1e-6)) / BINS
    centre[-1] = 1
    return Evidence(parts, ahead, moments, _from_each_on(described), centre)


def _from_each_on(parts: Array) -> Array:
    result = np.zeros((len(parts) + 1, parts.shape[1]), np.float32)
    np.cumsum(parts[::-1], axis=0, out=result[-2::-1])
    return result
