"""The tools of many runs as a graph: calls, order and dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeAlias

from dtdr.data.demonstrations import Demonstration

Kind: TypeAlias = Literal["start", "tool", "end"]

START, END_OF_RUN = 0, 1
"""Positions of the two nodes that are not tools; ``start`` may be the name of a tool too."""


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
    """

    name: str
    kind: Kind
    calls: int
    runs: int
    repeats: int
    errors: int
    failed_runs: int
    position: float


def new_node(name: str, kind: Kind = "tool") -> Node:
    """A node that nothing was counted for."""
    return Node(name, kind, 0, 0, 0, 0, 0, 0.0)


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


class ToolGraph:
    """Counts over runs.

    Args:
        runs: are counted at once.

    Attributes:
        names: of the nodes, start and end first, then tools by name.
        nodes: in the same order.
        runs: how many were counted.
        index: position of each tool.
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
        self.index = {name: position for position, name in enumerate(tools, start=2)}
        for run in runs:
            self._add(run, [self.index[name] for name in run.plan.tools])
        for node in self.nodes[2:]:
            # Until here the sum over all calls of the tool.
            node.position = round(node.position / node.calls, 4)

    def _add(self, run: Demonstration, calls: Sequence[int]) -> None:
        for position, (at, call) in enumerate(zip(calls, run.plan.calls, strict=True)):
            node = self.nodes[at]
            node.calls += 1
            node.errors += call.status == "error"
            node.position += position / max(len(calls) - 1, 1)
        for at, times in Counter(calls).items():
            node = self.nodes[at]
            node.runs += 1
            node.repeats += times > 1
            node.failed_runs += run.outcome == "failure"
        self._order.update(_transitions(run, calls))
        self._dependency.update(
            (calls[earlier], calls[later]) for earlier, later in run.plan.edges()
        )

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

    def main_part(self, limit: int) -> tuple[list[Node], list[Edge]]:
        """The tools that are called most, between the start and the end."""
        tools = sorted(range(2, len(self.names)), key=lambda at: (-self.nodes[at].calls, at))
        return self._part([START, *tools[:limit], END_OF_RUN])

    def around(self, tool: str, limit: int) -> tuple[list[Node], list[Edge]]:
        """A tool with what comes right before it and right after it, most frequent first.

        Raises:
            KeyError: no run calls it.
        """
        centre = self.index[tool]
        links: Counter[int] = Counter()
        for edge in self.edges:
            if centre in (edge.source, edge.target) and edge.source != edge.target:
                other = edge.target if edge.source == centre else edge.source
                links[other] += edge.order + edge.dependency
        strongest = sorted(links, key=lambda at: (-links[at], at))
        return self._part([centre, *strongest[:limit]])

    def _part(self, nodes: Sequence[int]) -> tuple[list[Node], list[Edge]]:
        """Some of the nodes, and the edges between them."""
        position = {at: index for index, at in enumerate(nodes)}
        edges = [
            replace(edge, source=position[edge.source], target=position[edge.target])
            for edge in self.edges
            if edge.source in position and edge.target in position
        ]
        return [self.nodes[at] for at in nodes], edges

    @cached_property
    def followers(self) -> dict[str, tuple[str | None, float]]:
        """By tool, the most frequent next one and its share; None for the end of the run."""
        followers: dict[str, tuple[str | None, float]] = {}
        for edge in sorted(self.edges, key=lambda edge: -edge.order):
            if edge.source >= 2:
                name = self.names[edge.target] if edge.target >= 2 else None
                followers.setdefault(self.names[edge.source], (name, edge.probability))
        return followers


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
    return [
        (source, target)
        for before, after in pairwise(steps)
        for source in before
        for target in after
    ]
