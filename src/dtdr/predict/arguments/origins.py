"""Where the values of a call's arguments come from, and how usual that is in demonstrations."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from dtdr.data.calls import ToolCall, is_reference
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.outputs import iter_leaves
from dtdr.errors import ModelError

USER, ARGUMENT, OTHER = "user", "argument", "other"
OUTPUT = "output of "
"""Before the name of the tool whose output holds a value."""

SHORTEST = 3
"""Characters of a text that is looked for in outputs; shorter ones stand everywhere by chance."""

_PRIOR = 1.0
"""Calls that the origins of all parameters count for, beside those of one parameter."""


def iter_origins(
    call: ToolCall, query: str, before: Sequence[Message | ToolCall], calls: Sequence[ToolCall]
) -> Iterator[tuple[str, str]]:
    """``(parameter, origin)`` of each value of a call's arguments.

    An origin is ``user`` where the query or a message of the user says the value, ``output of
    TOOL`` where an earlier call returned it, ``argument`` where an earlier call was given it, else
    ``other``; the first of these that holds.

    Args:
        call: its arguments may hold references.
        query: what the user asked for.
        before: what came before the query, oldest first.
        calls: those made before, oldest first.
    """
    said = [query, *(item.content for item in before if isinstance(item, Message))]
    text = "\n".join(said).casefold()
    earlier = [item for item in before if isinstance(item, ToolCall)] + list(calls)
    tools = {item.id: item.tool for item in earlier}

    @cache
    def outputs() -> list[tuple[str, str]]:
        return [(one.tool, _text(one.output)) for one in reversed(earlier)]

    @cache
    def given() -> set[str]:
        values = (value for one in earlier for _, value in _iter_values(one))
        return {_text(value) for value in values if not is_reference(value)}

    def origin(value: Any) -> str:
        if is_reference(value):
            return f"{OUTPUT}{tools.get(str(value['$ref']), '')}"
        wanted = _text(value)
        if isinstance(value, bool) or not wanted:
            return OTHER
        if wanted in text:
            return USER
        if len(wanted) >= SHORTEST:
            for tool, returned in outputs():
                if wanted in returned:
                    return f"{OUTPUT}{tool}"
        return ARGUMENT if wanted in given() else OTHER

    for name, value in _iter_values(call):
        yield name, origin(value)


def iter_sources(run: Demonstration) -> Iterator[tuple[ToolCall, str, str]]:
    """Where the value of each argument comes from, as far as the run shows it.

    Unlike ``iter_origins`` it takes a value for an output's only where the run refers to it, and
    tells messages from the query: what reports count.

    Yields:
        The call, the name of the argument, and ``output``, ``query``, ``earlier message``,
        ``argument`` (of an earlier call) or ``other``; one for each value of a list or object.
    """
    query = run.query.casefold()
    said = "\n".join(item.content for item in run.before if isinstance(item, Message)).casefold()
    earlier: set[str] = set()
    for call in run.plan.calls:
        values = list(_iter_values(call))
        for name, value in values:
            text = _text(value)
            if is_reference(value):
                source = "output"
            elif isinstance(value, bool) or not text:
                source = "other"
            elif text in query:
                source = "query"
            elif text in said:
                source = "earlier message"
            else:
                source = "argument" if text in earlier else "other"
            yield call, name, source
        earlier.update(_text(value) for _, value in values if not is_reference(value))


def _iter_values(call: ToolCall) -> Iterator[tuple[str, Any]]:
    """``(parameter, value)`` of each argument, and of each value in lists and objects."""
    for name, argument in call.arguments.items():
        for _, value in iter_leaves(argument, is_reference):
            yield name, value


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.strip().casefold()


@dataclass(frozen=True)
class OriginCounts:
    """How often each parameter's values came from where, in demonstrations.

    Attributes:
        counts: by ``(tool, parameter)``, and there by origin.
    """

    counts: Mapping[tuple[str, str], Mapping[str, int]]

    @classmethod
    def of(cls, calls: Iterable[tuple[ToolCall, Sequence[tuple[str, str]]]]) -> Self:
        """The counts of calls with the origins of their values."""
        counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for call, origins in calls:
            for name, origin in origins:
                counts[call.tool, name][origin] += 1
        return cls(dict(counts))

    def __post_init__(self) -> None:
        kinds: Counter[str] = Counter()
        for origins in self.counts.values():
            for origin, number in origins.items():
                kinds[_kind(origin)] += number
        total = sum(kinds.values()) + len(_KINDS)
        shares = {kind: (kinds[kind] + 1) / total for kind in _KINDS}
        object.__setattr__(self, "_shares", shares)

    def oddness(
        self, tool: str, parameter: str, origin: str, own: OriginCounts | None = None
    ) -> float | None:
        """Minus the logarithm of an origin's share; None for a parameter never given.

        Args:
            tool: of the call.
            parameter: of the tool.
            origin: where a value comes from.
            own: counts that are not to count, such as those of the runs of one task.
        """
        known = Counter(self.counts.get((tool, parameter), {}))
        if own is not None:
            known.subtract(own.counts.get((tool, parameter), {}))
        total = known.total()
        if total <= 0:
            return None
        shares: Mapping[str, float] = self._shares  # type: ignore[attr-defined]
        prior = _PRIOR * shares[_kind(origin)]
        if _kind(origin) == OUTPUT and known[origin] <= 0:
            prior /= 10  # of this very tool, among all
        return -math.log((known[origin] + prior) / (total + _PRIOR))

    def rename_tool(self, old: str, new: str) -> Self:
        """The counts of a vocabulary in which a tool has another name."""
        swap = {f"{OUTPUT}{old}": f"{OUTPUT}{new}"}
        return type(self)(
            {
                (new if tool == old else tool, name): {
                    swap.get(origin, origin): number for origin, number in origins.items()
                }
                for (tool, name), origins in self.counts.items()
            }
        )

    def to_list(self) -> list[list[Any]]:
        """JSON that ``from_list`` reads."""
        return [[tool, name, dict(origins)] for (tool, name), origins in self.counts.items()]

    @classmethod
    def from_list(cls, records: object) -> Self:
        """The counts that ``to_list`` gave.

        Raises:
            ModelError: it is something else.
        """
        if not isinstance(records, list):
            raise ModelError("its origins of arguments are damaged; fit it again")
        counts = {
            (str(tool), str(name)): {str(key): int(number) for key, number in origins.items()}
            for tool, name, origins in records
        }
        return cls(counts)


_KINDS = (USER, OUTPUT, ARGUMENT, OTHER)


def _kind(origin: str) -> str:
    return OUTPUT if origin.startswith(OUTPUT) else origin


def iter_demonstrated(
    item: Demonstration,
) -> Iterator[tuple[ToolCall, list[tuple[str, str]]]]:
    """Each call of a demonstration with the origins of its values."""
    calls = item.plan.calls
    for place, call in enumerate(calls):
        yield call, list(iter_origins(call, item.query, item.before, calls[:place]))
