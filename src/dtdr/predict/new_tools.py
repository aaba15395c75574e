"""Tools that the demonstrations hardly call: a place is kept for one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dtdr.data.demonstrations import Demonstration
from dtdr.predict.search import ToolSearch
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.remembered import Remembered

FEW_CALLS = 10
"""From this many calls on, the ranking alone decides whether a tool is shown. A tool with fewer is
ranked by little more than its description, and a mask that hides it keeps it from being learned."""

_QUERIES = 64
"""Queries whose match is remembered: a run asks for it at each of its steps."""


def count_calls(demonstrations: Iterable[Demonstration]) -> Counter[str]:
    """How often demonstrations call each tool."""
    return Counter(call.tool for item in demonstrations for call in item.plan.calls)


@dataclass(frozen=True)
class NewTools:
    """Finds the new tool that a query names best.

    Attributes:
        search: searches the tools of the model.
        few: names of the tools with fewer than ``FEW_CALLS`` calls.
        unused: names of those without any.
    """

    search: ToolSearch
    few: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()

    @classmethod
    def of(cls, search: ToolSearch, calls: Mapping[str, int] | None) -> NewTools:
        """Those of a model, by the calls of each tool; None: unknown, so that no tool is new.

        Without any call, no tool is newer than the others, and all are ranked by their words.
        """
        if not calls or not any(calls.values()):
            return cls(search)
        counts = {name: calls.get(name, 0) for name in search.names}
        few = frozenset(name for name, count in counts.items() if count < FEW_CALLS)
        return cls(search, few, frozenset(name for name in few if not counts[name]))

    def find(
        self, query: str, ranking: Ranking, names: Collection[str], kept: Collection[str] | None
    ) -> str | None:
        """See ``Ranking.new_tool``."""
        few = self.few.intersection(names)
        if not few:
            return None
        if query.strip() and (match := self._match(query, few)) is not None:
            return match
        if kept is None:
            return None
        unused = self.unused & few
        unused = unused.intersection(kept) or unused
        return next((name for name in ranking.tools if name in unused), None) if unused else None

    @cached_property
    def _match(self) -> Remembered[str | None]:
        return Remembered(self._find_named, _QUERIES)

    def _find_named(self, query: str, few: frozenset[str]) -> str | None:
        """The tool among some that a query names best; None if it matches none."""
        return next((name for name, _ in self.search.find(query, 1, offered=few)), None)
