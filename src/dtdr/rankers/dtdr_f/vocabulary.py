"""Hashed terms with weights by TF-IDF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.rankers.dtdr_f.ragged import count_rows
from dtdr.rankers.dtdr_f.text import Hashes
from dtdr.rankers.nn import Indices, Matrix

Row = tuple[npt.NDArray[np.intp], Matrix]
"""Columns (sorted) and values of a sparse vector."""


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

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return len(self.terms)

    @classmethod
    def fit(
        cls, owner: Indices, terms: Hashes, texts: int, least: int, further: Hashes | None = None
    ) -> Self:
        """Learn which terms there are and how many texts contain each.

        Args:
            owner: shape (terms of all texts,): the text of each.
            terms: the same shape.
            texts: how many there are.
            least: terms in fewer texts are left out.
            further: terms that count however few texts contain them.
        """
        known, counts = count_rows(terms, owner)
        kept = counts >= least
        if further is not None:
            kept |= np.isin(known, further)
        known, counts = known[kept], counts[kept]
        if further is not None:
            new = np.setdiff1d(further, known)
            known, counts = np.append(known, new), np.append(counts, np.ones(len(new), np.int64))
            order = np.argsort(known)
            known, counts = known[order], counts[order]
        if not len(known):  # matrices of no columns would be a case of their own everywhere
            known, counts = np.zeros(1, np.uint32), np.zeros(1, np.int64)
        idf = np.log((1 + texts) / (1 + counts)) + 1
        return cls(known.astype(np.uint32), idf.astype(np.float32))

    def extend(self, terms: Hashes) -> Vocabulary:
        """With columns for those of the terms that are new, as rare as the rarest."""
        new = np.setdiff1d(terms, self.terms)
        both = np.concatenate([self.terms, new])
        rarest = np.full(len(new), self.idf.max(), np.float32)
        order = np.argsort(both)
        return Vocabulary(both[order], np.concatenate([self.idf, rarest])[order])

    def columns(self, hashes: Hashes) -> Indices:
        """The column of each term, -1 where it is not known."""
        places = self.terms.searchsorted(hashes)
        known = self.terms.take(places, mode="clip") == hashes
        return np.where(known, places, -1)

    def row(self, columns: Indices) -> Row:
        """The row of a text with terms of these columns."""
        distinct, counts = np.unique(columns[columns >= 0], return_counts=True)
        values = (1 + np.log(counts)) * self.idf[distinct]
        values *= 1 / max(float(np.sqrt(values @ values)), 1e-9)
        return distinct, values.astype(np.float32)

    def encode(self, owner: Indices, terms: Hashes, texts: int) -> csr_array:
        """Rows of many texts; shape (texts, terms)."""
        columns = self.columns(terms)
        keys = owner[columns >= 0] * self.dimension + columns[columns >= 0]
        distinct, counts = np.unique(keys, return_counts=True)
        rows, columns = distinct // self.dimension, distinct % self.dimension
        values = (1 + np.log(counts)) * self.idf[columns]
        lengths = np.sqrt(np.bincount(rows, values * values, texts))
        values = (values / np.maximum(lengths, 1e-9)[rows]).astype(np.float32)
        starts = np.searchsorted(rows, np.arange(texts + 1))
        return csr_array(
            (values, columns.astype(np.int32), starts.astype(np.int32)),
            shape=(texts, self.dimension),
        )
