"""Finds which calls of a plan depend on which, from references and links, and checks them."""

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
    """For each call, the positions (from 0) of the calls it depends on, in any order.

    Args:
        calls: of the plan.
        references: those in each call's arguments.
        links: pairs of ids, the earlier call first.
        earlier: calls of earlier turns, which are not dependencies.

    Raises:
        InputError: two calls share an id, or a reference or link names an unknown call.
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


def sort_calls(calls: Sequence[ToolCall], parents: Sequence[set[int]]) -> list[int]:
    """Positions of the calls in an order that follows dependencies, with as few moves as needed.

    Raises:
        InputError: the calls depend on each other in a cycle.
    """
    sorter = graphlib.TopologicalSorter(dict(enumerate(map(sorted, parents))))
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        cycle = reversed(error.args[1])  # each call is needed by the next
        names = " needs ".join(repr(calls[index].id) for index in cycle)
        raise InputError(f"the calls depend on each other in a cycle: {names}") from None
    ready, order = list(sorter.get_ready()), []
    heapq.heapify(ready)
    while ready:
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
        for position in sorter.get_ready():
            heapq.heappush(ready, position)
    return order
