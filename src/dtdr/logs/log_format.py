"""What a log is turned into on its way to demonstrations: traces of events in order."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from dtdr.data import json_codec
from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.errors import InputError


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
        offered: names of the tools that its requests list; empty: they list none.
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
    """Tool definitions met in the logs; the first of each name is kept."""

    by_name: dict[str, Tool] = field(default_factory=dict)
    _last: Any = None
    _names: list[str] = field(default_factory=list)

    def add(self, definitions: object) -> list[str]:
        """Collect definitions of any provider's shape; what is not a definition is passed over.

        Returns:
            The names that they have.
        """
        if not isinstance(definitions, list):
            return []
        if definitions == self._last:
            return self._names
        self._last, self._names = definitions, []
        for definition in definitions:
            if not isinstance(definition, dict):
                continue
            inner = definition.get("function")
            name = (inner if isinstance(inner, dict) else definition).get("name")
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
"""Room for some thousand open conversations of 20 kB, and well under the 300 MB of a whole run."""


@dataclass(slots=True)
class Group:
    """Records of one conversation or trace, and where the last of them stood."""

    payloads: list[bytes]
    size: int
    place: tuple[int, int]


class Window:
    """Open groups, the least recently extended first; the oldest leave when the budget is spent.

    Args:
        budget: bytes of records held at most; one group larger than that leaves at once.
    """

    def __init__(self, budget: int = DEFAULT_BYTES) -> None:
        self.budget = budget
        self.size = 0
        self.on_leave: Callable[[str], None] | None = None
        self._groups: OrderedDict[str, Group] = OrderedDict()
        self._finished: list[tuple[str, Group]] = []

    def __len__(self) -> int:
        return len(self._groups)

    def append(self, key: str, payload: bytes, place: tuple[int, int]) -> None:
        """Add a record to a group, which begins here when there is none."""
        group = self._groups.get(key)
        if group is None:
            self.put(key, [payload], place)
            return
        group.payloads.append(payload)
        group.size += len(payload)
        group.place = place
        self.size += len(payload)
        self._groups.move_to_end(key)

    def put(self, key: str, payloads: list[bytes], place: tuple[int, int]) -> None:
        """Begin a group, or replace all its records."""
        former = self._groups.pop(key, None)
        if former is not None:
            self.size -= former.size
        size = sum(map(len, payloads))
        self._groups[key] = Group(payloads, size, place)
        self.size += size

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
        """Groups that have left since the last call: finished ones, and what is over budget."""
        while self._groups and (everything or self.size > self.budget):
            self.finish(next(iter(self._groups)))
        done, self._finished = self._finished, []
        yield from done


class TraceFormat(ABC):
    """Reads one format: records in, groups of records that belong together, traces out.

    A format holds no more than the window lets it: ``add`` files a record under its conversation
    or trace, and the importer turns a group into traces when the window is full or the log ends.

    Attributes:
        name: what users type.
        title: what it is.
        default_query: the query of a run if the format records no user.
    """

    name: ClassVar[str]
    title: ClassVar[str]
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


class Canonical(TraceFormat):
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
        """Check a demonstration and pass it on at once; see ``TraceFormat.add``."""
        Demonstration.from_dict(record)
        key = f"{place[0]}/{place[1]}"
        self.window.put(key, [raw], place)
        self.window.finish(key)

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The demonstration of a line."""
        demonstration = Demonstration.from_dict(json_codec.loads(payloads[0]))
        yield Trace(demonstration.id, [], demonstration=demonstration)


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


def first_of(record: object, *keys: str) -> Any:
    """The first value that an object has under one of these keys; None if there is none."""
    if not isinstance(record, dict):
        return None
    return next((record[key] for key in keys if record.get(key) is not None), None)


def as_text(value: object) -> str:
    """The value if it is a text; else an empty one."""
    return value if isinstance(value, str) else ""


def as_list(value: object) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


_TIME_KEYS = """start_time startTime request_created_at created_at createdAt created timestamp
    @timestamp time ts date""".split()  # noqa: SIM905  # as prose
"""Where records and messages say when they were made; a start before any other moment."""

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = 946_684_800 * 10**9
"""The year 2000: what is smaller counts from the start of a run, and says nothing of the day."""
_LATEST = 10**20
"""The year 5138."""
_ENDLESS = float("inf")


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
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - _BEGIN
        return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _ENDLESS:
        # 1e11 s is the year 5138 and 1e11 ms is 1973: the size tells the unit.
        for scale in (10**9, 10**6, 10**3):
            if value < 10**20 // scale:
                return int(value * scale)
        return int(value)
    return 0


def find_time(*records: Mapping[str, Any]) -> int:
    """The time that one of several records tells, the first that does; 0 where none does.

    Durations, which have the same names in some logs, are none.
    """
    for record in records:
        for key in _TIME_KEYS:
            if key in record and (moment := nanoseconds(record[key])) >= _EARLIEST:
                return moment
    return 0


def as_moment(time: int) -> datetime | None:
    """A time in nanoseconds as a date; None where it is not one."""
    if not _EARLIEST <= time < _LATEST:
        return None
    return _BEGIN + timedelta(microseconds=time // 1000)


def run_failed(record: Mapping[str, Any]) -> bool:
    """Whether a record says that its run as a whole failed.

    It says so by a ``reward`` of 0 or less, by ``success`` false, or by an ``outcome`` that is a
    failure, itself or in its ``metadata``; or by a ``feedback`` with a ``score`` of 0 or less.
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
"""Arguments in which a sub-agent is told what to do, the most telling first."""


def call_text(call: TracedCall) -> str:
    """What a call asks for, as the query of what ran inside it: a text, or the call as written."""
    arguments = arguments_of(call.arguments)
    texts = {key: value for key, value in arguments.items() if isinstance(value, str) and value}
    if task := first_of(texts, *_TASKS) or (len(texts) == 1 and next(iter(texts.values()))):
        return str(task)
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
