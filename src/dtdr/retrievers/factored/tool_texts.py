"""What the names and descriptions of tools say: their vectors, and how alike two tools are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from dtdr.retrievers.descriptions import name_words
from dtdr.retrievers.factored.query_features import QueryFeatures
from dtdr.retrievers.factored.query_text import StemEncoder
from dtdr.retrievers.nn import Indices, Matrix
from dtdr.tools import Tool

DENSE_VALUES = 2_000_000
"""Stems times tools up to which the descriptions' matrix is kept dense: 8 MB."""


class ToolTexts:
    """The tools of a vocabulary and the vectors of their texts.

    Args:
        tools: the vocabulary, end of plan last.
        encoder: stems, those of all descriptions among them.

    Attributes:
        documents: shape (tools - 1, stems): vectors of names, descriptions and parameters.
    """

    def __init__(self, tools: Sequence[Tool], encoder: StemEncoder) -> None:
        self.tools = tuple(tools)
        self.encoder = encoder
        self.documents: csr_array = encoder.encode(documents_of(tools))
        names = [name_words(tool.name) for tool in tools[:-1]]
        self._names: csr_array = StemEncoder(min_df=1).fit(names).encode(names)
        dense = self.documents.shape[1] * len(tools) <= DENSE_VALUES
        self._by_stem: Matrix | None = self.documents.T.toarray() if dense else None

    def __len__(self) -> int:
        return len(self.tools)

    def similarity(self, query: QueryFeatures) -> Matrix:
        """Cosine of a query and each tool's text; shape (tools,), 0 for the end of plan."""
        others = self.encoder.columns(query.text.parts())
        columns, values = self.encoder.row(query.stems + others)
        similarity = np.zeros(len(self.tools), np.float32)
        if self._by_stem is not None:
            similarity[:-1] = values @ self._by_stem[columns]
        else:
            dense = np.zeros(self.documents.shape[1], np.float32)
            dense[columns] = values
            similarity[:-1] = self.documents @ dense
        return similarity

    def alike(self, tools: Sequence[int] | Indices) -> tuple[Matrix, Matrix]:
        """Cosines of some tools' texts, and of their names, with those of all.

        Both of shape (chosen, tools), 0 for the end of plan.
        """
        texts, names = np.zeros((2, len(tools), len(self.tools)), np.float32)
        texts[:, :-1] = _products(self.documents, tools)
        names[:, :-1] = _products(self._names, tools)
        return texts, names


def documents_of(tools: Sequence[Tool]) -> list[str]:
    """Names twice, descriptions, and names of parameters, without the end of plan."""
    return [
        " ".join(
            (
                name_words(tool.name),
                name_words(tool.name),
                tool.description,
                *(parameter.name for parameter in tool.parameters),
            )
        )
        for tool in tools[:-1]
    ]


def _products(rows: csr_array, chosen: Sequence[int] | Indices) -> Matrix:
    """Products of some rows with all; shape (chosen, rows)."""
    if len(chosen) > 1:
        return np.asarray((csr_array(rows[list(chosen)]) @ rows.T).toarray(), np.float32)
    part = slice(rows.indptr[chosen[0]], rows.indptr[chosen[0] + 1])
    dense = np.zeros(rows.shape[1], np.float32)
    dense[rows.indices[part]] = rows.data[part]
    return np.asarray(rows @ dense, np.float32)[None]
