"""Tool calls: tool, arguments with references to earlier outputs, and output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, TypeGuard, get_args

import msgspec

from dtdr.data.outputs import Status as Status
from dtdr.data.outputs import last_words, resolve_pointer
from dtdr.errors import InputError

END = "end"
"""Name of the end-of-plan tool: predicted last, never written among a plan's calls."""


class Reference(NamedTuple):
    """An earlier call's output, or the part of it at a JSON Pointer (RFC 6901).

    Without a path, the value is the output or somewhere in it.
    """

    call: str
    path: str | None = None


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a ``Mapping``; fast for a ``dict`` and for a text."""
    kind = type(value)
    return kind is dict or (kind is not str and isinstance(value, Mapping))


def is_reference(value: object) -> bool:
    """Whether a JSON value is a reference: ``{"$ref": "1"}``, ``{"$ref": "1", "path": "/id"}``."""
    return (
        is_object(value)
        and "$ref" in value
        and (len(value) == 1 or (len(value) == 2 and isinstance(value.get("path"), str)))
    )


def find_references(value: object) -> list[Reference]:
    """The references inside a JSON value, depth first."""
    if is_object(value):
        if is_reference(value):
            return [Reference(str(value["$ref"]), value.get("path"))]
        items: Iterable[Any] = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    else:
        return []
    references = []
    for item in items:
        if type(item) is not str:
            references += find_references(item)
    return references


def _map_references(value: Any, change: Callable[[Mapping[str, Any]], Any]) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        if is_reference(value):
            return change(value)
        return {key: _map_references(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_references(item, change) for item in value]
    return value


def without_references(value: Any) -> Any:
    """The JSON value with every reference replaced by the same placeholder."""
    return _map_references(value, lambda _: {"$ref": ""})


def dataclass_fields(names: Iterable[str]) -> dict[str, dataclasses.Field[Any]]:
    """Lets ``dataclasses.replace`` and the like work for a class that is not a dataclass."""
    twin = dataclasses.make_dataclass("twin", names)
    return {field.name: field for field in dataclasses.fields(twin)}


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a plan.

    An argument, or any value inside one, may be ``{"$ref": id}``: the output of the earlier call
    with that id, or with ``"path"`` a part of it. A text around a reference is
    ``{"$join": ["Notes: ", {"$ref": "2"}]}``.

    >>> ToolCall("2", "send_mail", {"to": "Ann", "body": {"$ref": "1"}}).tool
    'send_mail'

    Attributes:
        output: what the call returned, any JSON value or text; None if unknown.
        output_length: characters of the whole output, if ``output`` is only a part of it.
        step: number of the agent's message that made the call; calls of one step are parallel.
            None if unknown.
        text: what the agent wrote in the message that made the call, its last 500 characters; on
            the first call of a step. None if it wrote nothing, or that is unknown.
    """

    # Creating a Struct takes a fifth of the time of a frozen dataclass.
    id: str
    tool: str
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)
    output: Any = None
    status: Status = "unknown"
    step: Annotated[int, msgspec.Meta(ge=0)] | None = None
    output_length: Annotated[int, msgspec.Meta(ge=0)] | None = None
    text: str | None = None
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @classmethod
    def from_dict(cls, record: object) -> ToolCall:
        """A call from its JSON object.

        Raises:
            InputError: a key is missing or has a value of another type.
        """
        if not is_object(record):
            raise InputError(f"a call must be a JSON object, not {kind_of(record)}")
        identifier, tool = record.get("id"), record.get("tool")
        if not isinstance(identifier, (str, int)) or identifier == "":
            raise InputError("a call has no 'id'")
        if not isinstance(tool, str) or not tool:
            raise InputError(f"call {identifier!r} has no 'tool'")
        arguments = record.get("arguments", {})
        if not is_object(arguments):
            raise InputError(f"the arguments of call {identifier!r} must be a JSON object")
        if len(record) <= 3 and ("arguments" in record or len(record) == 2):
            return cls(str(identifier), tool, arguments)  # only the keys of version 1
        status = record.get("status", "unknown")
        if status not in get_args(Status):
            raise InputError(
                f"call {identifier!r} has the unknown status {status!r}; choose one of "
                f"{', '.join(get_args(Status))}"
            )
        step, length = _number(record, "step"), _number(record, "output_length")
        text = read_text(record.get("text"), f"the 'text' of call {identifier!r}")
        output = record.get("output")
        return cls(str(identifier), tool, arguments, output, status, step, length, text)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that ``from_dict`` reads back; optional keys only where known."""
        record = {"id": self.id, "tool": self.tool, "arguments": dict(self.arguments)}
        more = {"step": self.step, "output": self.output, "output_length": self.output_length}
        more["text"] = self.text
        record.update((key, value) for key, value in more.items() if value is not None)
        if self.status != "unknown":
            record["status"] = self.status
        return record

    def references(self) -> tuple[str, ...]:
        """Ids of the calls whose outputs the arguments use, each once, in order of appearance."""
        if not self.arguments:
            return ()
        return tuple(dict.fromkeys(item.call for item in find_references(self.arguments)))


ToolCall.__dataclass_fields__ = dataclass_fields(ToolCall.__struct_fields__)


def number_calls(values: Iterable[Any], taken: Iterable[str] = (), start: int = 1) -> Iterator[Any]:
    """Give names of tools, and JSON objects of calls without an id, their positions as ids.

    A position that is an id already is replaced by the next free number. Other values stay.

    Args:
        values: the calls.
        taken: ids of other calls.
        start: position of the first value.
    """
    values = list(values)
    if all(isinstance(value, dict) and "id" in value for value in values):
        yield from values
        return
    ids = {str(value["id"]) for value in values if isinstance(value, Mapping) and "id" in value}
    ids |= {value.id for value in values if isinstance(value, ToolCall)} | set(taken)
    free = 0
    for position, value in enumerate(values, start):
        is_name = isinstance(value, str)
        if not is_name and (not isinstance(value, Mapping) or "id" in value):
            yield value
            continue
        free = max(free + 1, position)
        while str(free) in ids:
            free += 1
        yield ToolCall(str(free), value) if is_name else {"id": str(free), **value}


def in_sequence(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Calls with tool names only, each as a step: their list is their order.

    Calls with arguments or steps stay as they are. So does a single call.
    """
    if len(calls) < 2 or any(call.arguments or call.step is not None for call in calls):
        return calls
    return tuple(
        msgspec.structs.replace(call, step=position) for position, call in enumerate(calls, start=1)
    )


def renumber_calls(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """The calls of a plan with ids from 1, as in runs, and references by these."""
    ids = {call.id: str(position) for position, call in enumerate(calls, start=1)}
    return [rename_call(call, ids) for call in calls]


def rename_call(call: ToolCall, ids: Mapping[str, str]) -> ToolCall:
    """The call with its new id, and with references by the new ids of other calls."""

    def rename(reference: Mapping[str, Any]) -> dict[str, Any]:
        return {**reference, "$ref": ids.get(str(reference["$ref"]), reference["$ref"])}

    arguments = _map_references(call.arguments, rename)
    return msgspec.structs.replace(call, id=ids[call.id], arguments=arguments)


def check_pointers(calls: Iterable[ToolCall], earlier: Iterable[ToolCall] = ()) -> None:
    """Check that the paths of references exist in the outputs that are known in full.

    Args:
        calls: whose references are checked.
        earlier: other calls that they may refer to.

    Raises:
        InputError: a path does not exist, or is not a JSON Pointer.
    """
    outputs = {call.id: call for call in earlier}
    for call in calls:
        for reference in find_references(call.arguments):
            if reference.path is None:
                continue
            source = outputs.get(reference.call)
            try:
                if reference.path[:1] not in ("", "/"):
                    raise LookupError("a pointer begins with '/'")
                if source and source.output_length is None and source.output is not None:
                    resolve_pointer(source.output, reference.path)
            except LookupError as error:
                raise InputError(
                    f"call {call.id!r} refers to {reference.path!r} in the output of "
                    f"{reference.call!r}, which does not name a part of it"
                ) from error
        outputs[call.id] = call


def is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8, without half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def check_text(text: str, what: str) -> None:
    """Check that a text can be written as UTF-8.

    Raises:
        InputError: it has half of a surrogate pair.
    """
    if not is_text(text):
        raise InputError(f"{what} {text!r} has half of a surrogate pair, which is not text")


def read_text(text: object, what: str) -> str | None:
    """The end of what an agent wrote before a call; None if there are no words.

    Args:
        text: None if unknown.
        what: its name in errors.

    Raises:
        InputError: it is not text.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise InputError(f"{what} must be text, not {kind_of(text)}")
    check_text(text := last_words(text), what)
    return text or None


def _number(record: Mapping[str, Any], key: str) -> int | None:
    value = record.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise InputError(f"the {key!r} of call {record['id']!r} must be a whole number from 0")
    return value


def kind_of(value: object) -> str:
    """The name of the type of a JSON value in errors."""
    return "null" if value is None else type(value).__name__
