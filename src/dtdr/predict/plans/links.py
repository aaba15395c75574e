"""Which calls of a plan depend on which, if no argument refers to an output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

from dtdr.data.plan import Plan
from dtdr.errors import ModelError

_PRIOR = 2.0
"""Weight of the mean over all pairs, in pairs."""


class Pair(NamedTuple):
    """A call, the nearest earlier call of a tool, and whether they are neighbours."""

    earlier: str
    later: str
    is_near: bool


class Links:
    """How often a call depends on the nearest earlier call of another tool.

    Args:
        counts: of each pair, its number and how many were linked.
        by_reference: share of dependencies that are references.
    """

    def __init__(self, counts: dict[Pair, tuple[int, int]], by_reference: float) -> None:
        self._counts, self.by_reference = counts, by_reference
        self._share = {True: 0.0, False: 0.0}
        for kind in self._share:
            pairs = [count for pair, count in counts.items() if pair.is_near == kind]
            if pairs:
                self._share[kind] = sum(pair[1] for pair in pairs) / sum(pair[0] for pair in pairs)

    @classmethod
    def fit(cls, plans: Iterable[Plan]) -> Self:
        """Count dependencies."""
        counts: dict[Pair, tuple[int, int]] = {}
        by_reference = _count(plans, counts)
        return cls(counts, by_reference)

    def with_plans(self, plans: Iterable[Plan]) -> Links:
        """Add the dependencies of further plans."""
        counts = self._counts.copy()
        _count(plans, counts)
        return Links(counts, self.by_reference)

    def rename_tool(self, old: str, new: str) -> Links:
        """Give a tool another name."""
        name = {old: new}
        counts = {
            Pair(name.get(pair.earlier, pair.earlier), name.get(pair.later, pair.later), pair[2]): n
            for pair, n in self._counts.items()
        }
        return Links(counts, self.by_reference)

    def of(self, tools: Sequence[str]) -> list[tuple[int, int]]:
        """The probable dependencies of a plan as pairs (earlier, later)."""
        result = []
        for later in range(len(tools)):
            for earlier, pair in _pairs_before(tools, later):
                count, linked = self._counts.get(pair, (0, 0))
                share = (linked + _PRIOR * self._share[pair.is_near]) / (count + _PRIOR)
                if share > 0.5:
                    result.append((earlier, later))
        return result

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        counts = [[*pair, *count] for pair, count in sorted(self._counts.items())]
        return {"counts": counts, "by_reference": self.by_reference}

    @classmethod
    def from_dict(cls, record: Any) -> Self:
        """Rebuild from ``to_dict``.

        Raises:
            ModelError: the record is damaged.
        """
        try:
            counts = {
                Pair(str(first), str(second), bool(near)): (int(count), int(linked))
                for first, second, near, count, linked in record["counts"]
            }
            return cls(counts, float(record["by_reference"]))
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            reason = "the dependencies of the plan model are damaged; fit it again"
            raise ModelError(reason) from error


def _pairs_before(tools: Sequence[str], later: int) -> list[tuple[int, Pair]]:
    """The last call of each tool before a call: its position, and their pair."""
    places = sorted({tool: place for place, tool in enumerate(tools[:later])}.values())
    return [(place, Pair(tools[place], tools[later], place == later - 1)) for place in places]


def _count(plans: Iterable[Plan], counts: dict[Pair, tuple[int, int]]) -> float:
    """Add plans to the counts; returns the share of dependencies that are references."""
    by_reference = every = 0
    for plan in plans:
        known = {call.id for call in plan.calls}
        for later, sources in enumerate(plan.dependencies):
            by_reference += len({*plan.calls[later].references()} & known)
            every += len(sources)
            for earlier, pair in _pairs_before(plan.tools, later):
                count, linked = counts.get(pair, (0, 0))
                counts[pair] = count + 1, linked + (earlier in sources)
    return by_reference / every if every else 0.0
