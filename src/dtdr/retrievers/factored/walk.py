"""A session's way through a plan: what is known of every tool, kept up to date call by call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dtdr.retrievers.factored.alignment import BINS, ROWS, Evidence
from dtdr.retrievers.factored.kernel import Weights
from dtdr.retrievers.factored.network import MAX_COUNT, MAX_LENGTH, sigmoid
from dtdr.retrievers.factored.parts import NEED_LEVELS, Parts, Switches
from dtdr.retrievers.factored.relations import Pairs

if TYPE_CHECKING:
    from dtdr.retrievers.factored.cold import View

Array = npt.NDArray[Any]

ALL_RANKED = 64
"""Up to so many tools, the ranker sees all of them."""
SHORTLIST = 32
"""Candidates a step among more tools; 40 changed validation MRR by less than .004 on three sets."""
MOST_COLUMNS = 256
"""Tools that a query keeps in view among more, so that a step costs the same with 20,000."""
_MOST_NEW = 16
"""Tools without demonstrations that a query keeps in view."""
_NEEDED = 0.05
"""Tools that are needed less likely say nothing about what comes before what."""
_NONE = np.empty(0, np.intp)
_UNSEEN = np.float32(-9)
"""Log probability in the networks' place for a tool that no demonstration calls."""


class Layout:
    """Which row of the table holds which feature; rows that are written together are neighbours.

    Args:
        switches: which parts are used.

    Attributes:
        names: the features, in the order of their rows; a row of ones follows them.
    """

    def __init__(self, switches: Switches) -> None:
        names = ["log_next", "last", "called_once", "called_twice", "called_often", "end", "steps"]
        names += ["steps_at_end", "log_frequency", "producers_missing", "together", "uses_last"]
        if switches.descriptions:
            names += ["like_last", "name_like_last", "after_tools_like_last"]
            names += ["likeness", "likeness_relative"]
        if switches.kernel:
            names += ["kernel", "markov"]
        if switches.need:
            names += ["need", "expected_left", "needed_before"]
        if switches.alignment:
            names += ["ahead", "behind", "described_ahead", "near", "centre_ahead", "pointer"]
            names += ["best_ahead", "best_near", "pointer_at_end", "best_ahead_at_end"]
            names += ["centre", "centre_of_last", "from_last"]
            names += ["needed_earlier_in_query"] if switches.need else []
        self.names = names
        row = {name: number for number, name in enumerate(names)}
        self.last = row["last"]
        self.once, self.twice = row["called_once"], row["called_twice"]
        self.often = row["called_often"]
        self.end, self.steps = row["end"], row["steps"]
        self.steps_at_end = row["steps_at_end"]
        self.frequency = row["log_frequency"]
        self.missing, self.together = row["producers_missing"], row["together"]
        pairs = 4 if switches.descriptions else 1
        self.pairs = slice(row["uses_last"], row["uses_last"] + pairs)
        self.pair_rows = pairs
        self.likeness = row.get("likeness", -1)
        self.kernel = row.get("kernel", -1)
        self.need, self.left = row.get("need", -1), row.get("expected_left", -1)
        self.needed_before = row.get("needed_before", -1)
        self.ahead = row.get("ahead", -1)
        self.described_ahead = row.get("described_ahead", -1)
        self.aligned = slice(self.ahead, self.ahead + ROWS)
        self.near, self.pointer = row.get("near", -1), row.get("pointer", -1)
        self.best_ahead, self.best_near = row.get("best_ahead", -1), row.get("best_near", -1)
        self.pointer_at_end = row.get("pointer_at_end", -1)
        self.best_ahead_at_end = row.get("best_ahead_at_end", -1)
        self.centre, self.from_last = row.get("centre", -1), row.get("from_last", -1)
        self.centre_of_last = row.get("centre_of_last", -1)
        self.needed_earlier = row.get("needed_earlier_in_query", -1)


def feature_names(switches: Switches) -> list[str]:
    """The features of a candidate; the first is the network's log probability."""
    return Layout(switches).names


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
            np.divide(likeness, _highest(known) + 1e-6, out=table[layout.likeness + 1])
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
            needed = np.flatnonzero(chances > _NEEDED).tolist()
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
        if before > _NEEDED:
            change = (after if after > _NEEDED else 0.0) - before
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
        best = _highest(ahead if seen is None else ahead[seen])
        rows[layout.best_ahead].fill(best)
        rows[layout.best_near].fill(_highest(near if seen is None else near[seen]))
        reached = pointer / BINS
        rows[layout.pointer].fill(reached)
        rows[layout.pointer_at_end][-1] = reached
        rows[layout.best_ahead_at_end][-1] = best


def shortlist(layout: Layout, switches: Switches, table: Array) -> npt.NDArray[np.intp] | None:
    """The candidates among many tools, rising; None where the ranker sees all of them."""
    if table.shape[1] <= ALL_RANKED:
        return None
    order = table[0].copy()
    if switches.kernel:
        order += np.float32(0.5) * table[layout.kernel]
    if switches.need:
        order += np.float32(0.1) * table[layout.need]
    if switches.descriptions:
        order += np.float32(2) * table[layout.likeness + 1]
    return np.sort(np.argpartition(-order, SHORTLIST - 1)[:SHORTLIST])


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


def _highest(values: Array) -> float:
    # A third of the time of values.max().
    return float(values[values.argmax()])


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-float(logit)))
