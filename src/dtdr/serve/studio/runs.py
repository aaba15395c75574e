"""The runs that the studio shows, and which of them match a filter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from typing import Annotated

from msgspec import Meta, Struct

from dtdr.data.calls import find_references
from dtdr.data.demonstrations import Demonstration, Outcome
from dtdr.errors import InputError
from dtdr.predict.arguments.prediction import iter_sources
from dtdr.serve.studio.graph import ToolGraph

_FILTERS = 16
"""Graphs of filters that are kept; one of 2,000 tools takes 3 MB."""
_NEIGHBOURS = 20


class RunSelection(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A filter of runs."""

    text: Annotated[
        str, Meta(max_length=1_000, description="The query contains it; case is ignored.")
    ] = ""
    regex: Annotated[bool, Meta(description="Whether the text is a regular expression.")] = False
    group: Annotated[str, Meta(max_length=1_000)] = ""
    outcome: Outcome | None = None
    tool: Annotated[str, Meta(max_length=512, description="Which the runs call.")] = ""
    since: Annotated[date | None, Meta(description="First day, in UTC.")] = None
    until: Annotated[date | None, Meta(description="Last day, in UTC.")] = None

    def matches(self, run: Demonstration) -> bool:
        """Whether a run passes.

        Raises:
            InputError: the text should be a regular expression, and is not.
        """
        return (
            (not self.group or run.group == self.group)
            and (self.outcome is None or run.outcome == self.outcome)
            and (not self.tool or self.tool in run.plan.tools)
            and self._matches_time(run)
            and self._matches_text(run.query)
        )

    def _matches_time(self, run: Demonstration) -> bool:
        if self.since is None and self.until is None:
            return True
        if run.time is None:
            return False
        day = run.time.date()
        return (self.since or day) <= day <= (self.until or day)

    def _matches_text(self, query: str) -> bool:
        if self.regex:
            return _compile(self.text).search(query) is not None
        return self.text.strip().casefold() in query.casefold()


@lru_cache(_FILTERS)
def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise InputError(f"the text is not a regular expression: {error}") from None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A tool before or after another.

    Attributes:
        tool: its name; None for the start or end of a run.
        count: how often.
        share: of all tools there.
    """

    tool: str | None
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class ArgumentUse:
    """Where the values of an argument usually come from.

    Attributes:
        argument: its name.
        sources: how often each: ``query``, ``output``, ``earlier message``, ``argument`` (of an
            earlier call) or ``other``.
        tools: whose outputs they come from, most frequent first.
    """

    argument: str
    sources: dict[str, int]
    tools: list[str]


class Runs:
    """Runs by their position, with the graph of those that match a filter.

    Args:
        demonstrations: the runs.
    """

    def __init__(self, demonstrations: Iterable[Demonstration]) -> None:
        self.demonstrations = tuple(demonstrations)
        self.graph = lru_cache(_FILTERS)(self._count)
        """The graph of the runs that match a filter."""

    @cached_property
    def groups(self) -> list[str]:
        """The groups, largest first."""
        counts = Counter(run.group for run in self.demonstrations if run.group)
        return [group for group, _ in counts.most_common()]

    @cached_property
    def positions(self) -> dict[str, int]:
        """Where each run is, by its id."""
        return {run.id: at for at, run in enumerate(self.demonstrations)}

    def find_matching(self, selection: RunSelection) -> list[int]:
        """Positions of the runs that match."""
        if selection == RunSelection():
            return list(range(len(self.demonstrations)))
        return [at for at, run in enumerate(self.demonstrations) if selection.matches(run)]

    def _count(self, selection: RunSelection) -> ToolGraph:
        return ToolGraph(self.demonstrations[at] for at in self.find_matching(selection))

    def neighbours(
        self, tool: str, selection: RunSelection
    ) -> tuple[list[Neighbour], list[Neighbour]]:
        """Tools right before and right after a tool, most frequent first."""
        graph = self.graph(selection)
        if tool not in graph.names[2:]:
            return [], []
        centre = graph.index[tool]
        before = {edge.source: edge.order for edge in graph.edges if edge.target == centre}
        after = {edge.target: edge.order for edge in graph.edges if edge.source == centre}
        return _neighbours(Counter(before), graph), _neighbours(Counter(after), graph)

    def arguments(self, tool: str, selection: RunSelection) -> list[ArgumentUse]:
        """Where the arguments of a tool come from, in the matching runs."""
        sources: dict[str, Counter[str]] = {}
        tools: dict[str, Counter[str]] = {}
        for at in self.find_matching(selection):
            run = self.demonstrations[at]
            if tool not in run.plan.tools:
                continue
            for call, argument, source in iter_sources(run):
                if call.tool == tool:
                    sources.setdefault(argument, Counter())[source] += 1
            by_id = {call.id: call.tool for call in run.plan.calls}
            for call in run.plan.calls:
                if call.tool == tool:
                    for argument, value in call.arguments.items():
                        tools.setdefault(argument, Counter()).update(
                            by_id[reference.call]
                            for reference in find_references(value)
                            if reference.call in by_id
                        )
        return [
            ArgumentUse(
                argument,
                dict(counts.most_common()),
                [name for name, _ in tools.get(argument, Counter()).most_common(3)],
            )
            for argument, counts in sorted(
                sources.items(), key=lambda item: (-item[1].total(), item[0])
            )
        ]


def _neighbours(counts: Counter[int], graph: ToolGraph) -> list[Neighbour]:
    total = max(counts.total(), 1)
    return [
        Neighbour(graph.names[at] if at >= 2 else None, count, round(count / total, 6))
        for at, count in counts.most_common(_NEIGHBOURS)
        if count
    ]
