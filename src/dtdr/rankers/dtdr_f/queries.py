"""A query as the blocks read it, by a vocabulary learned from the training queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Self

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.encoding import encode_texts, surface_of, text_of
from dtdr.rankers.dtdr_f.familiarity import combine, hash_ngrams, known_share
from dtdr.rankers.dtdr_f.ragged import Ragged, count_rows
from dtdr.rankers.dtdr_f.text import (
    BEGINS_SENTENCE,
    IS_LETTERS,
    MAX_WORDS,
    SURFACE_FEATURES,
    Hashes,
    QueryText,
    stems_of,
)
from dtdr.rankers.nn import Indices, Matrix
from dtdr.rankers.sorted_keys import find_sorted
from dtdr.rankers.vectors import unit
from dtdr.text.sparse import csr_array

_FEW_QUERIES = 200
"""Below this number of queries every word of letters counts, those of descriptions too: numbers and
names of files say nothing about another request."""
_COMMON = 0.03
"""Share of the queries with a sentence that a word begins, from which the word begins parts too."""
_MOST_COMPARED = 2_000
"""Demonstrations among which the nearest query is looked for."""

Row = tuple[npt.NDArray[np.intp], Matrix]
"""Columns (sorted) and values of a sparse vector."""
NO_HASHES = np.empty(0, np.uint32)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Columns of hashed terms, and rows of length 1.

    A term that occurs ``c`` times in a text and in ``d`` of the ``n`` training texts weighs
    ``(1 + ln c) (1 + ln((1 + n) / (1 + d)))``, as in ``encoders.lexical``.

    Attributes:
        terms: shape (terms,), sorted: their hashes.
        idf: shape (terms,): inverse document frequencies.
    """

    terms: Hashes
    idf: Matrix

    @classmethod
    def fit(cls, texts: Ragged, least: int, further: Hashes = NO_HASHES) -> Self:
        """Learn which terms there are and how many texts contain each.

        Args:
            texts: hashes of the terms of each.
            least: terms in fewer texts are left out.
            further: terms that count however few texts contain them, at least one.
        """
        new = np.setdiff1d(further, texts.values)
        owner = np.append(texts.owner, len(texts) + np.arange(len(new)))
        known, counts = count_rows(np.append(texts.values, new), owner)
        kept = (counts >= least) | np.isin(known, further)
        known, counts = known[kept], counts[kept]
        if not len(known):  # matrices of no columns would be a case of their own everywhere
            known, counts = np.zeros(1, np.uint32), np.zeros(1, np.int64)
        idf = np.log((1 + len(texts)) / (1 + counts)) + 1
        return cls(known, idf.astype(np.float32))

    def extend(self, terms: Hashes) -> Vocabulary:
        """With columns for those of the terms that are new, as rare as the rarest."""
        new = np.setdiff1d(terms, self.terms)
        both = np.concatenate([self.terms, new])
        rarest = np.full(len(new), self.idf.max(), np.float32)
        order = np.argsort(both)
        return Vocabulary(both[order], np.concatenate([self.idf, rarest])[order])

    def columns(self, hashes: Hashes) -> Indices:
        """The column of each term, -1 where it is not known."""
        places, known = find_sorted(self.terms, hashes)
        return np.where(known, places, -1)

    def row(self, columns: Indices) -> Row:
        """The row of a text with terms of these columns."""
        counts = np.bincount(columns[columns >= 0])
        distinct = counts.nonzero()[0]
        values = (1 + np.log(counts[distinct])) * self.idf[distinct]
        values *= 1 / max(float(np.sqrt(values @ values)), 1e-9)
        return distinct, values.astype(np.float32)

    def encode(self, texts: Ragged) -> csr_array:
        """Rows of many texts, given by hashes of their terms; shape (texts, terms)."""
        columns, width = self.columns(texts.values), len(self.terms)
        keys = texts.owner[columns >= 0] * width + columns[columns >= 0]
        distinct, counts = np.unique(keys, return_counts=True)
        rows, columns = distinct // width, distinct % width
        values = (1 + np.log(counts)) * self.idf[columns]
        lengths = np.sqrt(np.bincount(rows, values * values, len(texts)))
        values = (values / np.maximum(lengths, 1e-9)[rows]).astype(np.float32)
        starts = np.searchsorted(rows, np.arange(len(texts) + 1)).astype(np.int32)
        return csr_array((values, columns.astype(np.int32), starts), shape=(len(texts), width))


@dataclass(frozen=True, slots=True)
class QueryFeatures:
    """A query as the blocks read it.

    Attributes:
        text: the query taken apart.
        terms: columns of its words and then of the pairs of neighbours, -1 where unknown.
        stems: columns of the stems of its words, -1 where unknown.
        words: the vector of words and pairs of words.
        parts: the first word of each part of the query, sorted.
        known: share of its words that demonstrations contain.
        familiar: share of its pairs and triples of words that demonstrations contain.
        familiarity: the same, or with an encoder how much it is like the nearest demonstration too.
        nearest: cosine with the nearest demonstration.
        covered: share of its words that demonstrations or descriptions contain.
    """

    text: QueryText
    terms: Indices
    stems: Indices
    words: Row
    parts: list[int]
    known: float
    familiar: float
    familiarity: float
    nearest: float
    covered: float


@dataclass(frozen=True, eq=False)
class QueryFeaturizer:
    """Reads queries, with a vocabulary learned from the training queries.

    Attributes:
        queries: the columns of the training queries; see ``encode_texts``.
        words: words and pairs of words.
        stems: of queries and of the tools' descriptions.
        further: shape (n,), sorted: hashes of pairs and triples of words of further queries.
    """

    queries: Mapping[str, Ragged]
    words: Vocabulary
    stems: Vocabulary
    further: Hashes = field(default_factory=lambda: NO_HASHES)

    @classmethod
    def fit(cls, queries: Mapping[str, Ragged], documents: Sequence[str]) -> Self:
        """Learn the words of queries, and the stems of descriptions of tools too."""
        words, stems, flags = (queries[name] for name in ("words", "stems", "flags"))
        # With 2, TRAJECT at random loses .006, and a catalogue of 527 tools gains .017.
        rare = 3 if len(words) >= 500 else 2
        further = NO_HASHES
        if len(words) < _FEW_QUERIES:
            further = np.concatenate([
                rows["words"].values[(rows["flags"].values & IS_LETTERS) > 0]
                for rows in (queries, encode_texts(documents))
            ])  # fmt: skip
        letters = (flags.values & IS_LETTERS) > 0
        sizes = np.bincount(stems.owner[letters], minlength=len(stems))
        texts = stems_of(documents).concatenate(Ragged(stems.values[letters], sizes))
        known = Vocabulary.fit(_phrases(words), rare, further)
        return cls(queries, known, Vocabulary.fit(texts, least=1))

    @cached_property
    def phrases(self) -> Hashes:
        """Hashes of pairs and triples of words of all queries, by which others are familiar."""
        rows = self.queries["words"]
        return np.union1d(hash_ngrams(rows.values, rows.starts), self.further)

    @cached_property
    def first(self) -> frozenset[int]:
        """Hashes of words that begin sentences."""
        rows, flags = self.queries["words"], self.queries["flags"].values
        begins = (flags & BEGINS_SENTENCE) > 0
        begins[rows.starts[:-1][rows.sizes > 0]] = True
        first, counts = count_rows(rows.values[begins], rows.owner[begins])
        return frozenset(first[counts >= max(2, _COMMON * len(rows))].tolist())

    def read(self, text: QueryText) -> QueryFeatures:
        """One query."""
        terms, count = self._terms(text.words), len(text.words)
        row = self.words.row(terms)
        letters, stems = text.flags & IS_LETTERS, self.stems.columns(text.stems)
        familiar = known_share(self.phrases, text.words)
        vector = np.zeros(len(self.words.terms), np.float32)
        vector[row[0]] = row[1]
        return QueryFeatures(
            text,
            terms,
            stems,
            row,
            text.parts(self.first),
            float((letters * (terms[:count] >= 0)).sum()) / max(int(letters.sum()), 1),
            familiar,
            familiar,
            float((self._compared @ vector).max(initial=0)),
            float(((terms[:count] >= 0) | (stems >= 0)).sum()) / max(count, 1),
        )

    def _terms(self, words: Hashes) -> Indices:
        """Columns of words and then of the pairs of neighbours."""
        return self.words.columns(np.concatenate([words, combine(words[:-1], words[1:])]))

    @cached_property
    def _compared(self) -> csr_array:
        step = -(-self.vectors.shape[0] // _MOST_COMPARED) or 1
        return csr_array(self.vectors[::step])

    @cached_property
    def vectors(self) -> csr_array:
        """Shape (training queries, words): their vectors."""
        return self.words.encode(_phrases(self.queries["words"]))

    @cached_property
    def further_vectors(self) -> Matrix:
        """Shape (training queries, n): what a further encoder gave of them, of length 1."""
        return unit(surface_of(self.queries)[:, SURFACE_FEATURES:])

    @cached_property
    def parts(self) -> tuple[csr_array, npt.NDArray[np.int64]]:
        """Each part of each training query as a row of length 1; how many parts a query has."""
        texts = [text_of(self.queries, at) for at in range(len(self.queries["words"]))]
        parts = [part_terms(self._terms(text.words), text.parts(self.first)) for text in texts]
        rows = Ragged.of(list(chain.from_iterable(parts)), np.intp)
        values = self.words.idf[rows.values]
        lengths = np.sqrt(np.bincount(rows.owner, values * values, len(rows)))
        values = (values / np.maximum(lengths, 1e-9)[rows.owner]).astype(np.float32)
        shape = (len(rows), len(self.words.terms))
        sizes = np.array(list(map(len, parts)))
        return csr_array((values, rows.values, rows.starts), shape=shape), sizes

    def encode_words(self, texts: Sequence[str]) -> csr_array:
        """Vectors of the words and pairs of words of other texts."""
        return self.words.encode(_phrases(encode_texts(texts)["words"]))


def part_terms(terms: Indices, begins: Sequence[int]) -> list[Indices]:
    """The columns of the words and pairs of words of each part, those known.

    Args:
        terms: columns of the words of a query and then of its pairs, -1 where unknown.
        begins: the first word of each part.
    """
    words = (len(terms) + 1) // 2
    ends = [*begins[1:], min(words, MAX_WORDS)]
    parts = []
    for begin, end in zip(begins, ends, strict=True):
        part = np.concatenate([terms[begin:end], terms[words + begin : words + end - 1]])
        parts.append(part[part >= 0])
    return parts


def _phrases(texts: Ragged) -> Ragged:
    """Words and pairs of neighbouring words of many texts."""
    owner, words = texts.owner, texts.values
    alike = owner[:-1] == owner[1:]
    pairs = combine(words[:-1], words[1:])[alike]
    order = np.argsort(np.append(owner, owner[:-1][alike]), kind="stable")
    return Ragged(np.append(words, pairs)[order], texts.sizes + np.maximum(texts.sizes - 1, 0))
