"""Vectors of names and descriptions of tools, and the similarity of two tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dtdr.data.tools import Tool
from dtdr.rankers.dtdr_f.queries import QueryFeatures, Vocabulary
from dtdr.rankers.dtdr_f.text import stems_of
from dtdr.rankers.nn import Indices, Matrix
from dtdr.text.sparse import csr_array
from dtdr.text.words import name_words

_DENSE_VALUES = 2_000_000
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
        self.documents = stems.encode(stems_of(documents_of(tools)))
        names = stems_of(name_words(tool.name) for tool in tools[:-1])
        self._names = Vocabulary.fit(names, least=1).encode(names)
        by_stem = csr_array(self.documents.T)
        by_stem.resize((len(stems.terms) + 1, len(tools)))
        is_small = by_stem.shape[0] * len(tools) <= _DENSE_VALUES
        self._by_stem: Matrix | csr_array = by_stem.toarray() if is_small else by_stem
        self.servers = _read_servers([tool.name for tool in tools[:-1]])

    def __len__(self) -> int:
        return len(self.tools)

    def similarity(self, query: QueryFeatures) -> Matrix:
        """Cosine of a query and each tool's text; shape (tools,), 0 for the end of plan."""
        others = self.stems.columns(query.text.others)
        columns, values = self.stems.row(np.concatenate([query.stems, others]))
        return np.append(values @ self.rows(columns)[:, :-1], np.float32(0))

    def rows(self, stems: Indices) -> Matrix:
        """The column of ``documents`` of each stem, 0 for the end of plan; shape (stems, tools).

        Args:
            stems: columns; -1 is an unknown one, which has zeros.
        """
        rows: Matrix | csr_array = self._by_stem[stems]  # the last row is zeros
        return rows if isinstance(rows, np.ndarray) else rows.toarray()

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
    documents = []
    for tool in tools[:-1]:
        name, parameters = name_words(tool.name), (parameter.name for parameter in tool.parameters)
        documents.append(" ".join((name, name, tool.description, *parameters)))
    return documents


def server_of(name: str) -> str:
    """The prefix of a tool's name, such as that of an MCP server; empty if it has none."""
    return match[0] if (match := _PREFIX.match(name)) else ""


def _read_servers(names: Sequence[str]) -> npt.NDArray[np.int32]:
    prefixes = list(map(server_of, names))
    counts = Counter(prefixes)
    numbers = {prefix: at for at, prefix in enumerate(counts) if prefix and counts[prefix] > 1}
    # Tools without one, and the end of plan, have numbers that no other tool has.
    servers = [numbers.get(prefix, -1 - at) for at, prefix in enumerate([*prefixes, ""])]
    return np.array(servers, np.int32)
