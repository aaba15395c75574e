"""The parts of a query that each ask for something: sentences, and clauses that begin like one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.retrievers.factored.query_text import QueryText
from dtdr.retrievers.nn import Indices, Matrix

_STOPS = frozenset(".!?;。！？；")
_JOINTS = frozenset((",", "，", "、", ";", "and", "then", "also"))
_BREAKS = _STOPS | _JOINTS
_COMMON = 0.03
"""Share of the queries that have a sentence with a word in front, from which on the word is taken
to begin parts within sentences too."""
_LEAST_WORDS = 4
"""Words of a part before another begins within its sentence."""
_MOST_PARTS = 48
"""Parts of a query that are told apart; what follows belongs to the last."""
MAX_WORDS = 400
"""Words of a query that are looked at; the longest query of four public sets has 291."""


def split_parts(text: QueryText, first: frozenset[str]) -> list[int]:
    """The first word of each part of a query, rising; 0 is always one.

    "Mail Ann, and create a note." has two parts where sentences of demonstrations begin with
    "create". ``dtdr.plans`` splits texts alike, in ten times as long.

    Args:
        text: the query.
        first: words that begin sentences.
    """
    words = text.words
    end = min(len(words), MAX_WORDS)
    # Outside ASCII a word in lower case can fall apart otherwise than as it is written.
    tokens = text.tokens if len(text.tokens) == len(words) else words
    begins, begin = [0], 0
    for place in [at for at, word in enumerate(words[: end - 1], 1) if word in _BREAKS]:
        before, word = words[place - 1], words[place]
        if before in _STOPS:
            # A full stop within a file name, a number or an address ends no sentence.
            is_new = not before.isascii() or f"{before}{tokens[place]}" not in text.text
        else:
            is_new = word in first and place - begin >= _LEAST_WORDS
        if is_new and word not in _STOPS:
            begins.append(place)
            begin = place
    return begins[:_MOST_PARTS]


def first_words(texts: Iterable[QueryText]) -> frozenset[str]:
    """Words that begin sentences of enough queries."""
    counts: Counter[str] = Counter()
    queries = 0
    for text in texts:
        queries += 1
        if text.words:
            counts.update({text.words[begin] for begin in split_parts(text, frozenset())})
    return frozenset(word for word, count in counts.items() if count >= max(2, _COMMON * queries))


def part_terms(terms: Sequence[int], begins: Sequence[int]) -> list[list[int]]:
    """The columns of the words and pairs of words of each part, those known.

    Args:
        terms: columns of the words of a query and then of its pairs, -1 where unknown.
        begins: the first word of each part.
    """
    words = (len(terms) + 1) // 2
    ends = [*begins[1:], min(words, MAX_WORDS)]
    return [
        [
            column
            for column in (*terms[begin:end], *terms[words + begin : words + end - 1])
            if column >= 0
        ]
        for begin, end in zip(begins, ends, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class EncodedParts:
    """The words of the parts of many queries.

    Attributes:
        columns: shape (terms,): columns of words and pairs of words, part after part.
        starts: shape (parts + 1,): where the terms of each part begin.
        sizes: shape (queries,): how many parts each query has.
    """

    columns: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]

    @classmethod
    def of(cls, queries: Sequence[Sequence[Sequence[int]]]) -> EncodedParts:
        """Of the columns of each part of each query."""
        parts = [part for query in queries for part in query]
        return cls(
            np.array([column for part in parts for column in part], np.int32),
            np.array([0, *accumulate(map(len, parts))], np.int64),
            np.array([len(query) for query in queries], np.int32),
        )

    def fits(self, queries: int, words: int) -> bool:
        """Whether these can be the parts of so many queries in so many words."""
        columns, starts, sizes = self.columns, self.starts, self.sizes
        return bool(
            len(sizes) == queries
            and (sizes > 0).all()
            and len(starts) == sizes.sum() + 1
            and starts[0] == 0
            and (np.diff(starts) >= 0).all()
            and starts[-1] == len(columns)
            and (not len(columns) or 0 <= columns.min() <= columns.max() < words)
        )

    def rows(self, weights: Matrix) -> csr_array:
        """Each part as a row of length 1, or of zeros where no term is known.

        Args:
            weights: shape (words,): inverse document frequencies.
        """
        values = weights[self.columns]
        owner = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        lengths = np.sqrt(np.bincount(owner, values * values, len(self.starts) - 1))
        values = (values / np.maximum(lengths, 1e-9)[owner]).astype(np.float32)
        shape = (len(self.starts) - 1, len(weights))
        return csr_array((values, self.columns, self.starts), shape=shape)

    def subset(self, positions: Indices) -> EncodedParts:
        """Those of the queries at some positions."""
        ends = np.cumsum(self.sizes)
        parts = [np.arange(ends[at] - self.sizes[at], ends[at]) for at in positions.tolist()]
        chosen = np.concatenate([np.empty(0, np.intp), *parts]).astype(np.intp)
        spans = [np.arange(self.starts[part], self.starts[part + 1]) for part in chosen.tolist()]
        flat = np.concatenate([np.empty(0, np.intp), *spans]).astype(np.intp)
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[chosen])]).astype(np.int64)
        return EncodedParts(self.columns[flat], starts, self.sizes[positions])

    def concatenate(self, other: EncodedParts) -> EncodedParts:
        """These and the others."""
        return EncodedParts(
            np.concatenate([self.columns, other.columns]),
            np.concatenate([self.starts, self.starts[-1] + other.starts[1:]]),
            np.concatenate([self.sizes, other.sizes]),
        )
