"""Which calls of a plan depend on which, from references and links; and what is wrong with them."""

from __future__ import annotations

import graphlib
import heapq
from collections.abc import Iterable, Sequence

from dtdr.data.calls import Reference, ToolCall
from dtdr.errors import InputError


def _positions(calls: Sequence[ToolCall]) -> dict[str, int]:
    position: dict[str, int] = {}
    for index, call in enumerate(calls):
        if call.id in position:
            raise InputError(f"two calls share the id {call.id!r}; ids must be unique in a plan")
        position[call.id] = index
    return position


def find_parents(
    calls: Sequence[ToolCall],
    references: Sequence[Sequence[Reference]],
    links: Iterable[tuple[str, str]],
    earlier: Sequence[ToolCall],
) -> list[set[int]]:
    """For each call, the positions (from 0) of the calls it depends on, whatever their order.

    Args:
        calls: of the plan.
        references: those in each call's arguments.
        links: pairs of ids, the earlier call first.
        earlier: calls of earlier turns, which nothing depends on.

    Raises:
        InputError: two calls share an id, or a reference or link names a call that is not there.
    """
    position = _positions(calls)
    before = _positions(earlier).keys() if earlier else frozenset()
    for call_id in before:
        if call_id in position:
            raise InputError(f"two calls share the id {call_id!r}; ids must be unique in a record")
    parents: list[set[int]] = [set() for _ in calls]
    for index, call in enumerate(calls):
        for call_id, _ in references[index]:
            if call_id in position:
                parents[index].add(position[call_id])
            elif call_id not in before:
                raise InputError(
                    f"call {call.id!r} refers to {call_id!r}, which is not a call of this plan"
                )
    for source, target in links:
        for end in (source, target):
            if end not in position:
                raise InputError(f"a link names {end!r}, which is not a call of this plan")
        parents[position[target]].add(position[source])
    return parents


def sort_calls(parents: Sequence[set[int]]) -> list[int]:
    """Positions of the calls after those that they depend on, moved as little as needed.

    A stable topological sort, without the calls of a cycle and those that depend on them.
    """
    children: list[list[int]] = [[] for _ in parents]
    for child, sources in enumerate(parents):
        for parent in sources:
            children[parent].append(child)
    waiting = [len(sources) for sources in parents]
    ready = [child for child, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        done = heapq.heappop(ready)
        order.append(done)
        for child in children[done]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, child)
    return order


def describe_cycle(calls: Sequence[ToolCall], parents: Sequence[set[int]]) -> str:
    """A sentence about calls that depend on each other; empty where there are none."""
    try:
        graphlib.TopologicalSorter(dict(enumerate(map(sorted, parents)))).prepare()
    except graphlib.CycleError as error:
        cycle = reversed(error.args[1])  # each call there is needed by the next
        names = " needs ".join(repr(calls[index].id) for index in cycle)
        return f"the calls depend on each other in a cycle: {names}"
    return ""
