"""What the names and descriptions of tools say: their vectors, and how similar two tools are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.data.tools import Tool
from dtdr.rankers.descriptions import name_words
from dtdr.rankers.dtdr_f.queries import QueryFeatures
from dtdr.rankers.dtdr_f.ragged import Ragged
from dtdr.rankers.dtdr_f.text import text_stems
from dtdr.rankers.dtdr_f.vocabulary import Vocabulary
from dtdr.rankers.nn import Matrix

DENSE_VALUES = 2_000_000
"""Stems times tools up to which the descriptions' matrix is kept dense: 8 MB."""
_PREFIX = re.compile(r"^[a-zA-Z0-9]+(?:__|::|/|\.|[-_:])")


class ToolTexts:
    """The tools of a vocabulary and the vectors of their texts.

    Args:
        tools: the vocabulary, end of plan last.
        stems: those of all descriptions among them.

    Attributes:
        documents: shape (tools - 1, stems): vectors of names, descriptions and parameters.
        servers: shape (tools,): number of the prefix that a tool's name shares with others, such
            as that of an MCP server; below 0 where it shares none.
    """

    def __init__(self, tools: Sequence[Tool], stems: Vocabulary) -> None:
        self.tools, self.stems = tuple(tools), stems
        self.documents = _encode(documents_of(tools), stems)
        names = [name_words(tool.name) for tool in tools[:-1]]
        own = Ragged.of([text_stems(name) for name in names], np.uint32)
        self._names = _encode(names, Vocabulary.fit(own.owner, own.values, len(names), 1))
        dense = self.documents.shape[1] * len(tools) <= DENSE_VALUES
        self._by_stem: Matrix | None = self.documents.T.toarray() if dense else None
        self.servers = _read_servers([tool.name for tool in tools[:-1]])

    def __len__(self) -> int:
        return len(self.tools)

    def similarity(self, query: QueryFeatures) -> Matrix:
        """Cosine of a query and each tool's text; shape (tools,), 0 for the end of plan."""
        others = self.stems.columns(query.text.others)
        columns, values = self.stems.row(np.concatenate([query.stems, others]))
        similarity = np.zeros(len(self.tools), np.float32)
        if self._by_stem is not None:
            similarity[:-1] = values @ self._by_stem[columns]
        else:
            dense = np.zeros(self.documents.shape[1], np.float32)
            dense[columns] = values
            similarity[:-1] = self.documents @ dense
        return similarity

    def alike(self, tool: int) -> Matrix:
        """Cosines of a tool's text, and of its name, with those of all.

        Shape (2, tools), 0 for the end of plan.
        """
        alike = np.zeros((2, len(self.tools)), np.float32)
        for row, vectors in zip(alike, (self.documents, self._names), strict=True):
            row[:-1] = (vectors @ csr_array(vectors[[tool]]).T).toarray()[:, 0]
        return alike


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


def _encode(texts: Sequence[str], vocabulary: Vocabulary) -> csr_array:
    rows = Ragged.of([text_stems(text) for text in texts], np.uint32)
    return vocabulary.encode(rows.owner, rows.values, len(texts))


def _read_servers(names: Sequence[str]) -> npt.NDArray[np.int32]:
    prefixes = [match[0] if (match := _PREFIX.match(name)) else "" for name in names]
    counts = Counter(prefixes)
    numbers = {prefix: at for at, prefix in enumerate(counts) if prefix and counts[prefix] > 1}
    # Tools without one, and the end of plan, have numbers that no other tool has.
    every = [numbers.get(prefix, -1 - at) for at, prefix in enumerate([*prefixes, ""])]
    return np.array(every, np.int32)
