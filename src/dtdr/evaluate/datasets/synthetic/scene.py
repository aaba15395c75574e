"""A demonstration in the making."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from dtdr.data.calls import ToolCall, find_references
from dtdr.data.plan import Plan

Item = TypeVar("Item")
Output = dict[str, Any]
"""``{"$ref": id}``; the id is set when the calls are put in order."""

SHUFFLED = 0.3
"""Share of plans whose independent calls are made in random order rather than clause by clause."""


class Scene:
    """Collects calls; every random choice comes from one generator."""

    __slots__ = ("_calls", "labels", "rng")

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.labels: list[str] = []
        self._calls: list[tuple[str, dict[str, Any], Output]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[int(self.rng.random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self.rng.random() < probability

    def call(self, tool: str, **arguments: Any) -> Output:
        """Add a call; its output can be an argument of a later one."""
        output: Output = {"$ref": len(self._calls)}
        self._calls.append((tool, arguments, output))
        return output

    def tools(self) -> set[str]:
        """Names of the tools called so far."""
        return {tool for tool, _, _ in self._calls}

    def plan(self, *, is_shuffled: bool = True) -> Plan:
        """The calls in order: clause by clause, or any other order that dependencies allow."""
        calls = self._calls
        if is_shuffled and len(calls) > 2 and self.chance(SHUFFLED):
            calls = self._shuffle()
        for number, (_, _, output) in enumerate(calls, start=1):
            output["$ref"] = str(number)
        return Plan(
            tuple(ToolCall(output["$ref"], tool, arguments) for tool, arguments, output in calls)
        )

    def _shuffle(self) -> list[tuple[str, dict[str, Any], Output]]:
        needs = [
            {int(one.call) for one in find_references(arguments)} for _, arguments, _ in self._calls
        ]
        done: set[int] = set()
        order: list[tuple[str, dict[str, Any], Output]] = []
        while len(order) < len(self._calls):
            ready = [i for i, need in enumerate(needs) if i not in done and need <= done]
            chosen = self.pick(ready)
            done.add(chosen)
            order.append(self._calls[chosen])
        return order
