"""What names and descriptions of tools have in common with the query and with the last call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from dtdr.retrievers.factored.blocks.base import (
    Begin,
    Block,
    CallEvent,
    Query,
    ToolRows,
    TrainingSet,
    View,
)
from dtdr.retrievers.factored.query_features import QueryFeatures
from dtdr.retrievers.nn import Indices, Matrix

_RELEVANCE = 3.0
"""The tool most like the query counts as much as twenty times the probability."""


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
    new_tool_names = (
        *("similarity", "similarity_above_others"),
        *("like_last", "name_like_last", "after_tools_like_last", "next_by_similarity"),
    )
    shortlist: ClassVar = {"relative_similarity": 2.0}

    def __init__(self, training: TrainingSet) -> None:
        self._tools = training.tools
        plans, size = training.plans, len(training.tools)
        call, after = plans.following()
        counts = plans.count_pairs(after, call, plans.call_weights)
        totals = np.asarray(counts.sum(axis=0)).ravel() + 1 / training.scale
        self._rates = csr_array(counts.multiply(1 / totals[None]))
        """Shape (tools, tools): how often the row follows the column."""
        self.rows = ToolRows(self._make, size)

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Count which tool follows which."""
        return cls(training)

    def _make(self, tools: Sequence[int]) -> Matrix:
        chosen = list(tools)
        texts, names = self._tools.alike(chosen)
        weights = np.maximum(texts.astype(np.float64), 0) ** 2
        weights[np.arange(len(chosen)), chosen] = 0
        mean = (self._rates @ weights.T).T + 1e-3
        mean /= weights.sum(axis=1, keepdims=True) + 1
        return np.stack([texts, names, np.log(mean + 1e-5).astype(np.float32)], axis=1)

    def warm(self, most: int) -> None:
        """Make the rows of all tools."""
        self.rows.warm(most)

    def relevance(self, query: QueryFeatures, memo: dict[str, Matrix]) -> Matrix:
        """The similarity with the query relative to that of the tool most alike."""
        similarity = memo[self.name] = self._tools.similarity(query)
        return similarity * np.float32(_RELEVANCE / (float(similarity.max()) + 1e-6))

    def start(self, query: Query, out: Matrix) -> Begin:
        """Similarity with the query."""
        similarity = query.memo.get(self.name)
        if similarity is None:
            similarity = self._tools.similarity(query.features)
        view = query.view
        out[0] = similarity = view.of(similarity)
        # Not above a new tool: what is said of the others must not depend on it.
        known = similarity if view.seen is None else similarity[view.seen]
        np.multiply(similarity, 1 / (float(known[known.argmax()]) + 1e-6), out=out[1])
        np.minimum(out[1], 1, out=out[1])  # a new tool may be the only one that is similar at all
        return partial(_DescriptionsState, self.rows, view)


class _DescriptionsState:
    __slots__ = ("_alike", "_described", "_like_last", "_similarity", "_view")

    def __init__(self, alike: ToolRows, view: View, rows: Matrix) -> None:
        self._alike, self._view = alike, view
        self._similarity, self._like_last = rows[0], rows[2:]
        self._described: tuple[Indices, Matrix, Matrix] | None = None

    def call(self, event: CallEvent) -> None:
        if event.tool < 0:  # nothing is said after a call of an unknown tool
            self._like_last.fill(0)
        else:
            self._view.write(self._alike[event.tool], self._like_last)

    def write(self) -> None:
        """Every call wrote already."""

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        # What calls do not change stays for the next step, which asks for the same tools.
        if self._described is None or self._described[0] is not columns:
            similarity = self._similarity[columns]
            others = best_of_others(self._similarity, columns)
            above = np.log((similarity + 0.02) / (others + 0.02))
            fixed = np.stack([similarity, above])
            self._described = (columns, fixed, self._similar_tools(columns))
        _, out[:2], weights = self._described
        self._like_last.take(columns, axis=1, out=out[2:5], mode="clip")
        expected = np.matmul(weights, prior, out=out[5])
        expected += np.float32(1e-4)
        np.log(expected, out=expected)

    def _similar_tools(self, columns: Indices) -> Matrix:
        """How much each tool in view says about some; rows sum to less than 1."""
        tools = columns if self._view.tools is None else self._view.tools[columns]
        alike = np.stack([self._view.of(self._alike[tool][0]) for tool in tools.tolist()])
        weights: Matrix = np.maximum(alike, 0) ** 2
        weights[np.arange(len(columns)), columns] = 0
        weights /= weights.sum(axis=1, keepdims=True) + np.float32(0.3)
        return weights


def best_of_others(values: Matrix, columns: Indices) -> Matrix:
    """For each of some columns, the highest value of any other; the end of plan left out.

    Shape (columns,), or (1,) where it is the same for all.
    """
    tools = values[:-1]
    best = int(tools.argmax())
    own = columns == best
    if not np.count_nonzero(own):
        return tools[best : best + 1]
    rest = tools.copy()
    rest[best] = -np.inf
    return np.where(own, rest.max() if len(rest) > 1 else np.float32(0), tools[best])
