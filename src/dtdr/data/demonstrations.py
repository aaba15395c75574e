"""Demonstrations: a query, the plan that answered it, and what came before."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import PurePath
from typing import Any, ClassVar, Literal, get_args

import msgspec

from dtdr.data.calls import (
    ToolCall,
    check_pointers,
    check_text,
    dataclass_fields,
    find_references,
    in_sequence,
    is_object,
    kind_of,
    number_calls,
)
from dtdr.data.plan import Plan
from dtdr.errors import InputError, check_lists

Outcome = Literal["success", "failure", "unknown"]
_OUTCOMES = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Message:
    """A text of the user or of the agent, in the conversation before a query.

    >>> Message("user", "Who is Ann?").role
    'user'
    """

    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Parent:
    """The call that a nested plan ran inside of, such as that of a sub-agent.

    Attributes:
        id: of the demonstration with the call.
        call: id of the call; empty if it is not among the calls of that plan.
    """

    id: str
    call: str = ""

    @classmethod
    def from_dict(cls, record: object) -> Parent:
        """A parent from its JSON object; InputError if it is not one."""
        if not is_object(record):
            raise InputError(f"'parent' must be an object with an 'id', not {kind_of(record)}")
        identifier, call = record.get("id"), record.get("call", "")
        if not isinstance(identifier, (str, int)) or identifier == "":
            raise InputError("'parent' has no 'id'")
        if not isinstance(call, (str, int)):
            raise InputError(f"the 'call' of 'parent' must be text, not {kind_of(call)}")
        check_text(str(identifier), "the id of 'parent'")
        check_text(str(call), "the call of 'parent'")
        return cls(str(identifier), str(call))

    def to_dict(self) -> dict[str, str]:
        """The JSON object that ``from_dict`` reads back."""
        return {"id": self.id, "call": self.call} if self.call else {"id": self.id}


class Demonstration(msgspec.Struct, frozen=True):
    """A query, its plan, and what happened in the conversation before.

    >>> record = {"id": "1", "query": "Mail Ann", "calls": ["find", "mail"]}
    >>> Demonstration.from_dict(record).plan.tools
    ('find', 'mail')

    Attributes:
        source: where it came from.
        outcome: ``success`` or ``failure``, if known; ``fit`` learns from both by default.
        group: what must stay on one side of a split (a conversation, a user, a template).
        before: messages and calls of earlier turns, oldest first. These calls are also the plan's
            ``earlier`` calls.
        parent: the call that a nested plan ran inside of, in a demonstration of the same group.
        time: when the query was asked, in UTC; None if unknown.
        offered: names of the tools that the run could call; None if unknown. Equal sets are one
            object in memory.
    """

    id: str
    query: str
    plan: Plan
    source: str = ""
    outcome: Outcome = "success"
    group: str = ""
    before: tuple[Message | ToolCall, ...] = ()
    parent: Parent | None = None
    time: datetime | None = None
    offered: frozenset[str] | None = None
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        check_lists(before=self.before, offered=self.offered)

    @classmethod
    def from_dict(cls, record: object) -> Demonstration:
        """A demonstration from one object of ``demonstrations.jsonl``.

        A call is an object or the name of its tool; one without an id gets its position, or the
        next free number.
        Where no call has ``arguments`` or a ``step`` and there are no links, each is a step.

        Raises:
            InputError: a key is missing or of another type, the query is empty, or the plan is
                invalid (see ``Plan``).
        """
        if not is_object(record):
            raise InputError(f"a demonstration must be a JSON object, not {kind_of(record)}")
        identifier = record.get("id")
        if not isinstance(identifier, (str, int)) or identifier == "":
            raise InputError("the demonstration has no 'id'")
        query = record.get("query")
        if not isinstance(query, str) or not query.strip():
            raise InputError("the demonstration has no 'query', or an empty one")
        calls = record.get("calls")
        if not isinstance(calls, list):
            raise InputError("the demonstration has no list of 'calls'; give names or objects")
        outcome = record.get("outcome", "success")
        if outcome not in _OUTCOMES:
            raise InputError(f"unknown outcome {outcome!r}; choose one of {', '.join(_OUTCOMES)}")
        check_text(str(identifier), "the id")
        before = parse_before(record.get("before", []))
        earlier = tuple(item for item in before if isinstance(item, ToolCall))
        read = tuple(
            call if isinstance(call, ToolCall) else ToolCall.from_dict(call)
            for call in number_calls(calls, (call.id for call in earlier))
        )
        links = _links(record.get("links", []))
        if not links and not any(is_object(call) and "arguments" in call for call in calls):
            read = in_sequence(read)
        plan = Plan(read, links, earlier)
        return cls(
            str(identifier),
            query,
            plan,
            str(record.get("source", "")),
            outcome,
            str(record.get("group", "")),
            before,
            Parent.from_dict(record["parent"]) if "parent" in record else None,
            None if (moment := record.get("time")) is None else _as_time(moment),
            read_offered(record.get("offered")),
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that ``from_dict`` reads back, without optional keys that are empty."""
        record: dict[str, Any] = {"id": self.id, "query": self.query}
        if self.before:
            record["before"] = list(map(before_record, self.before))
        record["calls"] = [call.to_dict() for call in self.plan.calls]
        more = {
            "links": list(map(list, self.plan.links)),
            "source": self.source,
            "group": self.group,
            "parent": self.parent and self.parent.to_dict(),
            "outcome": "" if self.outcome == "success" else self.outcome,
            "time": self.time and self.time.isoformat().replace("+00:00", "Z"),
        }
        record.update((key, value) for key, value in more.items() if value)
        if self.offered is not None:
            record["offered"] = sorted(self.offered)
        return record


Demonstration.__dataclass_fields__ = dataclass_fields(Demonstration.__struct_fields__)


def read_offered(names: object) -> frozenset[str] | None:
    """The tools that a run can call, from any collection of names, or None.

    Raises:
        InputError: it is not a collection of texts.
    """
    if names is None:
        return None
    if not isinstance(names, (list, tuple, set, frozenset)) or not all(
        isinstance(name, str) for name in names
    ):
        raise InputError(f"'offered' must be a list of tool names, not {kind_of(names)}")
    return _one_set(frozenset(names))


@lru_cache(maxsize=1_024)
def _one_set(names: frozenset[str]) -> frozenset[str]:
    """The same object for equal sets: thousands of runs are offered the same tools."""
    for name in names:
        check_text(name, "an offered tool name")
    return names


def _as_time(value: object) -> datetime:
    """A time in UTC, which is also the zone of a time without one."""
    try:
        moment = msgspec.convert(value, datetime)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InputError(
            f"the time {value!r} is not one; write it as 2026-11-22T09:30:00Z (RFC 3339)"
        ) from None


def count_orders(demonstrations: Iterable[Demonstration]) -> Counter[str]:
    """The number of plans by what orders their calls (``Plan.order_rule``), from two calls on."""
    return Counter(item.plan.order_rule for item in demonstrations if len(item.plan) > 1)


def describe_orders(orders: Mapping[str, int]) -> str:
    """In which order calls are learned, in words, from ``count_orders``."""
    words = {
        "steps": "in the order they were made",
        "dependencies": "after those whose outputs they use",
        "any": "in any order, since nothing says which comes first",
    }
    total = sum(orders.values())
    parts = [
        f"{text} ({orders[rule]:,} of {total:,} plans)"
        for rule, text in words.items()
        if orders.get(rule)
    ]
    return "; ".join(parts) if parts else "one by one, since no plan has two"


DemonstrationLike = Demonstration | Mapping[str, Any] | tuple[str, Sequence[str]]
"""A demonstration, its JSON object, or ``(query, [tool names])``."""


def as_demonstrations(values: Iterable[DemonstrationLike]) -> Iterator[Demonstration]:
    """Convert anything that can be a demonstration; without an id, it gets its position.

    A frame of pandas or Polars and a ``datasets.Dataset`` have a demonstration per row, with its
    keys as columns; an empty cell is a missing key.

    Raises:
        InputError: with the position, from 0, of what is not a demonstration; or the values are
            one text.
    """
    if isinstance(values, (str, PurePath)):
        raise InputError(
            f"give demonstrations, not {str(values)!r}; dtdr.read_demonstrations reads a file"
        )
    for position, value in enumerate(_rows(values)):
        try:
            yield _as_demonstration(value, str(position))
        except InputError as error:
            raise InputError(f"demonstration {position}: {error}") from error


def _rows(values: Any) -> Iterable[Any]:
    """The rows of a table as JSON objects; anything else as it is."""
    if hasattr(values, "iter_rows"):  # Polars
        rows = values.iter_rows(named=True)
    elif hasattr(values, "itertuples"):  # pandas
        rows = values.to_dict("records")
    elif hasattr(values, "column_names") and hasattr(values, "features"):  # datasets
        rows = values
    else:
        return values  # type: ignore[no-any-return]
    return map(_without_gaps, rows)


def _without_gaps(value: Any) -> Any:
    """A cell or row without the values for empty cells, and with lists instead of arrays."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {
            key: _without_gaps(item)
            for key, item in value.items()
            if item is not None and not (isinstance(item, float) and item != item)
        }
    return [_without_gaps(item) for item in value] if isinstance(value, list) else value


def _as_demonstration(value: object, position: str) -> Demonstration:
    if isinstance(value, Demonstration):
        return value
    if isinstance(value, Mapping):
        return Demonstration.from_dict({"id": position, **value})
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InputError(
            "it must be a Demonstration, its JSON object, or a pair of the query and the list of "
            f"tool names, not {kind_of(value)}"
        )
    query, tools = value
    if not isinstance(query, str) or not query.strip():
        raise InputError("its query must be text that is not empty")
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InputError(f"its tools must be a list of names, not {tools!r}")
    names = list(tools)
    if not all(isinstance(name, str) and name for name in names):
        raise InputError(f"its tools must be a list of names, not {names!r}")
    return Demonstration(position, query, Plan(in_sequence(tuple(number_calls(names)))))


def before_record(item: object) -> object:
    """The JSON object of a message or call, as ``parse_before`` reads it; others stay."""
    if isinstance(item, ToolCall):
        return {"role": "call", **item.to_dict()}
    if isinstance(item, Message):
        return {"role": item.role, "content": item.content}
    return item


def parse_before(records: object) -> tuple[Message | ToolCall, ...]:
    """Messages and calls before a query, oldest first, from their JSON list.

    Raises:
        InputError: it is not a list of ``{"role": "user" | "assistant", "content"}`` and
            ``{"role": "call", "id", "tool", ...}``, two calls share an id, or a call refers to one
            that is not before it.
    """
    if not isinstance(records, list):
        raise InputError(f"'before' must be a list, not {kind_of(records)}")
    before: list[Message | ToolCall] = []
    ids: set[str] = set()
    for record in records:
        role = record.get("role") if isinstance(record, Mapping) else None
        if role == "call":
            call = ToolCall.from_dict({k: v for k, v in record.items() if k != "role"})
            for reference in find_references(call.arguments):
                if reference.call not in ids:
                    raise InputError(
                        f"call {call.id!r} refers to {reference.call!r}, which is not a call "
                        "before it"
                    )
            if call.id in ids:
                raise InputError(f"two calls share the id {call.id!r}; ids must be unique")
            check_text(call.tool, "the tool name")
            check_text(call.id, "the id of a call")
            ids.add(call.id)
            before.append(call)
        elif role in ("user", "assistant"):
            content = record.get("content")
            if not isinstance(content, str):
                raise InputError(f"a message before the query has no 'content': {kind_of(content)}")
            before.append(Message(role, content))
        else:
            raise InputError(
                f"what comes before the query needs the role user, assistant or call, not {role!r}"
            )
    check_pointers(item for item in before if isinstance(item, ToolCall))
    return tuple(before)


def _links(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not all(
        isinstance(link, list) and len(link) == 2 for link in value
    ):
        raise InputError("'links' must be a list of [earlier id, later id] pairs")
    return tuple((str(source), str(target)) for source, target in value)
