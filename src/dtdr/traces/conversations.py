"""Chat logs that repeat the whole conversation in every request: the longest of each is kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dtdr import json_codec
from dtdr.traces.base import AssistantMessage, Trace, TracedCall, TraceFormat, as_mapping, digest
from dtdr.traces.event_streams import assemble, is_event_stream
from dtdr.traces.messages import read_conversation
from dtdr.traces.window import Window

_REQUEST_KEYS = ("request", "body", "request_body", "kwargs", "params", "input", "inputs")
_RESPONSE_KEYS = ("response", "body", "response_body", "completion", "output", "outputs", "result")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request's messages and what came back, and when, in nanoseconds since 1970."""

    messages: list[Any]
    replies: list[Any]
    tools: Any = None
    system: Any = None
    is_truncated: bool = False
    at: int = 0


class ConversationFormat(TraceFormat):
    """Files requests by the conversation they belong to, without an id that says so.

    A request belongs to an open conversation when its messages begin with that conversation's;
    instructions are not compared, since many agents write the time into them. Messages are
    compared by a 64-bit hash of role, text, calls and results, so that what a log adds to them
    (``refusal``, ``cache_control``) does not matter.
    """

    wrappers: ClassVar[Mapping[str, str]] = {"data": "data.item", "items": "items.item"}

    def __init__(self, window: Window, *, idle_gap: float = 300.0) -> None:
        super().__init__(window, idle_gap=idle_gap)
        window.on_leave = self._forget
        self._last: dict[int, str] = {}
        self._inner: set[int] = set()
        self._marks: dict[str, tuple[list[int], int]] = {}
        self._next = 0
        self._filed = ""

    @abstractmethod
    def exchange(self, record: Any) -> Exchange:
        """Request and response of a record.

        Raises:
            InputError: it is not a record of this format.
        """

    @abstractmethod
    def mark(self, message: Any) -> object:
        """What a message is compared by; None for instructions, which are not compared."""

    def is_reply(self, message: Any) -> bool:
        """Whether the model wrote a message."""
        return isinstance(message, dict) and message.get("role") == "assistant"

    def add(self, record: Any, raw: bytes, place: tuple[int, int]) -> None:
        """File a request with its conversation; see ``TraceFormat.add``."""
        self._filed = ""
        exchange = self.exchange(record)
        self.tools.add(exchange.tools)
        self.counts["truncated streams"] += exchange.is_truncated
        marks, asked, compared = self._chain(exchange)
        if not marks:
            self.counts["empty records"] += 1
            return
        if marks[-1] in self._inner or marks[-1] in self._last:
            self.counts["superseded requests"] += 1
            return
        key = self._find_continued(marks, asked, compared)
        if key is None:
            key = f"{self._next}"
            self._next += 1
        else:
            self.counts["superseded requests"] += 1
        self._filed = key
        self._register(key, marks, asked)
        self.window.put(key, [raw], place)

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The conversation as its longest request tells it."""
        exchange = self.exchange(json_codec.loads(payloads[-1]))
        messages = [*exchange.messages, *exchange.replies]
        yield add_group(read_conversation(messages, exchange.system), exchange.at)

    def readmit(self, key: str, payloads: list[bytes], place: tuple[int, int]) -> None:
        """Put a conversation back and learn its messages again."""
        marks, asked, _ = self._chain(self.exchange(json_codec.loads(payloads[-1])))
        self._register(key, marks, asked)
        self._next = max(self._next, int(key) + 1)
        self.window.put(key, payloads, place)

    def _chain(self, exchange: Exchange) -> tuple[list[int], int, list[Any]]:
        """Hashes of every beginning of the conversation, how many are the request's, messages.

        Messages are those that are compared, in the order of the hashes.
        """
        marks: list[int] = []
        compared: list[Any] = []
        current, asked = 0, 0
        for messages in (exchange.messages, exchange.replies):
            asked = len(marks)
            for message in messages:
                mark = self.mark(message)
                if mark is not None:
                    current = hash((current, mark))
                    marks.append(current)
                    compared.append(message)
        return marks, asked, compared

    def _find_continued(self, marks: list[int], asked: int, compared: list[Any]) -> str | None:
        """The open conversation that a request goes on with."""
        last, inner = self._last, self._inner
        for index in range(len(marks) - 1, -1, -1):
            mark = marks[index]
            if mark in last:
                return last[mark]
            if mark in inner:
                # The logged reply and the one in the next request may differ in their wording:
                # where only the reply is new, the conversation is the one that asked for it.
                if index + 1 < asked and self.is_reply(compared[index + 1]):
                    return last.get(~mark)
                return None
        return None

    def _register(self, key: str, marks: list[int], asked: int) -> None:
        former, former_asked = self._marks.get(key, ([], 0))
        start = len(former)
        if former and marks[start - 1 : start] == former[-1:]:
            # The usual case, the same conversation and more: its inner marks stay.
            self._unlist(key, former, former_asked)
            self._inner.add(former[-1])
        else:
            self._forget(key)
            start = 0
        self._marks[key] = (marks, asked)
        self._inner.update(marks[start:-1])
        self._last[marks[-1]] = key
        if 0 < asked < len(marks):
            self._last[~marks[asked - 1]] = key

    def _forget(self, key: str) -> None:
        if key in self._marks:
            marks, asked = self._marks.pop(key)
            self._inner.difference_update(marks)
            self._unlist(key, marks, asked)

    def _unlist(self, key: str, marks: list[int], asked: int) -> None:
        """Forget where a conversation ended: at its last mark, and at that of its request."""
        for mark in (marks[-1], ~marks[asked - 1] if asked else 0):
            if self._last.get(mark) == key:
                del self._last[mark]


def add_group(trace: Trace, at: int) -> Trace:
    """A trace without an id of its own, grouped by how its conversation begins.

    Args:
        trace: of a conversation.
        at: when its last request was made, in nanoseconds since 1970; 0: unknown.
    """
    trace.at = at
    begin = [
        event.id if isinstance(event, TracedCall) else event.text
        for event in trace.events
        if not isinstance(event, AssistantMessage)
    ]
    trace.group = digest(begin[:4]) if begin else ""
    return trace


def find_part(record: Any, keys: tuple[str, ...], wanted: tuple[str, ...]) -> Mapping[str, Any]:
    """The object that has one of the wanted keys: the record, or below one of ``keys`` in it."""
    level = [record]
    for _ in range(3):
        below: list[Any] = []
        for candidate in level:
            value = assemble(candidate) if is_event_stream(candidate) else as_mapping(candidate)
            if any(value.get(key) is not None for key in wanted):
                return value
            below.extend(value[key] for key in keys if value.get(key))
        level = below
    return {}


def find_request(record: Any, *wanted: str) -> Mapping[str, Any]:
    """Where a record keeps its request, under any of the names that proxies and SDKs use."""
    return find_part(record, _REQUEST_KEYS, wanted)


def find_response(record: Any, *wanted: str) -> Mapping[str, Any]:
    """Where a record keeps its response."""
    whole = as_mapping(record)
    for key in _RESPONSE_KEYS:
        if response := find_part(whole.get(key), _RESPONSE_KEYS, wanted):
            return response
    return whole if any(whole.get(key) is not None for key in wanted) else {}
