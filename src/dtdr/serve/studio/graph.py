"""The tools of many runs as a graph: calls, order and dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from dtdr.data.demonstrations import Demonstration
from dtdr.serve.studio.layout import place_in_columns

Kind: TypeAlias = Literal["start", "tool", "end"]

START, END_OF_RUN = 0, 1
"""Positions of the two nodes that are not tools; ``start`` may be the name of a tool too."""

LONGEST_LOOP = 4
"""Calls of a loop that is counted."""
MOST_LOOPS = 12


@dataclass(slots=True)
class Node:
    """A tool, or the start or end of runs, with its counts.

    Attributes:
        name: of the tool; ``start`` and ``end`` for the others.
        kind: which of the three.
        calls: how often it is called.
        runs: how many runs call it.
        repeats: how many runs call it more than once.
        errors: calls that failed.
        failed_runs: runs that call it and failed.
        position: where it is in runs on average, from 0 (first) to 1 (last).
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


def new_node(name: str, kind: Kind = "tool") -> Node:
    """A node that nothing was counted for."""
    return Node(name, kind, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Edge:
    """Two nodes, one after the other.

    Attributes:
        source: position among the nodes.
        target: position among the nodes; the same one for a tool that follows itself.
        order: how often the target was called next after the source.
        probability: the share of that in all calls next after the source.
        dependency: how often a call of the target used an output of the source.
    """

    source: int
    target: int
    order: int
    probability: float
    dependency: int

    def weight(self) -> int:
        """Of the line between the nodes."""
        return self.order + self.dependency


@dataclass(frozen=True, slots=True)
class Loop:
    """A way from a tool back to itself.

    Attributes:
        tools: those on the way, the first one not repeated at the end.
        count: how often runs took it.
    """

    tools: tuple[str, ...]
    count: int


class ToolGraph:
    """Counts over runs.

    Args:
        runs: are counted at once.

    Attributes:
        names: of the nodes, start and end first, then tools by name.
        nodes: in the same order, not placed yet.
        runs: how many were counted.
    """

    def __init__(self, runs: Iterable[Demonstration]) -> None:
        runs = list(runs)
        tools = sorted({name for run in runs for name in run.plan.tools})
        self.runs = len(runs)
        self.names = ["start", "end", *tools]
        self.nodes = [
            replace(new_node("start", "start"), calls=self.runs, runs=self.runs),
            replace(new_node("end", "end"), calls=self.runs, runs=self.runs, position=1.0),
            *map(new_node, tools),
        ]
        self._order: Counter[tuple[int, int]] = Counter()
        self._dependency: Counter[tuple[int, int]] = Counter()
        self._loops: Counter[tuple[int, ...]] = Counter()
        index = {name: position for position, name in enumerate(tools, start=2)}
        for run in runs:
            self._add(run, [index[name] for name in run.plan.tools])
        for node in self.nodes[2:]:
            node.position = round(node.position / node.calls, 4)

    def _add(self, run: Demonstration, calls: Sequence[int]) -> None:
        for place, (at, call) in enumerate(zip(calls, run.plan.calls, strict=True)):
            node = self.nodes[at]
            node.calls += 1
            node.errors += call.status == "error"
            node.position += place / max(len(calls) - 1, 1)
        for at, times in Counter(calls).items():
            node = self.nodes[at]
            node.runs += 1
            node.repeats += times > 1
            node.failed_runs += run.outcome == "failure"
        self._order.update(_transitions(run, calls))
        self._dependency.update(
            (calls[earlier], calls[later]) for earlier, later in run.plan.edges()
        )
        last: dict[int, int] = {}
        for place, at in enumerate(calls):
            if at in last and place - last[at] <= LONGEST_LOOP:
                self._loops[tuple(calls[last[at] : place])] += 1
            last[at] = place

    def find(self, tool: str) -> int:
        """The position of a tool that the runs call.

        Raises:
            KeyError: no run calls it.
        """
        if tool not in self.names[2:]:
            raise KeyError(tool)
        return self.names.index(tool, 2)

    # -- to be drawn ---------------------------------------------------------------------------

    @cached_property
    def edges(self) -> list[Edge]:
        """All of them, most frequent first."""
        out: Counter[int] = Counter()
        for (source, _), count in self._order.items():
            out[source] += count
        pairs = sorted(
            self._order.keys() | self._dependency.keys(),
            key=lambda pair: (-self._order[pair] - self._dependency[pair], pair),
        )
        return [
            Edge(
                source,
                target,
                order := self._order[source, target],
                round(order / max(out[source], 1), 6),
                self._dependency[source, target],
            )
            for source, target in pairs
        ]

    def flow(self, limit: int) -> tuple[list[Node], list[Edge]]:
        """The tools that are called most, from left to right as runs go through them."""
        tools = sorted(range(2, len(self.names)), key=lambda at: (-self.nodes[at].calls, at))
        return self._in_columns([START, *tools[:limit], END_OF_RUN])

    def around(self, tool: str, limit: int) -> tuple[list[Node], list[Edge]]:
        """A tool between what comes before it and what comes after it.

        Raises:
            KeyError: no run calls it.
        """
        centre = self.find(tool)
        others = [edge for edge in self.edges if edge.source != edge.target]
        before = Counter({edge.source: edge.weight() for edge in others if edge.target == centre})
        after = Counter({edge.target: edge.weight() for edge in others if edge.source == centre})
        columns: list[list[int]] = [[], [centre], []]
        strongest = sorted(
            before.keys() | after.keys(), key=lambda at: (-before[at] - after[at], at)
        )
        for at in strongest[:limit]:
            columns[0 if before[at] >= after[at] else 2].append(at)
        return self._place([column for column in columns if column])

    def _in_columns(self, chosen: Sequence[int]) -> tuple[list[Node], list[Edge]]:
        tools = sorted(chosen[1:-1], key=lambda at: (self.nodes[at].position, self.names[at]))
        count = max(1, round((len(tools) / 3) ** 0.5))
        parts = [part.tolist() for part in np.array_split(np.array(tools, int), count)]
        return self._place([[START], *[part for part in parts if part], [END_OF_RUN]])

    def _place(self, columns: list[list[int]]) -> tuple[list[Node], list[Edge]]:
        chosen = {at for column in columns for at in column}
        edges = [edge for edge in self.edges if edge.source in chosen and edge.target in chosen]
        weights = {(edge.source, edge.target): edge.weight() for edge in edges}
        places = place_in_columns(columns, weights)
        order = {at: number for number, at in enumerate(places)}
        nodes = [
            replace(self.nodes[at], x=round(x, 5), y=round(y, 5)) for at, (x, y) in places.items()
        ]
        return nodes, [
            replace(edge, source=order[edge.source], target=order[edge.target]) for edge in edges
        ]

    def followers(self) -> dict[str, tuple[str | None, float]]:
        """By tool, the most frequent next one and its share; None for the end of the run."""
        followers: dict[str, tuple[str | None, float]] = {}
        for edge in sorted(self.edges, key=lambda edge: -edge.order):
            if edge.source >= 2:
                name = self.names[edge.target] if edge.target >= 2 else None
                followers.setdefault(self.names[edge.source], (name, edge.probability))
        return followers

    def loops(self) -> list[Loop]:
        """The most frequent ways from a tool back to itself."""
        return [
            Loop(tuple(self.names[at] for at in way), count)
            for way, count in sorted(
                self._loops.items(), key=lambda item: (-item[1], len(item[0]), item[0])
            )[:MOST_LOOPS]
        ]


def _transitions(run: Demonstration, calls: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Pairs of nodes; the calls of one step all follow those of the step before."""
    steps: list[list[int]] = [[START]]
    last: int | None = None
    for node, call in zip(calls, run.plan.calls, strict=True):
        if call.step is None or call.step != last:
            steps.append([])
        steps[-1].append(node)
        last = call.step
    steps.append([END_OF_RUN])
    return [(one, two) for before, after in pairwise(steps) for one in before for two in after]
