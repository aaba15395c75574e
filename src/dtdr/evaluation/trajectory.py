"""Does a plan match the expected one? The modes that tests of agents use, over calls or names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from dtdr.calls import ToolCall, rename_references
from dtdr.errors import InputError, unknown_choice
from dtdr.plan import ArgumentComparison, Plan, same_arguments
from dtdr.run import Run

Mode = Literal["strict", "unordered", "subset", "superset", "dag", "dependencies"]
"""How the actual calls are compared with the expected ones (the first four as in agentevals):

- ``strict``: the same calls in the same order;
- ``unordered``: the same calls, each as often, in any order;
- ``subset``: no call that is not expected;
- ``superset``: every expected call, and maybe others;
- ``dag``: the same calls with the same dependencies (``Plan.is_isomorphic``);
- ``dependencies``: the same calls in an order that the expected dependencies allow.
"""

PlanLike = Plan | Run | Mapping[str, Any] | Iterable[str | ToolCall | Mapping[str, Any]]
"""A plan; a run; a JSON object with ``calls``; or calls: tool names, ``ToolCall`` or JSON
objects."""


def matches(
    actual: PlanLike,
    expected: PlanLike,
    mode: Mode = "dependencies",
    *,
    arguments: bool | ArgumentComparison = False,
) -> bool:
    """Whether an agent's plan matches the expected one; ``mismatch`` says why not.

    Args:
        actual: what the agent called.
        expected: what it should have called.
        mode: see ``Mode``.
        arguments: False compares tools only; True also compares arguments, references as such; a
            callable gets the actual and the expected arguments and says whether they agree.

    Raises:
        InputError: there is no such mode, or one of the two is not a plan.
    """
    return mismatch(actual, expected, mode, arguments=arguments) is None


def mismatch(
    actual: PlanLike,
    expected: PlanLike,
    mode: Mode = "dependencies",
    *,
    arguments: bool | ArgumentComparison = False,
) -> str | None:
    """Why a plan does not match the expected one, as one line or a few; None where it does.

    Arguments and errors are those of ``matches``.
    """
    if mode not in get_args(Mode):
        raise unknown_choice("mode", mode, get_args(Mode))
    made, wanted = as_plan(actual), as_plan(expected)
    same = _call_comparison(made, wanted, arguments)
    if mode == "dag":
        if made.is_isomorphic(wanted, arguments=arguments):
            return None
        return _differences(made, wanted, same) or _lines(
            made, wanted, "the calls depend on each other in another way"
        )
    if mode == "strict":
        if len(made) == len(wanted) and all(map(same, range(len(made)), range(len(wanted)))):
            return None
        return _differences(made, wanted, same) or _lines(
            made, wanted, "the calls are in another order"
        )
    if mode == "dependencies":
        missing = _differences(made, wanted, same)
        if missing is None and not _follows(made, wanted, same):
            return _lines(made, wanted, "a call comes before one that it depends on")
        return missing
    return _differences(
        made,
        wanted,
        same,
        extra=mode != "superset",
        missing=mode != "subset",
    )


def as_plan(value: PlanLike) -> Plan:
    """A plan of whatever says what one is.

    Raises:
        InputError: it is not a plan.
    """
    if isinstance(value, Plan):
        return value
    if isinstance(value, Run):
        earlier = tuple(item for item in value.before if isinstance(item, ToolCall))
        return Plan(tuple(value.calls), (), earlier)
    links: Sequence[Any] = ()
    items: Any = value
    if isinstance(value, Mapping):
        items, links = value.get("calls", ()), value.get("links", ())
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise InputError(f"a plan is a list of calls or tool names, not {items!r}")
    calls = []
    for number, item in enumerate(items, start=1):
        if isinstance(item, str):
            item = ToolCall(str(number), item)
        elif isinstance(item, Mapping):
            item = ToolCall.from_dict({"id": str(number), **item})
        elif not isinstance(item, ToolCall):
            raise InputError(f"call {number} of a plan is {item!r}; give a tool name or a call")
        calls.append(item)
    return Plan(tuple(calls), tuple((str(a), str(b)) for a, b in links))


Same = Callable[[int, int], bool]
"""Whether an actual and an expected call, by their positions, are the same."""


def _call_comparison(made: Plan, wanted: Plan, arguments: bool | ArgumentComparison) -> Same:
    compare = same_arguments if arguments is True else arguments
    if compare is False:
        return lambda i, j: made.calls[i].tool == wanted.calls[j].tool
    # A reference names a call by an id that differs between plans: what counts is which call of
    # which tool is meant.
    left, right = (
        [_with_positions(plan, call.arguments) for call in plan.calls] for plan in (made, wanted)
    )

    def same(i: int, j: int) -> bool:
        return made.calls[i].tool == wanted.calls[j].tool and bool(compare(left[i], right[j]))

    return same


def _with_positions(plan: Plan, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments, with each reference by tool and number among the calls of that tool."""
    names: dict[str, str] = {}
    count: dict[str, int] = {}
    for call in plan.calls:
        count[call.tool] = count.get(call.tool, 0) + 1
        names[call.id] = f"{call.tool} {count[call.tool]}"

    return {key: rename_references(item, names) for key, item in arguments.items()}


def _pairs(made: Plan, wanted: Plan, same: Same) -> dict[int, int]:
    """Each actual call with an expected one that is the same, as many as possible."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    if not len(made) or not len(wanted):
        return {}
    table = [[same(i, j) for j in range(len(wanted))] for i in range(len(made))]
    columns = maximum_bipartite_matching(csr_array(table), perm_type="column")
    return {i: int(j) for i, j in enumerate(columns) if j >= 0}


def _differences(
    made: Plan, wanted: Plan, same: Same, *, extra: bool = True, missing: bool = True
) -> str | None:
    pairs = _pairs(made, wanted, same)
    lines = []
    if extra:
        lines += [f"not expected: {_show(made, i)}" for i in range(len(made)) if i not in pairs]
    if missing:
        paired = set(pairs.values())
        lines += [f"missing: {_show(wanted, j)}" for j in range(len(wanted)) if j not in paired]
    return "\n".join(lines) or None


def _follows(made: Plan, wanted: Plan, same: Same) -> bool:
    """Whether the actual calls can be matched in turn to expected calls that are ready."""
    needs = wanted.dependencies
    # Of expected calls that nothing tells apart, one is tried: else many parallel calls of one
    # tool would take exponential time.
    kinds = [
        (
            needs[j],
            frozenset(later for later in range(len(wanted)) if j in needs[later]),
            tuple(same(i, j) for i in range(len(made))),
        )
        for j in range(len(wanted))
    ]
    seen: set[frozenset[int]] = set()

    def search(position: int, done: frozenset[int]) -> bool:
        if position == len(made):
            return True
        if done in seen:  # what is left depends on what is done alone: position is its size
            return False
        seen.add(done)
        ready = [
            j
            for j in range(len(wanted))
            if j not in done and needs[j] <= done and same(position, j)
        ]
        return any(
            search(position + 1, done | {j})
            for j in {kinds[j]: j for j in reversed(ready)}.values()
        )

    return search(0, frozenset())


def _lines(made: Plan, wanted: Plan, what: str) -> str:
    return f"{what}\nactual: {', '.join(made.tools)}\nexpected: {', '.join(wanted.tools)}"


def _show(plan: Plan, position: int) -> str:
    call = plan.calls[position]
    arguments = json.dumps(call.arguments, ensure_ascii=False, default=str)
    return f"{call.tool} {arguments}" if call.arguments else call.tool
