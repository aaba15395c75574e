"""A run up to now: what the user asked for, what happened before, and the calls made since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from dtdr import json_codec
from dtdr.calls import END, Status, ToolCall, check_text, kind_of, number_calls
from dtdr.demonstrations import Message, before_record, parse_before
from dtdr.errors import InputError
from dtdr.outputs import bound_output, is_empty, parse_output

CallLike = str | ToolCall | Mapping[str, Any]
"""A call: the name of its tool, a ``ToolCall``, or its JSON object, which needs no id."""

BeforeLike = Message | ToolCall | Mapping[str, Any]
"""What came before a query: a message, a call, or the JSON object of one."""

_MAX_DEPTH = 100


class Run:
    """One query of a conversation and the calls made for it so far.

    Unlike a ``Plan`` it is not finished, and it is what an agent really did: an argument may refer
    to a call that is not there.

    Args:
        query: what the user asked for.
        before: messages and calls of the conversation before the query, oldest first.
        calls: calls made for the query already, oldest first.

    Attributes:
        calls: the calls made for the query, oldest first; ``call`` adds one.

    Raises:
        InputError: the query is not text, or two calls share an id.
    """

    __slots__ = ("_ids", "before", "calls", "query")

    def __init__(
        self,
        query: str,
        before: Iterable[Message | ToolCall] = (),
        calls: Iterable[ToolCall] = (),
    ) -> None:
        if not isinstance(query, str):
            raise InputError(f"a query must be text, not {kind_of(query)}")
        self.query = query
        self.before = tuple(before)
        self.calls: list[ToolCall] = []
        self._ids = {call.id for call in self.earlier} if self.before else set()
        for call in calls:
            self._add(call)

    @classmethod
    def from_dict(cls, record: object) -> Run:
        """A run from a JSON object with the keys of a demonstration: query, before, calls.

        A call is an object or the name of its tool; one without an id gets a number that is free.

        Raises:
            InputError: a key is missing or holds a value of another type, or two calls share an id.
        """
        if not isinstance(record, Mapping):
            raise InputError(f"a run must be a JSON object, not {kind_of(record)}")
        query = record.get("query")
        if not isinstance(query, str) or not query.strip():
            raise InputError("the run has no 'query', or an empty one")
        calls = record.get("calls", [])
        if not isinstance(calls, list):
            raise InputError(f"the 'calls' of a run must be a list, not {kind_of(calls)}")
        return as_run(query, calls, record.get("before", []))

    def copy(self) -> Run:
        """The same run, to which calls may be added without changing this one."""
        return Run(self.query, self.before, self.calls)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that ``from_dict`` reads back."""
        record: dict[str, Any] = {"query": self.query}
        if self.before:
            record["before"] = list(map(before_record, self.before))
        record["calls"] = [call.to_dict() for call in self.calls]
        return record

    def call(
        self,
        tool: str | ToolCall,
        arguments: Mapping[str, Any] | None = None,
        *,
        output: Any = None,
        status: Status | None = None,
        step: int | None = None,
        id: str | None = None,
    ) -> ToolCall:
        """Add a call.

        Args:
            tool: its name, or the whole call, which is added as it is.
            arguments: by parameter; references to outputs of earlier calls are allowed.
            output: what it returned, any JSON value or text, as in a demonstration: a text that
                holds a JSON object or list is read, and what is long is cut (``bound_output``).
            status: what became of it; without it, ``unknown`` where there is no output, ``empty``
                where the output holds nothing, else ``ok``.
            step: the agent's message that made the call.
            id: how later arguments may refer to it; without it, a number that is free.

        Returns:
            The call as it was added.

        Raises:
            InputError: there is no tool name, the id is taken, the arguments are not an object,
                the status is not one, the output cannot be written as JSON, or a whole call comes
                with something else.
        """
        if isinstance(tool, ToolCall):
            if any(item is not None for item in (arguments, output, status, step, id)):
                raise InputError(f"the call of {tool.tool!r} has its own details; give it alone")
            return self._add(tool)
        if id is None:
            number = len(self.calls) + 1
            while str(number) in self._ids:
                number += 1
            id = str(number)
        if arguments is not None and not isinstance(arguments, Mapping):
            raise InputError(
                f"the arguments of {tool!r} must be a JSON object, not {kind_of(arguments)}"
            )
        if status is not None and status not in get_args(Status):
            raise InputError(
                f"unknown status {status!r}; choose one of {', '.join(get_args(Status))}"
            )
        whole = None
        if output is not None:
            output, whole = bound_output(parse_output(output))
            try:
                output = json_codec.as_json(output)
            except (TypeError, ValueError, RecursionError) as error:
                raise InputError(
                    f"the output of {tool!r} cannot be written as JSON; give text or a JSON value"
                ) from error
        if status is None:
            status = _status_of(output)
        return self._add(ToolCall(id, tool, dict(arguments or {}), output, status, step, whole))

    def _add(self, call: ToolCall) -> ToolCall:
        if not isinstance(call.tool, str) or not call.tool or call.tool == END:
            raise InputError(f"a call needs the name of a tool, not {call.tool!r}")
        check_text(call.tool, "the tool name")
        check_text(call.id, "the id of a call")
        if _is_deep(call.arguments):
            raise InputError(
                f"the arguments of call {call.id!r} are nested more than {_MAX_DEPTH} deep"
            )
        if call.id in self._ids:
            raise InputError(f"two calls share the id {call.id!r}; ids must be unique in a run")
        self._ids.add(call.id)
        self.calls.append(call)
        return call

    @property
    def earlier(self) -> tuple[ToolCall, ...]:
        """The calls before the query."""
        return tuple(item for item in self.before if isinstance(item, ToolCall))

    @property
    def history(self) -> tuple[str, ...]:
        """Names of the tools called for the query, oldest first."""
        return tuple(call.tool for call in self.calls)


def as_run(
    query: str | Run, history: Iterable[CallLike] = (), before: Sequence[BeforeLike] = ()
) -> Run:
    """A run from whatever says what was called and what came before; a ``Run`` is given back.

    Objects stay as they are. Of JSON objects, long outputs are cut, and the output says what became
    of a call that has no status, as in ``Run.call``.

    Raises:
        InputError: something is not a call or a message, two calls share an id, or a ``Run`` comes
            with further calls or messages.
    """
    if isinstance(query, Run):
        if history or before:
            raise InputError("a run has its own calls and what came before it; give the run alone")
        return query
    if not isinstance(before, (list, tuple)):
        raise InputError(f"'before' must be a list, not {kind_of(before)}")
    earlier = [item for item in before if isinstance(item, (Message, ToolCall))]
    if len(earlier) < len(before):
        earlier = [*map(_bound, parse_before([before_record(item) for item in before]))]
    calls: list[ToolCall] = []
    taken = (item.id for item in earlier if isinstance(item, ToolCall))
    for item in number_calls(history, taken):
        if not isinstance(item, (ToolCall, Mapping)):
            raise InputError(
                f"a history holds names of tools, calls and their JSON objects, not {kind_of(item)}"
            )
        calls.append(item if isinstance(item, ToolCall) else _read_call(item))
    return Run(query, earlier, calls)


def _read_call(record: object) -> ToolCall:
    call: ToolCall = _bound(ToolCall.from_dict(record))
    if call.output is not None and call.status == "unknown":
        return replace(call, status=_status_of(call.output))
    return call


def _bound(item: Any) -> Any:
    """A call with its output cut to what a run keeps; a message as it is."""
    if not isinstance(item, ToolCall) or item.output is None:
        return item
    output, whole = bound_output(item.output)
    return item if whole is None else replace(item, output=output, output_length=whole)


def _status_of(output: Any) -> Status:
    if output is None:
        return "unknown"
    return "empty" if is_empty(output) else "ok"


def _is_deep(value: object, depth: int = 0) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        return False
    return depth >= _MAX_DEPTH or any(_is_deep(item, depth + 1) for item in value)
