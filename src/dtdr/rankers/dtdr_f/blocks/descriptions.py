"""Similarity of tools' names and descriptions to the query and to the last call.

It knows the texts of the tools, and which tool followed which in the demonstrations. Texts are
vectors of the stems of their words, rare ones weighing more; similarity is their cosine. So it can
say something of tools that no demonstration calls, also what tends to follow tools *like* the last.

Example, from the bundled set: for a request about a train, expenses and an email, the query has a
cosine of .092 with the text of ``book_train`` and of .114 with that of ``expense_report``, the most
similar tool, so ``relative_similarity`` of ``book_train`` is .092 / (.114 + .01) = .74. After the
call ``search_trains``, the names of both tools have a cosine of .59 (``name_like_last``), their
texts one of .20 (``like_last``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.observations import REMOVED
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix
from dtdr.text.sparse import csr_array

_NO_SIMILARITY = 0.01
"""Added to the best similarity: a query that no tool resembles must not make one stand out."""
_MOST_RELATIVE = 2
"""Limit of ``relative_similarity``: a new tool may be the only one that is similar at all."""
_LIKE_NONE, _UNLIKE = 1e-3, 1.0
"""Added to the rate and to the weight of the tools that a mean of rates is over: after a tool like
no other, each tool has a rate of a thousandth."""
_LEAST_RATE = 1e-5
"""Added to rates before their logarithms."""


class DescriptionsRows(FeatureRows):
    """Similarities of texts."""

    similarity: Matrix  # cosine of a tool's text and the query
    relative_similarity: Matrix  # the same, divided by that of the most similar known tool
    like_last: Matrix  # cosine of the texts of a tool and of the tool called last
    name_like_last: Matrix  # the same of their names
    after_tools_like_last: Matrix  # log of how often a tool followed tools like the last


_OF_LAST_CALL = DescriptionsRows.span("like_last", "after_tools_like_last")


class Descriptions(Block):
    """Similarity of tools with the query, and with the tool that was called last.

    Attributes:
        after: of a tool, shape (3, tools): the features of every tool after a call of that one.
    """

    name = "descriptions"
    about = "names and descriptions of tools"
    rows = DescriptionsRows
    text_features = DescriptionsRows.names
    shortlist: ClassVar = {"relative_similarity": 2.0}

    def __init__(self, training: TrainingSet) -> None:
        self._tools, self._seen = training.tools, training.seen
        data, size = training.data, len(training.tools)
        # The tool of the call after each, the end of plan after the last.
        following = np.append(data.calls[1:], np.int32(0))[: len(data.calls)]
        following[data.starts[1:][data.lengths > 0] - 1] = size - 1
        known = (data.calls != REMOVED) & (following != REMOVED)
        pairs = (following[known], data.calls[known])
        counts = csr_array((np.ones(len(pairs[0])), pairs), shape=(size, size))
        totals = np.asarray(counts.sum(axis=0)).ravel() + 1 / training.scale
        self._rates = csr_array(counts.multiply(1 / totals[None]))
        """Shape (tools, tools): how often the row follows the column."""
        self.after = training.cached(self._after)

    def _after(self, tool: int) -> Matrix:
        texts, names = self._tools.alike(tool)
        # The square: a few tools that are much alike say more than many that are a little.
        weights = np.maximum(texts.astype(np.float64), 0) ** 2
        weights[tool] = 0  # what followed the tool itself is in the block ``chain``
        mean = (self._rates @ weights + _LIKE_NONE) / (weights.sum() + _UNLIKE)
        return np.stack([texts, names, np.log(mean + _LEAST_RATE).astype(np.float32)])

    def start(self, query: Query, rows: DescriptionsRows) -> BlockState:
        """Similarity with the query."""
        similarity = self._tools.similarity(query.features)
        rows.similarity[:] = similarity
        # Relative to the best known tool: new tools must not change the features of the others.
        known = similarity[self._seen]
        best = float(known[known.argmax()])
        relative = rows.relative_similarity
        np.multiply(similarity, 1 / (best + _NO_SIMILARITY), out=relative)
        np.minimum(relative, _MOST_RELATIVE, out=relative)
        return _DescriptionsState(self.after)


class _DescriptionsState(BlockState):
    def __init__(self, after: Callable[[int], Matrix]) -> None:
        self._after = after

    def call(self, event: CallEvent, rows: DescriptionsRows) -> BlockState:
        # After a call of an unknown tool, all are 0.
        rows.table[_OF_LAST_CALL] = self._after(event.tool) if event.tool >= 0 else 0
        return self
