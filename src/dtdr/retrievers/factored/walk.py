"""A session's way through a plan: what is known of every tool, kept up to date call by call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dtdr.retrievers.factored.alignment import BINS, Evidence
from dtdr.retrievers.factored.examples import NEED_LEVELS
from dtdr.retrievers.factored.history import MAX_COUNT, MAX_LENGTH
from dtdr.retrievers.factored.layout import Layout
from dtdr.retrievers.factored.parts import Parts
from dtdr.retrievers.factored.reader import NEEDED, PreparedQuery, Reader, highest
from dtdr.retrievers.factored.relations import Pairs

if TYPE_CHECKING:
    from dtdr.retrievers.factored.cold import View

Array = npt.NDArray[Any]


class Walk:
    """The features of every tool after some calls for one query.

    One walk belongs to one plan; the reader's parts are shared and never written.

    Args:
        reader: of the parts.
        query: prepared by the reader.

    Attributes:
        table: what ``features`` gives.
        view: what is known of the tools without demonstrations, made when first needed.
    """

    __slots__ = (
        "_block",
        "_called",
        "_calls",
        "_centre",
        "_hidden",
        "_lags",
        "_last",
        "_left",
        "_length",
        "_looked",
        "_nothing",
        "_pairs",
        "_pointer",
        "_query",
        "_reader",
        "_rows",
        "_together",
        "table",
        "view",
    )

    def __init__(self, reader: Reader, query: PreparedQuery) -> None:
        self._reader = reader
        self._query = query
        self.table = table = query.table.copy()
        self._rows: list[Array] = list(table)
        self._pairs: Array = table[reader.layout.pairs]
        self._block: Array = table[reader.layout.aligned]
        self._hidden = query.hidden.copy()
        self._called: dict[int, int] = {}
        self._calls: list[int] = []  # the last few, for the kernel
        self._lags: tuple[int, int, int] = (-1, -1, -1)
        self._last = -1
        self._length = 0
        self._nothing = query.nothing
        self._left = query.calls
        self._pointer = 0.0
        self._looked = -1.0
        self._centre = 0.0
        self._together: Array = np.zeros(0, np.float32)
        self.view: View | None = None

    @property
    def layout(self) -> Layout:
        """Which row of the table holds what."""
        return self._reader.layout

    @property
    def parts(self) -> Parts:
        """What the walk reads from."""
        return self._reader.parts

    @property
    def evidence(self) -> Evidence | None:
        """Which part of the query speaks for which tool."""
        return self._query.evidence

    @property
    def columns(self) -> Array | None:
        """The tools of the table's columns; None for all."""
        return self._query.columns

    @property
    def rest(self) -> Array | None:
        """How the tools out of view share what is left for them; None where there are none."""
        return self._query.rest

    @property
    def new(self) -> Array:
        """Columns of tools without demonstrations."""
        return self._query.new

    def pairs(self, column: int) -> Pairs:
        """What is said of the tool of a column and the tools in view."""
        return self._reader.pairs(column, self._query.columns)

    @property
    def called(self) -> dict[int, int]:
        """How often the tool of each column was called."""
        return self._called

    def call(self, tool: int) -> None:
        """One more call; an index outside the tools is an unknown one, and so is the end."""
        reader, rows = self._reader, self._rows
        layout, parts = reader.layout, reader.parts
        self._length += 1
        if not 0 <= tool < parts.tools - 1:
            tool = -1
        if parts.kernel is not None:
            self._calls = [*self._calls[-7:], tool]
        query = self._query
        if self._last >= 0:
            rows[layout.last][self._last] = 0
        slot = parts.slots[tool] if tool >= 0 else -1
        first, second, _ = self._lags
        self._lags = (slot, first, second)
        if tool < 0:
            self._last = -1
            # As in training of the reference: nothing is said after a call of an unknown tool.
            rows[layout.together].fill(0)
            self._pairs.fill(0)
            self._centre = 0.0
            return
        pairs = parts.relations.row(tool)
        if query.columns is not None and query.places is not None:
            pairs = pairs.at(query.columns)
            # A tool out of view has a number of its own, which no column has.
            column = query.places.get(tool, -2 - tool)
        else:
            column = tool
        np.copyto(self._pairs, pairs.features[: layout.pair_rows])
        called = self._called
        count = called.get(column, 0) + 1
        called[column] = count
        if count == 1:
            if slot >= 0:
                self._hidden += parts.history.first[slot]
            missing = rows[layout.missing]
            np.subtract(missing, pairs.used_by, out=missing)
            self._together = self._together + pairs.together if len(called) > 1 else pairs.together
        elif slot >= 0 and count <= MAX_COUNT:
            self._hidden += parts.history.counts[slot]
        np.multiply(self._together, 1 / len(called), out=rows[layout.together])
        self._last = column
        if column < 0:
            self._centre = 0.0
            return
        rows[layout.last][column] = 1
        if count == 1:
            rows[layout.once][column] = 1
        elif count == 2:
            rows[layout.once][column] = 0
            rows[layout.twice][column] = 1
        else:
            rows[layout.twice][column] = 0
            rows[layout.often][column] = min(count, 6) * 0.3
        if parts.switches.need and count <= NEED_LEVELS:
            self._call_needed(column, count, pairs)
        evidence = query.evidence
        if evidence is not None:
            self._look(layout, evidence)
            self._pointer = evidence.moved(self._pointer, column, self._block)
            self._centre = float(evidence.centre[column])

    def _call_needed(self, tool: int, count: int, pairs: Pairs) -> None:
        query, rows, layout = self._query, self._rows, self._reader.layout
        logits, left = query.need, query.left
        before = _chance(logits[count - 1, tool])
        logit = float(logits[count, tool])
        after = _chance(logit)
        rows[layout.need][tool] = logit
        self._nothing += math.log1p(-min(after, 0.999)) - math.log1p(-min(before, 0.999))
        self._left += float(left[count, tool] - left[count - 1, tool])
        if before > NEEDED:
            change = (after if after > NEEDED else 0.0) - before
            earlier = rows[layout.needed_before]
            np.add(earlier, change * pairs.before, out=earlier)
            if len(query.gaps) and tool in query.needed:
                earlier = rows[layout.needed_earlier]
                np.add(earlier, change * query.gaps[query.needed.index(tool)], out=earlier)

    def features(self) -> Array:
        """Shape (features + 1, tools); the walk's own, to be read before its next call."""
        reader, query, rows = self._reader, self._query, self._rows
        layout, parts = reader.layout, reader.parts
        history = parts.history
        length = self._length
        hidden = self._hidden + history.positions[length if length < MAX_LENGTH else MAX_LENGTH]
        for slot, weights in zip(self._lags, history.lags, strict=True):
            if slot >= 0:
                hidden += weights[slot]
        np.maximum(hidden, 0, out=hidden)
        output, bias = query.output
        logits = hidden @ output
        logits += bias
        if query.seen is None:
            np.subtract(logits, logits[logits.argmax()], out=rows[0])
        else:
            rows[0][query.seen] = logits - logits[logits.argmax()]
        steps = min(length, 10) * 0.2
        rows[layout.steps].fill(steps)
        rows[layout.steps_at_end][-1] = steps
        if parts.kernel is not None and query.kernel is not None:
            calls = self._calls if length <= len(self._calls) else self._calls[-4:]
            both = parts.kernel.log_probabilities(query.kernel, calls)
            for row, values in zip((layout.kernel, layout.kernel + 1), both, strict=True):
                rows[row][:] = values if query.columns is None else values[query.columns]
        if parts.switches.need:
            # The logit of the chance that nothing is needed any more.
            nothing = min(self._nothing, 0.0)
            logit = nothing - math.log(1 - min(math.exp(nothing), 0.9999))
            rows[layout.need][-1] = min(max(logit, -9.0), 9.0)
            rows[layout.left][-1] = self._left
            rows[layout.needed_before][-1] = self._left
        evidence = query.evidence
        if evidence is not None:
            self._look(layout, evidence)
            rows[layout.centre_of_last].fill(self._centre)
            distance = rows[layout.from_last]
            np.subtract(evidence.centre, self._centre, out=distance)
            np.abs(distance, out=distance)
        return self.table

    def _look(self, layout: Layout, evidence: Evidence) -> None:
        """See the query from the pointer, unless it was seen from there."""
        pointer = self._pointer
        if pointer == self._looked:
            return
        self._looked = pointer
        rows, seen = self._rows, self._query.seen
        evidence.look(pointer, self._block)
        ahead, near = rows[layout.ahead], rows[layout.near]
        best = highest(ahead if seen is None else ahead[seen])
        rows[layout.best_ahead].fill(best)
        rows[layout.best_near].fill(highest(near if seen is None else near[seen]))
        reached = pointer / BINS
        rows[layout.pointer].fill(reached)
        rows[layout.pointer_at_end][-1] = reached
        rows[layout.best_ahead_at_end][-1] = best


def of_all(found: npt.NDArray[np.float64], walk: Walk) -> npt.NDArray[np.float64]:
    """Probabilities of all tools from those of the tools in view.

    The others share less than the least likely tool in view.
    """
    columns, rest = walk.columns, walk.rest
    if columns is None or rest is None:
        return found
    share = 0.5 * float(found[found.argmin()])
    every: npt.NDArray[np.float64] = rest * share
    every[columns] = found
    every /= np.add.reduce(every)
    return every


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-float(logit)))
