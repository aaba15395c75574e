"""All that is computed once a query, before the first call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.retrievers.factored.alignment import Evidence
from dtdr.retrievers.factored.examples import NEED_LEVELS
from dtdr.retrievers.factored.kernel import Weights
from dtdr.retrievers.factored.layout import Layout
from dtdr.retrievers.factored.network import sigmoid
from dtdr.retrievers.factored.parts import Parts
from dtdr.retrievers.factored.relations import Pairs

Array = npt.NDArray[Any]

MOST_COLUMNS = 256
"""Tools that a query keeps in view among more, so that a step costs the same with 20,000."""
NEEDED = 0.05
"""Tools that are needed less likely say nothing about what comes before what."""
_MOST_NEW = 16
"""Tools without demonstrations that a query keeps in view."""
_NONE = np.empty(0, np.intp)
_UNSEEN = np.float32(-9)
"""Log probability in the networks' place for a tool that no demonstration calls."""


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """All that is computed once a query.

    Attributes:
        words: of the query, in order.
        hidden: shape (width,): the query part of the next-tool network.
        need: shape (NEED_LEVELS + 1, tools): logits of being called once more after 0, 1, … calls.
        left: shape (NEED_LEVELS + 1, tools): expected calls beyond so many.
        nothing: sum of the logarithms of the chances that each tool is not needed.
        calls: expected number of calls.
        needed: columns of the tools that are likely to be called, rising.
        gaps: shape (needed, tools): how surely each tool stands later in the query; empty without
            evidence.
        kernel: weights of the demonstrations.
        evidence: which part of the query speaks for which tool.
        table: shape (features + 1, tools): the features before any call.
        columns: the tools in view, rising, the end of plan last; every "tools" above counts these
            only. None where all are.
        places: the column of each tool in view; None where all are.
        seen: the columns that the networks know; None for all.
        output: the last layer of the next-tool network for these, and its bias.
        rest: shape (tools,): how the tools out of view share what is left for them; None where
            there are none.
        new: columns of tools without demonstrations.
    """

    words: list[str]
    hidden: Array
    need: Array
    left: Array
    nothing: float
    calls: float
    needed: list[int]
    gaps: Array
    kernel: Weights | None
    evidence: Evidence | None
    table: Array
    columns: Array | None
    places: dict[int, int] | None
    seen: Array | None
    output: tuple[Array, Array]
    rest: Array | None
    new: Array


class Reader:
    """Reads queries for fitted parts.

    Args:
        parts: fitted.

    Attributes:
        new: indices of the tools that no demonstration calls.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.layout = layout = Layout(parts.switches)
        self.blank = np.zeros((len(layout.names) + 1, parts.tools), np.float32)
        self.blank[-1] = 1
        self.blank[0] = _UNSEEN
        self.blank[layout.end, -1] = 1
        # Of a thousand calls, lest the feature grow as demonstrations are added.
        frequency = parts.relations.frequency
        self.blank[layout.frequency] = np.log1p(
            frequency * (1000 / max(float(frequency.sum()), 1.0))
        )
        self.blank[layout.missing] = parts.relations.producers
        self._new = parts.relations.frequency == 0
        self._new[-1] = False
        self._any_new = bool(self._new.any())
        self._seen = None if parts.complete else parts.seen
        values = parts.next_tool.parameters
        self._output = (values["output"], values["output_bias"])

    def prepare(self, text: str) -> PreparedQuery:
        """Everything that depends on the query alone."""
        parts, layout = self.parts, self.layout
        read = parts.read(text)
        hidden = parts.next_tool.query(read.joined, read.cues)
        likeness = np.zeros(parts.tools, np.float32)
        if parts.switches.descriptions:
            likeness[:-1] = parts.likeness(read)
        need = np.zeros((0, parts.tools), np.float32)
        if parts.switches.need:
            need = self._need(read.row, read.cues)
        columns, rest = self._in_view(hidden, likeness, need)
        seen, output, places = self._seen, self._output, None
        if columns is None:
            table = self.blank.copy()
            new = np.flatnonzero(self._new) if self._any_new else _NONE
        else:
            table = self.blank.take(columns, axis=1)
            likeness, need = likeness[columns], need[:, columns]
            places = {tool: column for column, tool in enumerate(columns.tolist())}
            slots = np.array([parts.slots[tool] for tool in columns.tolist()])
            seen = np.flatnonzero(slots >= 0)
            output = (output[0][:, slots[seen]], output[1][slots[seen]])
            seen = None if len(seen) == len(columns) else seen
            new = np.flatnonzero(self._new[columns])
        if len(new) > _MOST_NEW:
            new = np.sort(new[np.argsort(-likeness[new], kind="stable")[:_MOST_NEW]])
        if parts.switches.descriptions:
            table[layout.likeness] = likeness
            # Not above a new tool: what is said of the others must not depend on it.
            known = likeness if seen is None else likeness[seen]
            np.divide(likeness, highest(known) + 1e-6, out=table[layout.likeness + 1])
        evidence = None
        if parts.alignment is not None:
            evidence = parts.alignment.evidence(read.terms, read.stems, columns)
            table[layout.centre] = evidence.centre
        left = need
        nothing = calls = 0.0
        needed: list[int] = []
        gaps = likeness[:0]
        if parts.switches.need:
            chances = sigmoid(need[:-1])
            chances[:, -1] = 0
            left = np.empty_like(need)
            left[-1] = 0
            for level in range(NEED_LEVELS - 1, -1, -1):
                np.add(left[level + 1], chances[level], out=left[level])
            chances = chances[0]
            table[layout.need] = need[0]
            nothing = float(np.log1p(-np.minimum(chances, np.float32(0.999))).sum())
            calls = float(left[0].sum())
            needed = np.flatnonzero(chances > NEEDED).tolist()
            if needed:
                likely = chances[needed]
                if columns is None:
                    before = parts.relations.before(needed)
                else:
                    before = parts.relations.before(columns[needed].tolist())[:, columns]
                np.dot(likely, before, out=table[layout.needed_before])
                if evidence is not None:
                    # The logistic function of twenty times the distance, by its tangent.
                    centre = evidence.centre * np.float32(10)
                    gaps = np.tanh(centre - centre[needed][:, None])
                    gaps += 1
                    gaps *= np.float32(0.5)
                    gaps[np.arange(len(needed)), needed] = 0
                    np.dot(likely, gaps, out=table[layout.needed_earlier])
        weights = parts.kernel.weigh(read.row) if parts.kernel else None
        return PreparedQuery(
            words=read.reading.words,
            hidden=hidden,
            need=need,
            left=left,
            nothing=nothing,
            calls=calls,
            needed=needed,
            gaps=gaps,
            kernel=weights,
            evidence=evidence,
            table=table,
            columns=columns,
            places=places,
            seen=seen,
            output=output,
            rest=rest,
            new=new,
        )

    def pairs(self, column: int, columns: Array | None) -> Pairs:
        """What is said of the tool of a column and the tools in view."""
        if columns is None:
            return self.parts.relations.row(column)
        return self.parts.relations.row(int(columns[column])).at(columns)

    def _need(self, words: tuple[Array, Array], cues: Array) -> Array:
        parts = self.parts
        logits = parts.need.outputs(parts.need.query(words, cues)).reshape(NEED_LEVELS, -1)
        need = np.empty((NEED_LEVELS + 1, parts.tools), np.float32)
        np.minimum(logits, 9, out=logits)
        np.maximum(logits, -9, out=logits)
        if parts.complete:
            need[:-1] = logits
        else:
            need.fill(-9)
            need[:-1, parts.seen] = logits
        for level in range(1, NEED_LEVELS):  # two calls are no likelier than one
            np.minimum(need[level], need[level - 1], out=need[level])
        np.subtract(need[-2], 2, out=need[-1])
        return need

    def _in_view(
        self, hidden: Array, likeness: Array, need: Array
    ) -> tuple[Array | None, Array | None]:
        """The tools in view, None for all; and how the others share what is left for them."""
        tools = len(likeness)
        if tools <= MOST_COLUMNS:
            return None, None
        if len(need):
            order = need[0].copy()
        else:
            order = np.full(tools, _UNSEEN)
            output, bias = self._output
            order[self.parts.seen] = np.maximum(hidden, 0) @ output + bias
        # As for the shortlist of a step, an alike description counts as much as twenty times
        # the odds of being needed.
        order += np.float32(3) * likeness / (likeness.max() + np.float32(1e-6))
        rest = order.astype(np.float64)
        order[-1] = np.inf
        if self._any_new:
            new = np.flatnonzero(self._new)
            most = min(_MOST_NEW, len(new))
            order[new[np.argpartition(-likeness[new], most - 1)[:most]]] = np.inf
        columns = np.sort(np.argpartition(-order, MOST_COLUMNS - 1)[:MOST_COLUMNS])
        rest -= rest.max()
        np.exp(rest, out=rest)
        rest[columns] = 0
        rest /= max(float(rest.sum()), 1e-300)
        return columns, rest


def highest(values: Array) -> float:
    """The largest of some values."""
    # A third of the time of values.max().
    return float(values[values.argmax()])
