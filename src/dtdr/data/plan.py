"""Plans: calls, their dependencies and order, and which tools may come next."""

from __future__ import annotations

import graphlib
import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from dtdr.data.calls import (
    END,
    Reference,
    ToolCall,
    check_pointers,
    check_text,
    find_references,
    is_reference,
    without_references,
)
from dtdr.data.outputs import iter_leaves
from dtdr.errors import InputError, check_lists


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan: the calls so far, and what may come next.

    ``acceptable`` is by dependency, as in the paper; ``targets`` is what a ranker learns to
    predict (``Plan.next_calls``).
    """

    history: tuple[str, ...]
    acceptable: frozenset[str]
    targets: frozenset[str]


@dataclass(frozen=True)
class Plan:
    """Calls in the order they were made, and two relations between them.

    *Dependency*: a call uses the output of another, by a reference in an argument, or by a link for
    sources that only record links. *Order*: calls of a later step come after those of an earlier
    one, if calls have a ``step``.

    >>> find = ToolCall("1", "find_user", {"name": "Ann"})
    >>> Plan((find, ToolCall("2", "send_mail", {"to": {"$ref": "1"}}))).tools
    ('find_user', 'send_mail')

    Attributes:
        earlier: calls of earlier turns. Arguments may refer to their outputs; they are not part of
            the plan, and nothing depends on them.

    Raises:
        InputError: a call has no id or tool, two calls share an id, a reference or link names an
            unknown or later call, a reference names a part that its output does not have, the
            dependencies contain a cycle, or a call has an earlier step than the call before it.
    """

    calls: tuple[ToolCall, ...]
    links: tuple[tuple[str, str], ...] = ()
    earlier: tuple[ToolCall, ...] = ()

    def __post_init__(self) -> None:
        check_lists(calls=self.calls)
        latest = None
        for call in self.calls:
            check_text(call.tool, "the tool name")
            check_text(call.id, "the id of a call")
            if not call.tool:
                raise InputError(f"call {call.id!r} has no tool name")
            if call.tool == END:
                raise InputError(
                    f"call {call.id!r} is named {END!r}, which is reserved for the end of the "
                    "plan; leave it out of the calls or rename the tool"
                )
            if call.step is not None:
                if latest is not None and call.step < latest:
                    raise InputError(
                        f"call {call.id!r} has step {call.step}, after a call of step {latest}; "
                        "list calls in the order of their steps"
                    )
                latest = call.step
        self.dependencies  # noqa: B018  # validates on construction
        if any(item.path is not None for references in self._references for item in references):
            check_pointers(self.calls, self.earlier)

    @classmethod
    def in_order(cls, calls: Sequence[ToolCall], links: Iterable[tuple[str, str]] = ()) -> Plan:
        """A plan whose calls are moved as little as needed to follow their dependencies.

        For sources that list calls in another order than their links.

        Raises:
            InputError: as the constructor, but not for a reference to a later call.
        """
        links = tuple(links)
        references = [find_references(call.arguments) for call in calls]
        order = _sort_calls(calls, _find_parents(calls, references, links, ()))
        return cls(tuple(calls[index] for index in order), links)

    @cached_property
    def _references(self) -> tuple[list[Reference], ...]:
        """The references in each call's arguments."""
        return tuple(find_references(call.arguments) for call in self.calls)

    @cached_property
    def dependencies(self) -> tuple[frozenset[int], ...]:
        """For each call, the positions (from 0) of the calls it depends on.

        Raises:
            InputError: calls depend on each other in a cycle, or on later calls.
        """
        parents = _find_parents(self.calls, self._references, self.links, self.earlier)
        for child, sources in enumerate(parents):
            late = [source for source in sources if source >= child]
            if late:
                _sort_calls(self.calls, parents)  # a cycle is another error
                raise InputError(
                    f"call {self.calls[child].id!r} depends on the later call "
                    f"{self.calls[late[0]].id!r}; list calls after the calls they use"
                )
        return tuple(frozenset(sources) for sources in parents)

    @property
    def tools(self) -> tuple[str, ...]:
        """Tool names in the order of the calls."""
        return tuple(call.tool for call in self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def edges(self) -> Iterator[tuple[int, int]]:
        """``(earlier, later)`` positions of every dependency."""
        for child, sources in enumerate(self.dependencies):
            for parent in sorted(sources):
                yield parent, child

    def acceptable_next(self, done: Iterable[int]) -> frozenset[str]:
        """The paper's acceptable next tools, by dependency only; ``{END}`` if no call is left.

        Args:
            done: positions (from 0) of the calls already made.
        """
        finished = frozenset(done)
        return frozenset(
            call.tool
            for index, (call, needs) in enumerate(zip(self.calls, self.dependencies, strict=True))
            if index not in finished and needs <= finished
        ) or frozenset({END})

    @property
    def order_rule(self) -> Literal["steps", "dependencies", "any"]:
        """The rule that orders the calls: steps, dependencies, or nothing."""
        if any(call.step is not None for call in self.calls):
            return "steps"
        return "dependencies" if any(self.dependencies) else "any"

    @cached_property
    def prerequisites(self) -> tuple[frozenset[int], ...]:
        """For each call, the positions (from 0) of the calls it is learned to come after.

        These are its dependencies and, if steps are known, the calls of the step before.
        """
        before: frozenset[int] = frozenset()
        current: list[int] = []
        step, result = None, []
        for index, (call, needs) in enumerate(zip(self.calls, self.dependencies, strict=True)):
            if call.step is None:
                result.append(needs)
                continue
            if call.step != step:
                before, current, step = frozenset(current), [], call.step
            current.append(index)
            result.append(needs | before)
        return tuple(result)

    def next_calls(self, done: Iterable[int]) -> frozenset[str]:
        """Tools to learn to predict next; ``{END}`` if no call is left.

        Without steps these are ``acceptable_next``; with steps, only those of the first step that
        is not finished.

        Args:
            done: positions (from 0) of the calls already made.
        """
        finished = frozenset(done)
        ready, current = [], None
        for index, (call, needs) in enumerate(zip(self.calls, self.dependencies, strict=True)):
            if index in finished:
                continue
            if current is None:
                current = call.step  # steps never go back, so the first is the smallest
            if needs <= finished and (call.step is None or call.step == current):
                ready.append(call.tool)
        return frozenset(ready) or frozenset({END})

    def next_in_log(self, done: Iterable[int]) -> frozenset[str]:
        """The next calls in the log: the first not done and, if it has a step, parallel ones.

        ``{END}`` if no call is left.

        Args:
            done: positions (from 0) of the calls already made.
        """
        finished = frozenset(done)
        rest = [index for index in range(len(self.calls)) if index not in finished]
        if not rest:
            return frozenset({END})
        first = self.calls[rest[0]]
        if first.step is None:
            return frozenset({first.tool})
        return frozenset(
            self.calls[index].tool
            for index in rest
            if self.calls[index].step == first.step and self.dependencies[index] <= finished
        )

    def steps(self) -> Iterator[Step]:
        """The ``len(plan) + 1`` steps, each after the calls before it; the last accepts ``END``."""
        for index in range(len(self.calls) + 1):
            done = range(index)
            yield Step(self.tools[:index], self.acceptable_next(done), self.next_calls(done))

    def is_isomorphic(self, other: Plan, *, arguments: bool = False) -> bool:
        """Whether two plans are the same DAG under some renaming of call ids (paper, App. metrics).

        Args:
            other: the plan to compare with.
            arguments: whether arguments are compared too, with references matched through the DAG.
        """
        if len(self) != len(other) or sorted(self.tools) != sorted(other.tools):
            return False
        import networkx as nx  # slow to import, and needed here only

        def same_node(left: dict[str, Any], right: dict[str, Any]) -> bool:
            if left["tool"] != right["tool"]:
                return False
            return not arguments or _same_arguments(left["arguments"], right["arguments"])

        def same_edge(left: dict[str, Any], right: dict[str, Any]) -> bool:
            return bool(left["paths"] == right["paths"])

        graphs = (plan._graph(nx.DiGraph()) for plan in (self, other))
        edge_match = same_edge if arguments else None
        return bool(nx.is_isomorphic(*graphs, node_match=same_node, edge_match=edge_match))

    def _graph(self, graph: Any) -> Any:
        position = {call.id: index for index, call in enumerate(self.calls)}
        for index, call in enumerate(self.calls):
            graph.add_node(index, tool=call.tool, arguments=without_references(call.arguments))
        for parent, child in self.edges():
            graph.add_edge(parent, child, paths=[])
        for index, call in enumerate(self.calls):
            for pointer, leaf in iter_leaves(call.arguments, is_reference):
                if is_reference(leaf) and str(leaf["$ref"]) in position:
                    edge = graph.edges[position[str(leaf["$ref"])], index]
                    edge["paths"].append((pointer, leaf.get("path") or ""))
        for _, _, data in graph.edges(data=True):
            data["paths"].sort()
        return graph


def _same_arguments(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two calls have the same arguments, in any order of keys."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _positions(calls: Sequence[ToolCall]) -> dict[str, int]:
    position: dict[str, int] = {}
    for index, call in enumerate(calls):
        if call.id in position:
            raise InputError(f"two calls share the id {call.id!r}; ids must be unique in a plan")
        position[call.id] = index
    return position


def _find_parents(
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


def _sort_calls(calls: Sequence[ToolCall], parents: Sequence[set[int]]) -> list[int]:
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
