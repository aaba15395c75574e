"""Which calls of a plan depend on which, where no argument says so, and which comes first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from dtdr.data.plan import Plan
from dtdr.errors import ModelError

_MOSTLY = 0.8
"""Share of a tool's calls that must have a follower, for it to be expected after each."""
_LEAST = 0.3
"""A pair of calls of which fewer depend is not completed: of 237 plans of two inner folds of
TinyAgent with the right tools, 144 have all dependencies right, with .05 139, with .15 142."""
_PASSES = 8
_PRIOR = 2.0
"""Weight of the average over all pairs, in pairs of tools."""


Pair: TypeAlias = tuple[int, int, bool]
"""An earlier tool, a later one, and whether their calls are neighbours."""
Count: TypeAlias = tuple[float, float]
"""How often, and how often the later depended on the earlier."""


class Links:
    """How often a call depends on the nearest call of another tool before it.

    Args:
        by_pair: what was counted of pairs of calls.
        by_tool: the same of single ones: how often a tool was called, and how often another call
            depended on it.
        by_reference: the share of dependencies that an argument tells.
        reorders: whether ``order`` changes the order of calls.
    """

    def __init__(
        self,
        by_pair: Mapping[Pair, Count],
        by_tool: Mapping[int, Count],
        by_reference: float,
        *,
        reorders: bool = False,
    ) -> None:
        self._by_pair, self._by_tool = dict(by_pair), dict(by_tool)
        self.by_reference, self.reorders = by_reference, reorders
        self._before: dict[tuple[int, int], float] = {}
        for (first, second, _), (count, _) in by_pair.items():
            self._before[first, second] = self._before.get((first, second), 0.0) + count
        self._share: dict[bool, float] = {}
        for is_neighbour in (False, True):
            counts = [count for key, count in by_pair.items() if key[2] == is_neighbour]
            pairs, linked = (sum(count[part] for count in counts) for part in (0, 1))
            self._share[is_neighbour] = linked / pairs if pairs else 0.0

    @classmethod
    def fit(
        cls, plans: Iterable[Plan], index: Mapping[str, int], *, reorders: bool = False
    ) -> Self:
        """Count dependencies."""
        by_pair: dict[Pair, Count] = {}
        by_tool: dict[int, Count] = {}
        by_reference = _count(plans, index, by_pair, by_tool)
        return cls(by_pair, by_tool, by_reference, reorders=reorders)

    def with_plans(self, plans: Iterable[Plan], index: Mapping[str, int]) -> Links:
        """With those of further plans."""
        by_pair, by_tool = self._by_pair.copy(), self._by_tool.copy()
        _count(plans, index, by_pair, by_tool)
        return Links(by_pair, by_tool, self.by_reference, reorders=self.reorders)

    def order(self, tools: Sequence[int]) -> list[int]:
        """The calls of a plan in the order in which their tools stand in demonstrations.

        Calls move one by one to where most pairs of tools stand as they mostly do; calls of which
        that says nothing stay where they are. Without ``reorders``, all do.

        Args:
            tools: of the calls, in their most probable order; -1 for one that is not known.

        Returns:
            Places in ``tools``.
        """
        if not self.reorders:
            return list(range(len(tools)))
        gain = np.array([[self._gain(first, second) for second in tools] for first in tools])
        order = list(range(len(tools)))
        for _ in range(_PASSES):
            last = order.copy()
            for call in range(len(tools)):
                at = order.index(call)
                rest = order[:at] + order[at + 1 :]
                gains = np.concatenate([[0.0], np.cumsum(gain[rest, call] - gain[call, rest])])
                if gains.max() > gains[at] + 1e-9:
                    best = np.flatnonzero(gains > gains.max() - 1e-9)
                    near = int(best[np.argmin(np.abs(best - at))])
                    order = [*rest[:near], call, *rest[near:]]
            if order == last:
                break
        return order

    def place_of(self, tool: int, tools: Sequence[int]) -> int:
        """Where a further call stands among others: after this many of them.

        Args:
            tool: of the further call.
            tools: of the others, in order.
        """
        gains = [0.0, *(self._gain(other, tool) for other in tools)]
        sums = np.cumsum(gains)
        return len(tools) - int(np.argmax(sums[::-1]))

    def _gain(self, first: int, second: int) -> float:
        """How much more often a call of the one tool stands before one of the other than after."""
        if first == second:
            return 0.0
        before, after = (self._before.get(pair, 0.0) for pair in ((first, second), (second, first)))
        return math.log1p(before) - math.log1p(after)

    def of(self, tools: Sequence[int]) -> list[tuple[int, int]]:
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
        self, tools: Sequence[int], links: AbstractSet[tuple[int, int]]
    ) -> set[tuple[int, int]]:
        """The links, and one for each call that nothing depends on although something should.

        Args:
            tools: of the calls of a plan.
            links: (earlier, later) places.
        """
        complete = set(links)
        depended_on = {earlier for earlier, _ in links}
        for earlier in range(len(tools) - 1):
            calls, used = self._by_tool.get(tools[earlier], (0.0, 0.0))
            if earlier in depended_on or used < _MOSTLY * calls or not used:
                continue
            later = range(earlier + 1, len(tools))
            shares = [self._share_of(tools, earlier, one) for one in later]
            if max(shares) > _LEAST:
                complete.add((earlier, later[shares.index(max(shares))]))
        return complete

    def _share_of(self, tools: Sequence[int], earlier: int, later: int) -> float:
        is_neighbour = earlier == later - 1
        count, linked = self._by_pair.get((tools[earlier], tools[later], is_neighbour), (0.0, 0.0))
        return (linked + _PRIOR * self._share[is_neighbour]) / (count + _PRIOR)

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        rows = [(*key, *count) for key, count in sorted(self._by_pair.items())]
        return {
            "pairs": np.array([row[:3] for row in rows], np.int32).reshape(-1, 3),
            "counts": np.array([row[3:] for row in rows], np.float64).reshape(-1, 2),
            "tools": np.array(sorted(self._by_tool), np.int32),
            "tool_counts": np.array(
                [self._by_tool[tool] for tool in sorted(self._by_tool)], np.float64
            ).reshape(-1, 2),
            "by_reference": np.array([self.by_reference], np.float64),
            "reorders": np.array([self.reorders]),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        pairs, counts = arrays["pairs"], arrays["counts"]
        tools, by_tool = arrays["tools"], arrays["tool_counts"]
        fits = pairs.shape == (len(counts), 3) and counts.shape == (len(counts), 2)
        if not fits or by_tool.shape != (len(tools), 2):
            raise ModelError("what the model knows of dependencies does not fit; fit it again")
        return cls(
            {
                (first, second, bool(near)): (count, linked)
                for (first, second, near), (count, linked) in zip(
                    pairs.tolist(), counts.tolist(), strict=True
                )
            },
            {
                tool: (count, used)
                for tool, (count, used) in zip(tools.tolist(), by_tool.tolist(), strict=True)
            },
            float(arrays["by_reference"][0]),
            reorders=bool(arrays["reorders"][0]),
        )


def is_in_order(tools: Sequence[str], plan: Plan) -> bool:
    """Whether each call stands after those that it depends on in a plan of the same tools.

    Calls of one tool are taken in the order in which the plan has them.
    """
    places: dict[str, list[int]] = {}
    for place, name in enumerate(tools):
        places.setdefault(name, []).append(place)
    taken = {name: iter(listed) for name, listed in places.items()}
    place_of = [next(taken[name]) for name in plan.tools]
    return all(
        place_of[earlier] < place_of[later]
        for later, sources in enumerate(plan.dependencies)
        for earlier in sources
    )


def _find_nearest(tools: Sequence[int], later: int) -> list[int]:
    """Of each tool before a call, the last call."""
    last: dict[int, int] = {}
    for place in range(later):
        last[tools[place]] = place
    return sorted(last.values())


def _count(
    plans: Iterable[Plan],
    index: Mapping[str, int],
    by_pair: dict[Pair, Count],
    by_tool: dict[int, Count],
) -> float:
    """Add what plans hold to the counts; the share of dependencies that an argument tells."""
    by_reference = every = 0
    for plan in plans:
        place = {call.id: number for number, call in enumerate(plan.calls)}
        tools = [index[name] for name in plan.tools]
        for later, sources in enumerate(plan.dependencies):
            referred = plan.calls[later].references()
            by_reference += len({place[one] for one in referred if one in place})
            every += len(sources)
            for earlier in _find_nearest(tools, later):
                key = (tools[earlier], tools[later], earlier == later - 1)
                count, linked = by_pair.get(key, (0.0, 0.0))
                by_pair[key] = (count + 1, linked + (earlier in sources))
        used = {earlier for sources in plan.dependencies for earlier in sources}
        for number, tool in enumerate(tools):
            count, times = by_tool.get(tool, (0.0, 0.0))
            by_tool[tool] = (count + 1, times + (number in used))
    return by_reference / every if every else 0.0
