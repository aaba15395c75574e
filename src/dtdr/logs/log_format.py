"""What a format makes of a log: traces of events in order."""

from __future__ import annotations

import contextlib
import hashlib
import math
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from dtdr.data import json_codec
from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.errors import InputError


@dataclass(slots=True)
class UserMessage:
    """A user's message.

    ``joins`` if the user's message before it got no answer. ``at`` is when it was sent, in
    nanoseconds since 1970; 0 if unknown.
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
    """A call in a log.

    ``started`` and ``ended`` are on one scale within a trace (positions of messages, or times): a
    call can only use outputs of calls that had ended when it started. ``step`` numbers the agent's
    messages with calls; None if unknown. ``nested`` is what ran inside the call and called tools.
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
        id: the log's identifier; empty if it has none.
        events: messages and calls, in order.
        earlier: the conversation before, which becomes no demonstrations.
        given: instructions: a value in them does not come from a tool.
        failed: the run as a whole ended in an error, or was judged a failure.
        unmatched: results of no call, or of a call that has a result already.
        at: when it began, in nanoseconds since 1970; 0 if unknown.
        demonstration: set by formats whose records are demonstrations.
        offered: names of the tools that its requests list.
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
    offered: Collection[str] = ()


@dataclass
class ToolTable:
    """Tool definitions in the logs; the first of each name is kept."""

    by_name: dict[str, Tool] = field(default_factory=dict)
    _last: Any = None
    _names: list[str] = field(default_factory=list)

    def add(self, definitions: object) -> list[str]:
        """Collect definitions of any provider's shape, skip anything else; returns the names."""
        if not isinstance(definitions, list):
            return []
        if definitions == self._last:
            return self._names
        self._last, self._names = definitions, []
        for definition in definitions:
            name = first_of(first_of(definition, "function") or definition, "name")
            if not isinstance(name, str) or not name:
                continue
            self._names.append(name)
            if name not in self.by_name:
                try:
                    self.by_name[name] = Tool.from_dict(definition)
                except InputError:
                    self.by_name[name] = Tool(name)
        return self._names


DEFAULT_BYTES = 64_000_000
"""Some thousand open conversations of 20 kB."""


@dataclass(slots=True)
class Group:
    """Records of one conversation or trace, and the place of the last."""

    payloads: list[bytes]
    size: int
    place: tuple[int, int]


class Window:
    """Open groups, the least recently extended first; the oldest leave if over ``budget`` bytes."""

    def __init__(self, budget: int = DEFAULT_BYTES) -> None:
        self.budget = budget
        self.size = 0
        self.on_leave: Callable[[str], None] | None = None
        self._groups: OrderedDict[str, Group] = OrderedDict()
        self._finished: list[tuple[str, Group]] = []

    def append(self, key: str, payload: bytes, place: tuple[int, int]) -> None:
        """Add a record to a group, which may be new."""
        group = self._groups.setdefault(key, Group([], 0, place))
        group.payloads.append(payload)
        group.size += len(payload)
        group.place = place
        self.size += len(payload)
        self._groups.move_to_end(key)

    def put(self, key: str, payloads: list[bytes], place: tuple[int, int]) -> None:
        """Begin a group, or replace all its records."""
        if (former := self._groups.pop(key, None)) is not None:
            self.size -= former.size
        for payload in payloads:
            self.append(key, payload, place)

    def payloads(self, key: str) -> list[bytes]:
        """The records of an open group."""
        return self._groups[key].payloads

    def finish(self, key: str) -> None:
        """Let a group leave now."""
        group = self._groups.pop(key)
        self.size -= group.size
        if self.on_leave is not None:
            self.on_leave(key)
        self._finished.append((key, group))

    def pop_finished(self, *, everything: bool = False) -> Iterator[tuple[str, Group]]:
        """Groups that are finished or over budget; all of them if ``everything``."""
        while self._groups and (everything or self.size > self.budget):
            self.finish(next(iter(self._groups)))
        done, self._finished = self._finished, []
        yield from done


class LogFormat(ABC):
    """Reads one format: ``add`` files a record in the window under its conversation or trace.

    The importer calls ``traces`` for a group that leaves the window.

    Attributes:
        name: what users type.
        title: what it is.
        default_query: the query of a run if the format records no user.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    default_query: ClassVar[str] = ""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.tools = ToolTable()
        self.counts: Counter[str] = Counter()

    def decode(self, line: bytes) -> Any:
        """The record of a line; None for a line to skip; ValueError if it is not JSON."""
        return json_codec.loads(line)

    @classmethod
    @abstractmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether a decoded record looks like one of this format; may raise if it is another."""

    @abstractmethod
    def add(self, record: Any, raw: bytes, place: tuple[int, int]) -> None:
        """File a record, with its bytes and its place (input file, line or item) in the window.

        Raises:
            InputError: it is not a record of this format.
        """

    @abstractmethod
    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The traces of a finished group.

        Raises:
            InputError: the records cannot be used.
        """


class Canonical(LogFormat):
    """The project's own ``demonstrations.jsonl``: to scrub it, to check it, or to join several.

    References, links, steps and outcome stay as they are. One record is one run, which leaves the
    window at once.
    """

    name: ClassVar[str] = "dtdr"
    title: ClassVar[str] = "demonstrations.jsonl, the canonical format"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has a query and calls."""
        return isinstance(record, dict) and "query" in record and "calls" in record

    def add(self, record: Any, raw: bytes, place: tuple[int, int]) -> None:
        """Pass a demonstration on at once; see ``LogFormat.add``."""
        key = f"{place[0]}/{place[1]}"
        self.window.put(key, [raw], place)
        self.window.finish(key)

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The demonstration of a line."""
        demonstration = Demonstration.from_dict(json_codec.loads(payloads[0]))
        yield Trace(demonstration.id, [], demonstration=demonstration)


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, or a text with one; else an empty object."""
    value = decode_json(value)
    return value if isinstance(value, dict) else {}


def decode_json(value: Any) -> Any:
    """A JSON object or list that may be written as text: ``'{"a": 1}'`` as ``{"a": 1}``."""
    if isinstance(value, str) and value[:1] in "{[" and value[-1:] in "}]":
        with contextlib.suppress(ValueError, RecursionError):
            return json_codec.loads(value)
    return value


def first_of(record: object, *keys: str) -> Any:
    """The first value that an object has under one of these keys; None if there is none."""
    if isinstance(record, dict):
        for key in keys:  # faster than a generator
            if (value := record.get(key)) is not None:
                return value
    return None


def as_text(value: object) -> str:
    """The value if it is a text; else an empty one."""
    return value if isinstance(value, str) else ""


def as_list(value: object) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


_TIME_KEYS = """start_time startTime request_created_at created_at createdAt created timestamp
    @timestamp time ts date""".split()  # noqa: SIM905  # as prose
"""Keys of the time of a record or message; a start before any other moment."""

_EARLIEST = 946_684_800 * 10**9
"""The year 2000: smaller numbers count from the start of a run."""
_LATEST = 10**20
"""The year 5138."""


def nanoseconds(value: object) -> int:
    """A time as nanoseconds since 1970: ISO 8601 text, or a number of s, ms, µs or ns; else 0."""
    if isinstance(value, str):
        text = value.strip()
        if text.isdigit():
            return nanoseconds(int(text))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return 0
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1e6) * 1000
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        # 1e11 s is the year 5138 and 1e11 ms is 1973: the size gives the unit.
        for scale in (10**9, 10**6, 10**3):
            if value < 10**20 // scale:
                return int(value * scale)
        return int(value)
    return 0


def find_time(*records: Mapping[str, Any]) -> int:
    """The time of the first of several records that has one; 0 if none has.

    Durations, which have the same names in some logs, do not count.
    """
    for record in records:
        for key in _TIME_KEYS:
            if key in record and (moment := nanoseconds(record[key])) >= _EARLIEST:
                return moment
    return 0


def as_moment(time: int) -> datetime | None:
    """A time in nanoseconds as a date; None if it is not one."""
    return datetime.fromtimestamp(time / 1e9, UTC) if _EARLIEST <= time < _LATEST else None


def run_failed(record: Mapping[str, Any]) -> bool:
    """Whether a record says that its run as a whole failed.

    Signs are a ``reward`` of 0 or less, ``success`` false, or an ``outcome`` that is a failure, in
    the record or its ``metadata``; and a ``feedback`` with a ``score`` of 0 or less.
    """
    feedback = record.get("feedback")
    scored = feedback if isinstance(feedback, list) else [feedback]
    rewards = [as_mapping(item).get("score") for item in scored]
    for part in (record, as_mapping(record.get("metadata"))):
        if part.get("success") is False or part.get("outcome") in ("failure", "failed", "error"):
            return True
        rewards.append(part.get("reward"))
    return any(isinstance(reward, (int, float)) and reward <= 0 for reward in rewards)


def arguments_of(value: Any) -> dict[str, Any]:
    """Arguments as an object; anything else becomes ``{"input": value}``."""
    value = decode_json(value.strip() if isinstance(value, str) else value)
    if isinstance(value, dict):
        return dict(value)
    return {} if value is None or value == "" else {"input": value}


_TASKS = ("prompt", "task", "query", "question", "goal", "input", "instruction", "description")
"""Arguments that contain a sub-agent's task, the most specific first."""


def call_text(call: TracedCall) -> str:
    """What a call asks for, as the query of what ran inside it: a text, or the whole call."""
    arguments = arguments_of(call.arguments)
    texts = {key: value for key, value in arguments.items() if isinstance(value, str) and value}
    if task := first_of(texts, *_TASKS) or (len(texts) == 1 and next(iter(texts.values()))):
        return str(task)
    return f"{call.tool} {json_codec.dumps(arguments).decode('utf-8', 'replace')}"


def nest(call: TracedCall, trace: Trace, name: str) -> None:
    """Nest a trace in the call that it ran inside of; ``name`` is unique in the log.

    Without a user's message, its query is what the call asks for.
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
