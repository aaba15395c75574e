"""What a log is turned into on its way to demonstrations: traces of events in order."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dtdr import json_codec
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.tools import Tool
from dtdr.traces.window import Window


@dataclass(slots=True)
class UserMessage:
    """A user's message.

    ``joins`` when the user's message before it got no answer; ``at`` is when it was sent, in
    nanoseconds since 1970, 0 where the log does not say.
    """

    text: str
    joins: bool = False
    at: int = 0


@dataclass(slots=True)
class AssistantMessage:
    """A text of the model."""

    text: str


@dataclass(slots=True)
class TracedCall:
    """A call as a log shows it.

    ``started`` and ``ended`` are on one scale within a trace (positions of messages, or times in
    seconds): a call can have used an output only when that output's call had ended by then.
    ``step`` numbers the agent's messages that made calls, where the log has them. ``nested`` is
    what ran inside the call, such as a sub-agent, where that called tools itself.
    """

    tool: str
    arguments: Any
    started: float
    ended: float | None = None
    id: str = ""
    output: Any = None
    failed: bool = False
    step: int | None = None
    nested: tuple[Trace, ...] = ()


Event = UserMessage | AssistantMessage | TracedCall


@dataclass(slots=True)
class Trace:
    """One conversation or agent run.

    Attributes:
        id: the log's own identifier; empty where it has none.
        events: messages and calls, in the order they happened.
        earlier: what the log tells of the conversation before; no demonstrations of their own.
        given: texts that the agent was handed besides the user's messages, such as its
            instructions: what stands there was not learned from a tool.
        failed: the run as a whole ended in an error, or was judged a failure.
        unmatched: results that belong to no call, or to one that had a result already.
        at: when it began, in nanoseconds since 1970, for messages that do not say; 0: unknown.
        demonstration: set by formats whose records are demonstrations already.
    """

    id: str
    events: list[Event]
    group: str = ""
    earlier: list[Event] = field(default_factory=list)
    given: tuple[str, ...] = ()
    failed: bool = False
    salt: str = ""
    unmatched: int = 0
    at: int = 0
    demonstration: Demonstration | None = None


@dataclass
class ToolTable:
    """Tool definitions met in the logs; the first of each name is kept."""

    by_name: dict[str, Tool] = field(default_factory=dict)
    _last: Any = None

    def add(self, definitions: object) -> None:
        """Collect definitions of any provider's shape; what is not a definition is passed over."""
        if not isinstance(definitions, list) or definitions == self._last:
            return
        self._last = definitions
        for definition in definitions:
            if not isinstance(definition, dict):
                continue
            inner = definition.get("function")
            name = (inner if isinstance(inner, dict) else definition).get("name")
            if isinstance(name, str) and name and name not in self.by_name:
                try:
                    self.by_name[name] = Tool.from_dict(definition)
                except InputError:
                    self.by_name[name] = Tool(name)


class TraceFormat(ABC):
    """Reads one format: records in, groups of records that belong together, traces out.

    A format holds no more than the window lets it: ``add`` files a record under its conversation
    or trace, and the importer turns a group into traces when the window is full or the log ends.

    Attributes:
        name: what users type.
        title: what it is.
        wrappers: for exports that are one JSON object, key -> ijson prefix of the records in it.
        default_query: stands in where the format records no user.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    wrappers: ClassVar[Mapping[str, str]] = {"data": "data.item"}
    default_query: ClassVar[str] = ""

    def __init__(self, window: Window, *, idle_gap: float = 300.0) -> None:
        self.window = window
        self.idle_gap = idle_gap
        self.tools = ToolTable()
        self.counts: Counter[str] = Counter()

    def decode(self, line: bytes) -> Any:
        """The record of a line; None for a line to pass over.

        Raises:
            ValueError: the line is not JSON.
        """
        return json_codec.loads(line)

    @classmethod
    @abstractmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether a decoded record looks like one of this format."""

    @abstractmethod
    def add(self, record: Any, raw: bytes, place: tuple[int, int]) -> None:
        """File a record in the window.

        Args:
            record: the decoded record.
            raw: its bytes.
            place: number of the input file, and of the line or item in it.

        Raises:
            InputError: it is not a record of this format.
        """

    @abstractmethod
    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The traces of a finished group.

        Raises:
            InputError: what the records hold cannot be understood.
        """

    def readmit(self, key: str, payloads: list[bytes], place: tuple[int, int]) -> None:
        """Put a group back that a checkpoint saved."""
        self.window.put(key, payloads, place)


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value when it is a JSON object or a text that holds one; else an empty object."""
    value = decode_json(value)
    return value if isinstance(value, dict) else {}


def decode_json(value: Any) -> Any:
    """A JSON value that may have been written as text: ``'{"a": 1}'`` as ``{"a": 1}``."""
    if isinstance(value, str) and value[:1] in "{[" and value[-1:] in "}]":
        try:
            return json_codec.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def arguments_of(value: Any) -> dict[str, Any]:
    """Arguments as an object; anything else becomes ``{"input": value}``."""
    value = decode_json(value.strip() if isinstance(value, str) else value)
    if isinstance(value, dict):
        return dict(value)
    return {} if value is None or value == "" else {"input": value}


_TASKS = ("prompt", "task", "query", "question", "goal", "input", "instruction", "description")
"""Arguments in which a sub-agent is told what to do, the most telling first."""


def call_text(call: TracedCall) -> str:
    """What a call asks for, as the query of what ran inside it: a text, or the call as written."""
    arguments = arguments_of(call.arguments)
    texts = {key: value for key, value in arguments.items() if isinstance(value, str) and value}
    for key in _TASKS:
        if key in texts:
            return texts[key]
    if len(texts) == 1:
        return next(iter(texts.values()))
    return f"{call.tool} {json_codec.dumps(arguments).decode('utf-8', 'replace')}"


def nest(call: TracedCall, trace: Trace, name: str) -> None:
    """Put what ran inside a call there.

    Args:
        call: of the run around it.
        trace: what ran inside; without a user's message, its query is what the call asks for.
        name: an id for it that its log has no other of; empty where the log has none.
    """
    trace.id = name
    trace.failed = trace.failed or call.failed
    if not any(isinstance(event, UserMessage) for event in trace.events):
        trace.events.insert(0, UserMessage(call_text(call)))
    call.nested = (*call.nested, trace)


def digest(parts: Iterable[object], size: int = 8) -> str:
    """Hexadecimal digest of a sequence of JSON values; ``size`` in bytes."""
    state = hashlib.blake2b(digest_size=size)
    for part in parts:
        state.update(json_codec.dumps(part))
        state.update(b"\0")
    return state.hexdigest()
