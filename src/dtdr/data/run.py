"""An unfinished run: a query, what happened before, and the calls made since."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import msgspec

from dtdr.data import json_codec
from dtdr.data.calls import END, Status, ToolCall, check_text, kind_of, number_calls, read_text
from dtdr.data.demonstrations import Message, before_record, parse_before, read_offered
from dtdr.data.outputs import (
    OUTPUT_LENGTH,
    bound_output,
    is_empty,
    is_short,
    parse_output,
    status_of,
)
from dtdr.errors import InputError, check_lists

CallLike = str | ToolCall | Mapping[str, Any]
"""A call: the name of its tool, a ``ToolCall``, or its JSON object, which needs no id."""

BeforeLike = Message | ToolCall | Mapping[str, Any]
"""An item before a query: a message, a call, or the JSON object of one."""

NO_CALLS = ("", END)
"""Names in a history that are not calls, and are skipped."""

Item = TypeVar("Item", bound=Message | ToolCall)

_MAX_DEPTH = 100


class Run:
    """A query of a conversation and the calls made for it so far.

    >>> find = ToolCall("1", "find_user", {"name": "Ann"}, output={"id": 7})
    >>> Run("Mail Ann", calls=[find]).calls[0].tool
    'find_user'

    Unlike a ``Plan``, it is not finished, and it is what an agent really did: an argument may refer
    to an unknown call. Every ranking starts from a run, and every call and message in it is read
    by ``read_item``, so the same run gives the same ranking everywhere.

    Args:
        query: what the user asked for.
        before: messages and calls of the conversation before the query, oldest first.
        calls: calls made for the query, oldest first; ``call`` adds one.
        offered: names of the tools that can be called, among which tools are ranked; None if
            unknown.
        text: what the agent wrote before its next call, of which the last 500 characters are kept;
            None if unknown. The call that is added next takes it.

    Raises:
        InputError: the query or the text is not text, ``offered`` does not contain names, or two
            calls share an id.
    """

    __slots__ = ("_ids", "before", "calls", "offered", "query", "text")

    def __init__(
        self,
        query: str,
        before: Iterable[Message | ToolCall] = (),
        calls: Iterable[ToolCall] = (),
        offered: Collection[str] | None = None,
        text: str | None = None,
    ) -> None:
        if not isinstance(query, str):
            raise InputError(f"a query must be text, not {kind_of(query)}")
        check_lists(before=before, calls=calls)
        self.query = query
        self.before = tuple(read_item(item) for item in before)
        self.offered = read_offered(offered)
        self.calls: list[ToolCall] = []
        self._ids = {call.id for call in self.earlier} if self.before else set()
        self.text: str | None = None
        for call in calls:
            self._add(call)
        self.text = read_text(text, "the text before a call")

    @classmethod
    def from_dict(cls, record: object) -> Run:
        """A run from a JSON object.

        It has the keys of a demonstration, ``query``, ``before``, ``calls`` and ``offered``, and
        ``text``. A call is an object or the name of its tool; one without an id gets its position,
        or the next free number.

        Raises:
            InputError: a key is missing or of another type, or two calls share an id.
        """
        if not isinstance(record, Mapping):
            raise InputError(f"a run must be a JSON object, not {kind_of(record)}")
        query = record.get("query")
        if not isinstance(query, str) or not query.strip():
            raise InputError("the run has no 'query', or an empty one")
        calls = record.get("calls", [])
        if not isinstance(calls, list):
            raise InputError(f"the 'calls' of a run must be a list, not {kind_of(calls)}")
        return as_run(
            query, calls, record.get("before", []), record.get("offered"), record.get("text")
        )

    @classmethod
    def of_read(
        cls,
        query: str,
        before: Iterable[Message | ToolCall],
        calls: Iterable[ToolCall],
        offered: frozenset[str] | None = None,
        text: str | None = None,
    ) -> Run:
        """A run of items that ``read_item`` returned, with unique ids."""
        run = object.__new__(cls)
        run.query, run.before, run.calls = query, tuple(before), list(calls)
        run.offered, run.text = offered, text
        run._ids = {item.id for item in (*run.earlier, *run.calls)}
        return run

    def with_calls(self, history: Iterable[CallLike]) -> Run:
        """The run with more calls, which may be names or JSON objects.

        Raises:
            InputError: something is not a call, or two calls share an id.
        """
        run = self.copy()
        check_lists(history=history)
        calls = [item for item in history if not (isinstance(item, str) and item in NO_CALLS)]
        if (
            not run._ids and not run.text and all(isinstance(item, str) for item in calls)
        ):  # the usual case
            names = list(map(str, calls))
            check_text("".join(names), "a tool name in")
            run.calls = [ToolCall(str(at), name) for at, name in enumerate(names, start=1)]
            run._ids = {call.id for call in run.calls}
            return run
        for item in number_calls(calls, run._ids, len(run.calls) + 1):
            if not isinstance(item, (ToolCall, Mapping)):
                raise InputError(
                    "a history has names of tools, calls and their JSON objects, not "
                    f"{kind_of(item)}"
                )
            run._add(item if isinstance(item, ToolCall) else ToolCall.from_dict(item))
        return run

    def copy(self) -> Run:
        """A copy of the run."""
        run = object.__new__(Run)
        run.query, run.before, run.calls = self.query, self.before, self.calls.copy()
        run.offered, run.text, run._ids = self.offered, self.text, self._ids.copy()
        return run

    def first(self, count: int) -> Run:
        """The run after its first ``count`` calls; before all of them, what came after is lost."""
        text = self.text if count >= len(self.calls) else None
        return Run.of_read(self.query, self.before, self.calls[:count], self.offered, text)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that ``from_dict`` reads back."""
        record: dict[str, Any] = {"query": self.query}
        if self.before:
            record["before"] = list(map(before_record, self.before))
        record["calls"] = [call.to_dict() for call in self.calls]
        if self.offered is not None:
            record["offered"] = sorted(self.offered)
        if self.text is not None:
            record["text"] = self.text
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
            tool: its name, or the whole call.
            arguments: by parameter, with or without references.
            output: what it returned, any JSON value or text; see ``read_item``.
            status: the result; by default, it follows from the output.
            step: the agent's message that made the call.
            id: for references in later arguments; by default, a free number.

        Returns:
            The call that was added.

        Raises:
            InputError: there is no tool name, the id is taken, the arguments are not an object,
                the status is unknown, the output cannot be written as JSON, or a whole call comes
                with other arguments.
        """
        if isinstance(tool, ToolCall):
            if any(item is not None for item in (arguments, output, status, step, id)):
                raise InputError(f"the call of {tool.tool!r} has its own details; give it alone")
            return self._add(tool)
        if isinstance(arguments, Mapping):
            arguments = dict(arguments)  # the caller may change its own
        record = {"id": id, "tool": tool, "arguments": arguments, "output": output}
        record |= {"status": status, "step": step}
        known = {name: value for name, value in record.items() if value is not None}
        (numbered,) = number_calls([known], self._ids, len(self.calls) + 1)
        return self._add(ToolCall.from_dict(numbered))

    def _add(self, call: ToolCall) -> ToolCall:
        if not isinstance(call.tool, str):
            raise InputError(f"a call needs the name of a tool, not {kind_of(call.tool)}")
        if call.tool in NO_CALLS:
            raise InputError(f"a call needs the name of a tool, not {call.tool!r}")
        check_text(call.tool, "the tool name")
        check_text(call.id, "the id of a call")
        if call.arguments and _is_deep(call.arguments):
            raise InputError(
                f"the arguments of call {call.id!r} are nested more than {_MAX_DEPTH} deep"
            )
        if call.id in self._ids:
            raise InputError(f"two calls share the id {call.id!r}; ids must be unique in a run")
        if call.output is not None or call.text is not None:
            call = read_item(call)
        if self.text is not None:
            call = msgspec.structs.replace(call, text=call.text or self.text)
            self.text = None
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
    query: str | Run,
    history: Iterable[CallLike] = (),
    before: Sequence[BeforeLike] = (),
    offered: Collection[str] | None = None,
    text: str | None = None,
) -> Run:
    """A run from a query, calls and what came before, in any form; a ``Run`` is returned as it is.

    Raises:
        InputError: something is not a call or a message, two calls share an id, or a ``Run`` comes
            with more calls, messages or tools.
    """
    if isinstance(query, Run):
        if history or before or offered is not None or text is not None:
            raise InputError(
                "a run has its own calls, tools, text and what came before it; give the run alone"
            )
        return query
    if not isinstance(before, (list, tuple)):
        raise InputError(f"'before' must be a list, not {kind_of(before)}")
    earlier = [item for item in before if isinstance(item, (Message, ToolCall))]
    if len(earlier) < len(before):
        earlier = [*parse_before([before_record(item) for item in before])]
    run = Run(query, earlier, offered=offered).with_calls(history)
    run.text = read_text(text, "the text before a call")
    return run


def read_item(item: Item) -> Item:
    """A call or message as ``dtdr import`` writes it; reading it again changes nothing.

    A text that is a JSON object or list is parsed. Outputs and messages are cut to 2,000 characters
    (``bound_output``), and the text before a call to its last 500. The status of a call follows
    from its output (``status_of``), and ``ok`` becomes ``empty`` if the output is.

    Raises:
        InputError: an output cannot be written as JSON.
    """
    if isinstance(item, ToolCall):
        return cast(Item, _read_call(item))
    if len(item.content) <= OUTPUT_LENGTH:
        return item
    return cast(Item, replace(item, content=bound_output(item.content)[0]))


def _read_call(item: ToolCall) -> ToolCall:
    if item.text is not None:
        text = read_text(item.text, f"the text of call {item.id!r}")
        if text != item.text:
            item = msgspec.structs.replace(item, text=text)
    if item.output is None or _is_read(item):
        return item
    status, whole = item.status, parse_output(item.output)
    if status in ("unknown", "ok"):
        status = status_of(whole, failed=None if status == "unknown" else False)
    copied, length = json_codec.copy_json(whole), None
    if copied is not None and is_short(copied[1]):
        output = copied[0]
    else:
        output, length = bound_output(whole)
        try:
            output = json_codec.as_json(output)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"the output of {item.tool!r} cannot be written as JSON; give text or a JSON value"
            ) from error
    length = length if item.output_length is None else item.output_length
    return ToolCall(
        item.id, item.tool, item.arguments, output, status, item.step, length, item.text
    )


def _is_read(call: ToolCall) -> bool:
    """Whether reading a call certainly changes nothing: a fast check."""
    output = call.output
    try:
        if call.status == "unknown" or (call.status == "ok" and is_empty(output)):
            return False
        if isinstance(output, str):
            return len(output) <= OUTPUT_LENGTH and output.lstrip()[:1] not in ("{", "[")
        if not isinstance(output, (dict, list)):
            return isinstance(output, int)
        size = len(json_codec.dumps(output))
    except (RecursionError, TypeError, ValueError):
        return False
    # When an output is cut, a value counts at most twice its characters.
    is_cut = call.output_length is not None
    return size <= (6 * OUTPUT_LENGTH if is_cut else OUTPUT_LENGTH // 2)


def _is_deep(value: object, depth: int = 0) -> bool:
    if isinstance(value, (str, int, float)):
        return False
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        return False
    return depth >= _MAX_DEPTH or any(_is_deep(item, depth + 1) for item in value)
