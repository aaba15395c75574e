"""Similarity of tools' names and descriptions to the query and to the last call."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.observations import REMOVED
from dtdr.rankers.nn import Matrix
from dtdr.text.sparse import csr_array


class Descriptions(Block):
    """Similarity of tools with the query, and with the tool that was called last.

    Attributes:
        rows: of a tool, shape (3, tools): cosine of its text with that of each other tool; the same
            of their names; and the logarithm of how often that tool followed tools like it.
    """

    name = "descriptions"
    about = "names and descriptions of tools"
    names = (
        *("similarity", "relative_similarity"),
        *("like_last", "name_like_last", "after_tools_like_last"),
    )
    text_features = names
    shortlist: ClassVar = {"relative_similarity": 2.0}

    def __init__(self, training: TrainingSet) -> None:
        self._tools, self._seen = training.tools, training.seen
        data, size = training.data, len(training.tools)
        # The tool of the call after each, the end of plan after the last.
        following = np.append(data.calls[1:], np.int32(0))[: len(data.calls)]
        following[data.starts[1:][data.lengths > 0] - 1] = size - 1
        known = (data.calls != REMOVED) & (following != REMOVED)
        places = (following[known], data.calls[known])
        counts = csr_array((np.ones(len(places[0])), places), shape=(size, size))
        totals = np.asarray(counts.sum(axis=0)).ravel() + 1 / training.scale
        self._rates = csr_array(counts.multiply(1 / totals[None]))
        """Shape (tools, tools): how often the row follows the column."""
        self.rows = training.cached(self._make)

    def _make(self, tool: int) -> Matrix:
        texts, names = self._tools.alike(tool)
        weights = np.maximum(texts.astype(np.float64), 0) ** 2
        weights[tool] = 0
        mean = (self._rates @ weights + 1e-3) / (weights.sum() + 1)
        return np.stack([texts, names, np.log(mean + 1e-5).astype(np.float32)])

    def start(self, query: Query, out: Matrix) -> BlockState:
        """Similarity with the query."""
        out[0] = similarity = self._tools.similarity(query.features)
        # Relative to the best known tool: new tools must not change the features of the others.
        known = similarity[self._seen]
        np.multiply(similarity, 1 / (float(known[known.argmax()]) + 0.01), out=out[1])
        np.minimum(out[1], 2, out=out[1])  # a new tool may be the only one that is similar at all
        return _DescriptionsState(self.rows)


class _DescriptionsState(BlockState):
    def __init__(self, alike: Callable[[int], Matrix]) -> None:
        self._alike = alike

    def call(self, event: CallEvent, rows: Matrix) -> BlockState:
        # After a call of an unknown tool, all are 0.
        rows[2:] = self._alike(event.tool) if event.tool >= 0 else 0
        return self
