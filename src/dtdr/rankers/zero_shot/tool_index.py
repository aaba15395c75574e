"""The words of tools: weights as in BM25, shares of names, similar tools, servers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dtdr.data.tools import Tool
from dtdr.rankers.dtdr_f.ragged import Ragged
from dtdr.rankers.dtdr_f.text import Hashes
from dtdr.rankers.nn import Indices, Matrix
from dtdr.rankers.remembered import Remembered
from dtdr.rankers.sorted_keys import find_sorted
from dtdr.rankers.zero_shot.words import READING, STOP_STEMS, SYNONYMS, WRITING, hash_words
from dtdr.text.encoders.base import MAX_CHARACTERS
from dtdr.text.sparse import SparseMatrix
from dtdr.text.words import hash_stem, name_words
from dtdr.text.words import words as words_of

_SATURATION, _LENGTH = 1.2, 0.75
"""BM25's k1 and b."""
_OTHER_TOOLS = 20.0
"""Tools of other catalogues that are counted with these, so that a word of three tools is not
common because there are only six."""
_COMMON, _RARE = 0.1, 0.01
"""Share of other catalogues' tools whose text has a common verb, and any other word."""
_SYNONYM = 0.5
"""Weight of a word that a tool has in other words."""
_LONGEST = 1_500
"""Characters of a description that are read; examples and terms of use follow."""
_LARGEST_SERVER = 0.6
"""A prefix that more of the tools share says nothing about them."""
_DENSE_VALUES = 1_000_000
"""Words times tools up to which a matrix is kept dense: 4 MB."""
_SHARED = 6
"""Words of an explanation."""
_LETTERS = re.compile(r"[^\W\d_]+")
_PREFIX = re.compile(r"^[a-zA-Z0-9 ]+(?:__|::|/|\.|[-_:])")
_COMMON_WORDS = """
id name information return user tool data detail given date time type specific provide
"""


class ToolIndex:
    """The words of n tools.

    Args:
        tools: without the end of plan.

    Attributes:
        size: n.
        reads: shape (n,): 1 where a tool's name has a verb of reading.
        writes: shape (n,): 1 where it has a verb of changing.
        servers: shape (n,): number of the prefix that a tool's name shares with others, such as
            that of an MCP server; below 0 where it shares none.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.size = len(tools)
        names = _content(name_words(tool.name) for tool in tools)
        texts = _content(_text_of(tool) for tool in tools)
        self._words = np.unique(texts.values)
        is_known = np.isin(SYNONYMS, self._words)
        further = SYNONYMS[1][is_known[0] & ~is_known[1]]
        self._words = np.union1d(self._words, further)
        owner, columns, counts = self._count(texts)
        rarity = self._rarity(columns)
        lengths = np.maximum(texts.sizes, 1)
        relative = 1 - _LENGTH + _LENGTH * lengths / (lengths.mean() if self.size else 1)
        weights = counts * (_SATURATION + 1) / (counts + _SATURATION * relative[owner])
        exact = self._matrix(owner, columns, weights * rarity[columns])
        self._exact = _by_row(exact.T)
        self._texts = self._by_word(owner, columns, weights, rarity)
        self._unit_texts = _unit(exact)
        owner, columns, _ = self._count(names)
        totals = np.bincount(owner, rarity[columns], self.size)
        self._unit_names = _unit(self._matrix(owner, columns, rarity[columns]))
        shares = rarity[columns] / np.maximum(totals, 1e-9)[owner]
        self._names = self._by_word(owner, columns, shares, np.ones(len(self._words)))
        self.reads, self.writes = (
            np.bincount(owner, np.isin(self._words[columns], hash_words(verbs)), self.size)
            .astype(np.bool_)
            .astype(np.float32)
            for verbs in (READING, WRITING)
        )
        self.servers = _read_servers([tool.name for tool in tools])
        self.alike = Remembered(self._alike, 512)

    def columns(self, stems: Hashes) -> Indices:
        """The columns of those of the stems that tools have, or have in other words."""
        places, known = find_sorted(self._words, stems)
        return places[known]

    def rows(self, columns: Indices) -> tuple[Matrix, Matrix, Matrix]:
        """Weights of some words in the tools, each of shape (words, n).

        Returns:
            BM25 weights of the texts; the same with words of like meaning; and the share of the
            name that each word is, with words of like meaning.
        """
        exact, texts, names = (
            rows if isinstance(rows := matrix[columns], np.ndarray) else rows.toarray()
            for matrix in (self._exact, self._texts, self._names)
        )
        return exact, texts, names

    def shared_words(self, tool: int, query: str) -> list[str]:
        """The words of a query that a tool has, or has in other words, heaviest first."""
        words = list(dict.fromkeys(words_of(query[:MAX_CHARACTERS])))
        stems = np.array(list(map(hash_stem, words)), np.uint32)
        known = [word for word, stem in zip(words, stems, strict=True) if stem in self._words]
        weights = self.rows(self.columns(stems))[1][:, tool]
        order = np.argsort(-weights, kind="stable").tolist()
        return [known[at] for at in order if weights[at] > 0][:_SHARED]

    def _alike(self, tool: int) -> Matrix:
        """Cosines of a tool's name, and of its text, with those of all; shape (2, n)."""
        alike = [
            (vectors @ vectors[[tool]].T).toarray()[:, 0]
            for vectors in (self._unit_names, self._unit_texts)
        ]
        return np.stack(alike)

    def _count(self, texts: Ragged) -> tuple[Indices, Indices, npt.NDArray[np.int64]]:
        """Tool, column and number of occurrences of each word of each text."""
        width = max(len(self._words), 1)
        keys = texts.owner * width + self._words.searchsorted(texts.values)
        distinct, counts = np.unique(keys, return_counts=True)
        return distinct // width, distinct % width, counts

    def _rarity(self, columns: Indices) -> npt.NDArray[np.float64]:
        """Inverse document frequency of each word among these tools and those of others."""
        expected = np.full(len(self._words), _RARE)
        expected[np.isin(self._words, hash_words(READING + WRITING + _COMMON_WORDS))] = _COMMON
        counts = np.bincount(columns, minlength=len(self._words)) + _OTHER_TOOLS * expected
        total = self.size + _OTHER_TOOLS
        return np.log(1 + (total - counts + 0.5).clip(0) / (counts + 0.5))

    def _matrix(
        self, owner: Indices, columns: Indices, values: npt.NDArray[np.float64]
    ) -> SparseMatrix:
        shape = (self.size, len(self._words))
        return SparseMatrix((values.astype(np.float32), (owner, columns)), shape=shape)

    def _by_word(
        self,
        owner: Indices,
        columns: Indices,
        weights: npt.NDArray[np.float64],
        rarity: npt.NDArray[np.float64],
    ) -> Matrix | SparseMatrix:
        """Shape (words, tools): weights times rarity, also of words of like meaning."""
        width = max(len(self._words), 1)
        stems = self._words[columns]
        begin, end = (SYNONYMS[0].searchsorted(stems, side) for side in ("left", "right"))
        pairs = Ragged(np.zeros(int((end - begin).sum()), np.int64), end - begin)
        at = np.arange(len(pairs.values)) - pairs.starts[pairs.owner] + begin[pairs.owner]
        others = self._words.searchsorted(SYNONYMS[1][at])
        keys = np.append(owner * width + columns, owner[pairs.owner] * width + others)
        values = np.append(weights, _SYNONYM * weights[pairs.owner])
        distinct, key_index = np.unique(keys, return_inverse=True)
        best = np.zeros(len(distinct))
        np.maximum.at(best, key_index, values)
        owner, columns = distinct // width, distinct % width
        return _by_row(self._matrix(owner, columns, best * rarity[columns]).T)


def _text_of(tool: Tool) -> str:
    """Name, twice, description and names of parameters."""
    name = name_words(tool.name)
    parameters = (name_words(parameter.name) for parameter in tool.parameters)
    return " ".join((name, name, tool.description[:_LONGEST], *parameters))


def _content(texts: Iterable[str]) -> Ragged:
    """Stems of the words of texts, without stop words and single letters."""
    rows = []
    for text in texts:
        words = words_of(text)
        # Within a word such as ``getUser_by-id2``, runs of letters are words.
        parts = (part for word in words for part in _LETTERS.findall(word))
        rows.append([hash_stem(part) for part in parts if len(part) > 1 or not part.isascii()])
    stems = Ragged.of(rows, np.uint32)
    kept = ~np.isin(stems.values, STOP_STEMS)
    return Ragged(stems.values[kept], np.bincount(stems.owner[kept], minlength=len(stems)))


def _by_row(matrix: SparseMatrix) -> Matrix | SparseMatrix:
    """The matrix, dense where it is small: its rows are read faster then."""
    is_small = matrix.shape[0] * matrix.shape[1] <= _DENSE_VALUES
    return matrix.toarray() if is_small else matrix


def _unit(matrix: SparseMatrix) -> SparseMatrix:
    """Rows scaled to length 1; those of zeros stay."""
    owner = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    squares = matrix.data.astype(np.float64) ** 2
    lengths = np.sqrt(np.bincount(owner, squares, matrix.shape[0]))
    values = (matrix.data / np.maximum(lengths, 1e-9)[owner]).astype(np.float32)
    return SparseMatrix((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def _read_servers(names: Sequence[str]) -> npt.NDArray[np.int32]:
    prefixes = [match[0] if (match := _PREFIX.match(name)) else "" for name in names]
    counts = Counter(prefixes)
    largest = _LARGEST_SERVER * len(names)
    shared = {at: n for n, at in enumerate(counts) if at and 1 < counts[at] <= largest}
    return np.array([shared.get(prefix, -1 - at) for at, prefix in enumerate(prefixes)], np.int32)
