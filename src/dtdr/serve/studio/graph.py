"""The tools of many runs as a graph: how often each is called, and what comes after what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.serve.studio.layout import place_in_columns

Kind: TypeAlias = Literal["start", "tool", "end"]

START, END_OF_RUN = 0, 1
"""Positions of the two nodes that are not tools; ``start`` may be the name of a tool too."""

LONGEST_LOOP = 4
"""Calls of a loop that is counted."""
MOST_LOOPS = 12


@dataclass(frozen=True, slots=True)
class Node:
    """A tool, or the start or end of runs.

    Attributes:
        name: of the tool; ``start`` and ``end`` for the others.
        kind: which of the three.
        calls: how often it is called.
        runs: how many runs call it.
        repeats: how many runs call it more than once.
        errors: calls that failed.
        failed_runs: runs that call it and failed.
        position: where it stands in runs on average, from 0 (first) to 1 (last).
        x: from 0 to 1.
        y: from 0 to 1.
    """

    name: str
    kind: Kind
    calls: int
    runs: int
    repeats: int
    errors: int
    failed_runs: int
    position: float
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Edge:
    """What follows what.

    Attributes:
        source: position among the nodes.
        target: position among the nodes; the same one for a tool that follows itself.
        order: how often the target was called next after the source.
        probability: the share of that in all that came next after the source.
        dependency: how often a call of the target used what a call of the source returned.
    """

    source: int
    target: int
    order: int
    probability: float
    dependency: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A way from a tool back to itself.

    Attributes:
        tools: those on the way, the first one not repeated at the end.
        count: how often runs took it.
    """

    tools: tuple[str, ...]
    count: int


@dataclass(slots=True)
class _Counts:
    """Counts of one tool."""

    calls: int = 0
    runs: int = 0
    repeats: int = 0
    errors: int = 0
    failed_runs: int = 0
    places: float = 0.0


@dataclass
class ToolGraph:
    """Counts over runs.

    Attributes:
        names: of the nodes, start and end first, then tools by name.
        runs: how many were counted.
    """

    names: list[str]
    runs: int
    _counts: list[_Counts]
    _order: Counter[tuple[int, int]]
    _dependency: Counter[tuple[int, int]]
    _loops: Counter[tuple[int, ...]] = field(default_factory=Counter)

    @classmethod
    def of(cls, runs: Iterable[Demonstration]) -> ToolGraph:
        """Count runs."""
        runs = list(runs)
        tools = sorted({name for run in runs for name in run.plan.tools})
        index = {name: position for position, name in enumerate(tools, start=2)}
        graph = cls(
            ["start", "end", *tools],
            len(runs),
            [_Counts() for _ in range(len(tools) + 2)],
            Counter(),
            Counter(),
        )
        for run in runs:
            graph._add(run, index)
        return graph

    def _add(self, run: Demonstration, index: dict[str, int]) -> None:
        calls = [index[name] for name in run.plan.tools]
        for node in (START, END_OF_RUN):
            self._counts[node].calls += 1
            self._counts[node].runs += 1
        for place, (node, call) in enumerate(zip(calls, run.plan.calls, strict=True)):
            count = self._counts[node]
            count.calls += 1
            count.errors += call.status == "error"
            count.places += place / max(len(calls) - 1, 1)
        for node, times in Counter(calls).items():
            count = self._counts[node]
            count.runs += 1
            count.repeats += times > 1
            count.failed_runs += run.outcome == "failure"
        self._order.update(_transitions(run, calls))
        self._dependency.update(
            (calls[earlier], calls[later]) for earlier, later in run.plan.edges()
        )
        last: dict[int, int] = {}
        for place, node in enumerate(calls):
            if node in last and place - last[node] <= LONGEST_LOOP:
                self._loops[tuple(calls[last[node] : place])] += 1
            last[node] = place

    # -- what is shown -------------------------------------------------------------------------

    @cached_property
    def _out(self) -> npt.NDArray[np.int64]:
        """How often anything came next after each node."""
        out = np.zeros(len(self.names), np.int64)
        for (source, _), count in self._order.items():
            out[source] += count
        return out

    @cached_property
    def edges(self) -> list[Edge]:
        """All of them, most frequent first."""
        pairs = sorted(
            self._order.keys() | self._dependency.keys(),
            key=lambda pair: (-self._order[pair] - self._dependency[pair], pair),
        )
        return [
            Edge(
                source,
                target,
                order := self._order[source, target],
                round(order / max(int(self._out[source]), 1), 6),
                self._dependency[source, target],
            )
            for source, target in pairs
        ]

    def node(self, position: int, x: float = 0.0, y: float = 0.0) -> Node:
        """One node at a place."""
        count = self._counts[position]
        kind: Kind = "tool"
        if position < 2:
            kind = "start" if position == START else "end"
        mean = count.places / max(count.calls, 1)
        return Node(
            self.names[position],
            kind,
            count.calls,
            count.runs,
            count.repeats,
            count.errors,
            count.failed_runs,
            round({START: 0.0, END_OF_RUN: 1.0}.get(position, mean), 4),
            round(x, 5),
            round(y, 5),
        )

    def flow(self, limit: int) -> tuple[list[Node], list[Edge]]:
        """The tools that are called most, from left to right as runs go through them."""
        tools = sorted(range(2, len(self.names)), key=lambda at: (-self._counts[at].calls, at))
        return self._in_columns([START, *tools[:limit], END_OF_RUN])

    def around(self, tool: str, limit: int) -> tuple[list[Node], list[Edge]]:
        """A tool between what comes before it and what comes after it.

        Raises:
            KeyError: no run calls it.
        """
        centre = self.names.index(tool, 2) if tool in self.names[2:] else None
        if centre is None:
            raise KeyError(tool)
        before: Counter[int] = Counter()
        after: Counter[int] = Counter()
        for edge in self.edges:
            if edge.target == centre != edge.source:
                before[edge.source] += edge.order + edge.dependency
            elif edge.source == centre != edge.target:
                after[edge.target] += edge.order + edge.dependency
        columns: list[list[int]] = [[], [centre], []]
        strongest = sorted(
            before.keys() | after.keys(), key=lambda at: (-before[at] - after[at], at)
        )
        for at in strongest[:limit]:
            columns[0 if before[at] >= after[at] else 2].append(at)
        return self._place([column for column in columns if column])

    def _in_columns(self, chosen: Sequence[int]) -> tuple[list[Node], list[Edge]]:
        mean = {at: self._counts[at].places / max(self._counts[at].calls, 1) for at in chosen}
        tools = sorted(chosen[1:-1], key=lambda at: (mean[at], self.names[at]))
        count = max(1, round((len(tools) / 3) ** 0.5))
        parts = [part.tolist() for part in np.array_split(np.array(tools, int), count)]
        return self._place([[START], *[part for part in parts if part], [END_OF_RUN]])

    def _place(self, columns: list[list[int]]) -> tuple[list[Node], list[Edge]]:
        chosen = {at for column in columns for at in column}
        edges = [edge for edge in self.edges if edge.source in chosen and edge.target in chosen]
        weights = {(edge.source, edge.target): edge.order + edge.dependency for edge in edges}
        places = place_in_columns(columns, weights)
        order = {at: number for number, at in enumerate(places)}
        nodes = [self.node(at, *place) for at, place in places.items()]
        return nodes, [
            Edge(
                order[edge.source],
                order[edge.target],
                edge.order,
                edge.probability,
                edge.dependency,
            )
            for edge in edges
        ]

    def followers(self) -> dict[str, tuple[str | None, float]]:
        """By tool, what mostly comes next and how often; None stands for the end of the run."""
        found: dict[str, tuple[str | None, float]] = {}
        for edge in sorted(self.edges, key=lambda edge: -edge.order):
            if edge.source >= 2:
                name = self.names[edge.target] if edge.target >= 2 else None
                found.setdefault(self.names[edge.source], (name, edge.probability))
        return found

    def loops(self) -> list[Loop]:
        """The most frequent ways from a tool back to itself."""
        return [
            Loop(tuple(self.names[at] for at in way), count)
            for way, count in sorted(
                self._loops.items(), key=lambda item: (-item[1], len(item[0]), item[0])
            )[:MOST_LOOPS]
        ]


def _transitions(run: Demonstration, calls: Sequence[int]) -> Iterable[tuple[int, int]]:
    """What follows what; calls of one step are parallel, and all of them follow the step before."""
    steps: list[list[int]] = [[START]]
    last: int | None = None
    for node, call in zip(calls, run.plan.calls, strict=True):
        if call.step is None or call.step != last:
            steps.append([])
        steps[-1].append(node)
        last = call.step
    steps.append([END_OF_RUN])
    return [(one, two) for before, after in pairwise(steps) for one in before for two in after]
