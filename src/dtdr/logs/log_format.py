"""The interface of log formats, which read logs as events in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dtdr.conversation.events import LoggedRun
from dtdr.conversation.values import as_mapping, decode_value, first_of
from dtdr.data import json_codec
from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.errors import InputError


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
        plain = [_plain_name(definition) for definition in definitions]
        if all(name in self.by_name for name in plain):  # most requests repeat known tools
            self._last, self._names = definitions, plain
            return self._names
        self._last, self._names = definitions, []
        for definition in _each_definition(definitions):
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


def _plain_name(definition: object) -> str:
    """The name in a definition of chat completions; empty in one of another shape."""
    function = definition.get("function") if isinstance(definition, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema", "inputSchema", "input_schema")


def _each_definition(definitions: list[Any]) -> Iterator[dict[str, Any]]:
    """Definitions as JSON objects, also those of Gemini and Bedrock, which have another inside."""
    for definition in definitions:
        definition = decode_value(definition)
        if not isinstance(definition, dict):
            continue
        inner = first_of(definition, "function_declarations", "functionDeclarations")
        if isinstance(inner, list):
            yield from _each_definition(inner)
            continue
        definition = first_of(definition, "toolSpec") or definition
        schema = first_of(definition, *_SCHEMAS)
        if isinstance(schema, dict):
            yield {**definition, "parameters": schema.get("json", schema)}
        elif isinstance(definition, dict):
            yield definition


UNUSABLE = (InputError, RecursionError, TypeError, AttributeError, LookupError, ValueError)
"""Errors of records of another shape: logs contain whatever a program wrote, such as a number in
the place of a list. Readers explain what they know is wrong with an InputError."""

DEFAULT_BYTES = 64_000_000
"""Some thousand open conversations of 20 kB."""


@dataclass(slots=True)
class Group:
    """Records of one conversation or run, where the last is from, and the name if asked for."""

    payloads: list[bytes]
    size: int
    origin: tuple[int, int]
    name: str = ""


class Window:
    """Open groups, the least recently extended first; the oldest leave if over ``budget`` bytes."""

    def __init__(self, budget: int = DEFAULT_BYTES) -> None:
        self.budget = budget
        self.size = 0
        self.on_leave: Callable[[str], None] | None = None
        self.name = ""  # of the group of the record that is being filed
        self._groups: OrderedDict[str, Group] = OrderedDict()
        self._finished: list[tuple[str, Group]] = []

    def append(self, key: str, payload: bytes, origin: tuple[int, int]) -> None:
        """Add a record to a group, which may be new."""
        group = self._groups.setdefault(key, Group([], 0, origin))
        group.payloads.append(payload)
        group.size += len(payload)
        group.origin = origin
        group.name = self.name or group.name
        self.size += len(payload)
        self._groups.move_to_end(key)

    def put(self, key: str, payloads: list[bytes], origin: tuple[int, int]) -> None:
        """Begin a group, or replace all its records."""
        if (former := self._groups.pop(key, None)) is not None:
            self.size -= former.size
        for payload in payloads:
            self.append(key, payload, origin)

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
    """Reads one format: ``add`` files a record in the window under its conversation or run.

    The importer calls ``runs`` for a group that leaves the window.

    Attributes:
        name: what users type.
        title: what it is.
        default_query: the query of a run if the format records no user.
        read_file: reads the records of a file; None for JSON.
        spans_files: why a file cannot be read without the others; empty if it can.
        group_by: key that names the group of a record; empty for the usual ones.
        needs: what its records have, for an error about a log that has it not.
        ignored: kinds of records that are known and say nothing of messages and calls.
        unknown: kinds of records, messages and parts that are not read.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    default_query: ClassVar[str] = ""
    needs: ClassVar[str] = ""
    read_file: ClassVar[Any] = None
    spans_files: ClassVar[str] = "a conversation may continue in another file"

    def __init__(self, window: Window) -> None:
        self.window = window
        self.group_by = ""
        self.tools = ToolTable()
        self.counts: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()

    def decode(self, line: bytes) -> Any:
        """The record of a line; None for a line to skip; ValueError if it is not JSON."""
        return json_codec.loads(line)

    @classmethod
    @abstractmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether a decoded record looks like one of this format; may raise if it is another."""

    @classmethod
    def lacks(cls, record: Any) -> str:
        """Why a record that resembles this format is not of it; empty if it does not."""
        return ""

    @abstractmethod
    def add(self, record: Any, raw: bytes, origin: tuple[int, int]) -> None:
        """File a record, with its bytes and its origin (input file, line or item) in the window.

        Raises:
            InputError: it is not a record of this format.
        """

    @abstractmethod
    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The runs of a finished group.

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
    spans_files: ClassVar[str] = ""

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has a query and calls."""
        return isinstance(record, dict) and "query" in record and "calls" in record

    def add(self, record: Any, raw: bytes, origin: tuple[int, int]) -> None:
        """Pass a demonstration on at once; see ``LogFormat.add``."""
        key = f"{origin[0]}/{origin[1]}"
        self.window.put(key, [raw], origin)
        self.window.finish(key)

    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The demonstration of a line."""
        demonstration = Demonstration.from_dict(json_codec.loads(payloads[0]))
        yield LoggedRun(demonstration.id, [], demonstration=demonstration)


_SUCCESSES = ("success", "is_success", "resolved", "passed", "pass")


def run_failed(record: Mapping[str, Any]) -> bool:
    """Whether a record says that its run as a whole failed.

    Signs are a ``reward`` of 0 or less, ``success`` (``passed``, ``resolved``) false, or an
    ``outcome`` that is a failure, in the record, its ``metadata``, ``reward_info`` or ``result``;
    and a ``feedback`` with a ``score`` of 0 or less.
    """
    feedback = record.get("feedback")
    scored = feedback if isinstance(feedback, list) else [feedback]
    rewards = [as_mapping(item).get("score") for item in scored]
    inner = ("metadata", "reward_info", "result", "results", "evaluation", "test_result")
    for part in (record, *(as_mapping(record.get(key)) for key in inner)):
        if any(part.get(key) is False for key in _SUCCESSES):
            return True
        if part.get("outcome") in ("failure", "failed", "error"):
            return True
        rewards.append(part.get("reward"))
    return any(isinstance(reward, (int, float)) and reward <= 0 for reward in rewards)
