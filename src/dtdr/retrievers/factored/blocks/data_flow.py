"""Which tool's output fills which tool's parameter, also for pairs never seen together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from dtdr.retrievers.descriptions import name_words
from dtdr.retrievers.factored.blocks.base import (
    Begin,
    Block,
    CallEvent,
    Query,
    ToolRows,
    TrainingSet,
    View,
)
from dtdr.retrievers.factored.query_text import StemEncoder
from dtdr.retrievers.factored.query_text import stems as text_stems
from dtdr.retrievers.nn import Indices, Matrix

_ROWS = 3
_SMOOTHING = 0.02
"""Added to shares before their logarithm."""


class DataFlow(Block):
    """What outputs of a tool are used for, by the parameters and texts of the tools that used them.

    A parameter is known by the stems of its name and by its type. Of each producer, and of tools
    whose texts are like its text, it is counted which parameters the calls had that used its
    output, or that followed it where no plan tells what used what. So a tool that was never called
    after another fits it where tools with such parameters did.

    Attributes:
        rows: of a tool, shape (3, tools): how far above chance the parameters of each other tool
            are filled by it; how like its text is to those of the tools that follow; and how far
            the names of its parameters stand in the text of the first tool.
    """

    name = "data_flow"
    about = "outputs that fill parameters"
    names = ("fills", "fills_any", "like_what_follows", "named_by_last")
    new_tool_names = ("fills", "fills_any", "like_what_follows", "named_by_last")

    def __init__(self, training: TrainingSet) -> None:
        self._tools = training.tools
        plans, size = training.plans, len(training.tools)
        call, after = plans.following()
        follows = plans.count_pairs(call, after, plans.call_weights)
        later, source = plans.edges.T
        uses = plans.count_pairs(plans.calls[source], plans.calls[later], plans.call_weights[later])
        if not uses.nnz:
            uses = follows
        self._parameters = _encode_parameters(training)
        counts = np.asarray(self._parameters.sum(axis=1)).ravel()
        self._weights = np.float32(1) / np.maximum(counts, np.float32(1e-6)).astype(np.float32)
        self._filled: csr_array = csr_array(uses[:, :-1] @ self._parameters) * training.scale
        self._uses = np.asarray(uses[:, :-1].sum(axis=1)).ravel() * training.scale
        self._overall = np.asarray(self._filled.sum(axis=0)).ravel() / max(
            float(self._uses.sum()), 1e-9
        )
        self._next: csr_array = csr_array(follows[:, :-1] @ self._tools.documents)
        self.rows = ToolRows(self._make, size)

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Count what used which output."""
        return cls(training)

    def _make(self, tools: Sequence[int]) -> Matrix:
        chosen = list(tools)
        texts, _ = self._tools.alike(chosen)
        weights = np.maximum(texts.astype(np.float64), 0) ** 2
        rows = np.zeros((len(chosen), _ROWS, len(self._tools)), np.float32)
        filled = (weights @ self._filled) / (weights @ self._uses + 1)[:, None]
        lift = np.log((filled + _SMOOTHING) / (self._overall + _SMOOTHING))
        rows[:, 0, :-1] = (self._parameters @ lift.T).T * self._weights
        following = weights @ self._next
        lengths = np.sqrt((following**2).sum(axis=1, keepdims=True))
        following /= np.maximum(lengths, 1e-9)
        documents = self._tools.documents
        rows[:, 1, :-1] = (documents @ following.T).T
        # Stems of the parameters are columns of the texts too, types stand behind them.
        named = self._parameters[:, : documents.shape[1]]
        rows[:, 2, :-1] = (named @ documents[chosen].T).toarray().T * self._weights
        return rows

    def warm(self, most: int) -> None:
        """Make the rows of all tools."""
        self.rows.warm(most)

    def start(self, query: Query, out: Matrix) -> Begin:
        """No call yet, so nothing is said."""
        return partial(_DataFlowState, self.rows, query.view)


class _DataFlowState:
    __slots__ = ("_flow", "_is_called", "_rows", "_view")

    def __init__(self, flow: ToolRows, view: View, rows: Matrix) -> None:
        self._flow, self._view, self._rows = flow, view, rows
        self._is_called = False

    def call(self, event: CallEvent) -> None:
        rows = self._rows
        if event.tool < 0:  # nothing is said after a call of an unknown tool
            rows[0], rows[2:] = 0, 0
            return
        fills, like, named = self._view.of(self._flow[event.tool])
        rows[0], rows[2], rows[3] = fills, like, named
        if self._is_called:
            np.maximum(rows[1], fills, out=rows[1])
        else:
            rows[1] = fills
            self._is_called = True

    def write(self) -> None:
        """Every call wrote already."""

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        self._rows.take(columns, axis=1, out=out, mode="clip")


def _encode_parameters(training: TrainingSet) -> csr_array:
    """Shape (tools - 1, stems + types): the parameters of each tool, none counting twice."""
    stems: StemEncoder = training.tools.encoder
    types: dict[str, int] = {}
    width = stems.dimension
    places: list[tuple[int, int]] = []
    values: list[float] = []
    for number, tool in enumerate(training.tools.tools[:-1]):
        weight_of: dict[int, float] = {}
        for parameter in tool.parameters:
            known, weights = stems.row(stems.columns(text_stems(name_words(parameter.name))))
            weight_of |= dict(zip(known.tolist(), weights.tolist(), strict=True))
            kind = types.setdefault(parameter.type, len(types))
            weight_of[width + kind] = 0.2
        places += [(number, column) for column in weight_of]
        values += weight_of.values()
    rows, columns = np.array(places, np.intp).reshape(-1, 2).T
    shape = (len(training.tools) - 1, width + len(types))
    return csr_array((np.array(values, np.float32), (rows, columns)), shape=shape)
