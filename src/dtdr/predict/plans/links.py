"""Which calls of a plan depend on which, where no argument says so, and which comes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Self

from dtdr.data.plan import Plan
from dtdr.errors import ModelError

_MOSTLY = 0.8
"""Share of a tool's calls that must have a follower, for it to be expected after each."""
_LEAST = 0.3
"""A pair of calls of which fewer depend is not completed: of 237 plans of two inner folds of
TinyAgent with the right tools, 144 have all dependencies right, with .05 139, with .15 142."""
_PRIOR = 2.0
"""Weight of the average over all pairs, in pairs of tools."""

_KINDS = (True, False)
_DAMAGED = "what the model knows of dependencies is damaged; fit it again"


class Links:
    """How often a call depends on the nearest call of another tool before it.

    Args:
        counts: by (earlier tool, later tool, whether their calls are neighbours), how many pairs of
            calls there were, and of how many the later one depended on the earlier; by (tool, "",
            False), how often it was called, and how often another call depended on it.
        by_reference: the share of dependencies that an argument tells.
    """

    def __init__(
        self, counts: dict[tuple[str, str, bool], tuple[int, int]], by_reference: float
    ) -> None:
        self._counts, self.by_reference = counts, by_reference
        self._share = dict.fromkeys(_KINDS, 0.0)
        for kind in _KINDS:
            pairs = [count for key, count in counts.items() if key[1] and key[2] == kind]
            if pairs:
                self._share[kind] = sum(pair[1] for pair in pairs) / sum(pair[0] for pair in pairs)

    @classmethod
    def fit(cls, plans: Iterable[Plan]) -> Self:
        """Count dependencies."""
        counts: dict[tuple[str, str, bool], tuple[int, int]] = {}
        by_reference = _count(plans, counts)
        return cls(counts, by_reference)

    def with_plans(self, plans: Iterable[Plan]) -> Links:
        """With those of further plans."""
        counts = self._counts.copy()
        _count(plans, counts)
        return Links(counts, self.by_reference)

    def rename_tool(self, old: str, new: str) -> Links:
        """With another name for a tool."""

        def name(tool: str) -> str:
            return new if tool == old else tool

        counts = {
            (name(first), name(second), near): count
            for (first, second, near), count in self._counts.items()
        }
        return Links(counts, self.by_reference)

    def order(self, tools: Sequence[str]) -> list[str]:
        """The tools of a plan so that those which give come before those which take.

        One comes before another where calls of the other depended on it more often than the other
        way round; otherwise the order stays. It stays as a whole where arguments tell less than
        half of the dependencies: then these mostly are the order of a log.

        Args:
            tools: of the calls, in their most probable order.
        """
        left = list(tools)
        if self.by_reference < 0.5:
            return left
        ordered = []
        while left:
            free = (
                place
                for place, tool in enumerate(left)
                if not any(self._gives(other, tool) for other in left)
            )
            ordered.append(left.pop(next(free, 0)))
        return ordered

    def _gives(self, first: str, second: str) -> bool:
        """Whether calls of the second tool depend on those of the first, more than they give."""
        given, taken = (
            sum(self._counts.get((*pair, near), (0, 0))[1] for near in _KINDS)
            for pair in ((first, second), (second, first))
        )
        return given > taken

    def of(self, tools: Sequence[str]) -> list[tuple[int, int]]:
        """The probable dependencies of a plan: (earlier, later) places."""
        result = []
        for later in range(len(tools)):
            result += [
                (earlier, later)
                for earlier in _find_nearest(tools, later)
                if self._share_of(tools, earlier, later) > 0.5
            ]
        return result

    def complete(
        self, tools: Sequence[str], links: AbstractSet[tuple[int, int]]
    ) -> set[tuple[int, int]]:
        """The links, and one for each call that nothing depends on although something should.

        Args:
            tools: of the calls of a plan.
            links: (earlier, later) places.
        """
        complete = set(links)
        depended_on = {earlier for earlier, _ in links}
        for earlier in range(len(tools) - 1):
            calls, used = self._counts.get((tools[earlier], "", False), (0, 0))
            if earlier in depended_on or used < _MOSTLY * calls or not used:
                continue
            later = range(earlier + 1, len(tools))
            shares = [self._share_of(tools, earlier, one) for one in later]
            if max(shares) > _LEAST:
                complete.add((earlier, later[shares.index(max(shares))]))
        return complete

    def _share_of(self, tools: Sequence[str], earlier: int, later: int) -> float:
        is_neighbour = earlier == later - 1
        count, linked = self._counts.get((tools[earlier], tools[later], is_neighbour), (0, 0))
        return (linked + _PRIOR * self._share[is_neighbour]) / (count + _PRIOR)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        counts = [[*key, *count] for key, count in sorted(self._counts.items())]
        return {"counts": counts, "by_reference": self.by_reference}

    @classmethod
    def from_dict(cls, record: Any) -> Self:
        """What ``to_dict`` gave.

        Raises:
            ModelError: it is something else.
        """
        try:
            counts = {
                (str(first), str(second), bool(near)): (int(count), int(linked))
                for first, second, near, count, linked in record["counts"]
            }
            return cls(counts, float(record["by_reference"]))
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise ModelError(_DAMAGED) from error


def _find_nearest(tools: Sequence[str], later: int) -> list[int]:
    """Of each tool before a call, the last call."""
    return sorted({tool: place for place, tool in enumerate(tools[:later])}.values())


def _count(plans: Iterable[Plan], counts: dict[tuple[str, str, bool], tuple[int, int]]) -> float:
    """Add plans to the counts; returns the share of dependencies that an argument shows."""
    by_reference = every = 0

    def add(first: str, second: str, near: bool, linked: bool) -> None:
        count, times = counts.get((first, second, near), (0, 0))
        counts[first, second, near] = count + 1, times + linked

    for plan in plans:
        known = {call.id for call in plan.calls}
        for later, sources in enumerate(plan.dependencies):
            by_reference += len({*plan.calls[later].references()} & known)
            every += len(sources)
            for earlier in _find_nearest(plan.tools, later):
                first, second = plan.tools[earlier], plan.tools[later]
                add(first, second, earlier == later - 1, earlier in sources)
        used = {earlier for sources in plan.dependencies for earlier in sources}
        for number, tool in enumerate(plan.tools):
            add(tool, "", False, number in used)
    return by_reference / every if every else 0.0
