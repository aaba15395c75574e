"""Chat logs of OpenAI and Anthropic: requests with or without their responses.

They repeat the whole conversation in every request: the longest request of each is kept.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dtdr.data import json_codec
from dtdr.errors import InputError
from dtdr.logs.event_streams import assemble, is_event_stream
from dtdr.logs.log_format import (
    AssistantMessage,
    Trace,
    TracedCall,
    TraceFormat,
    Window,
    as_list,
    as_mapping,
    digest,
    find_time,
    run_failed,
)
from dtdr.logs.messages import read_conversation

_REQUEST_KEYS = ("request", "body", "request_body", "kwargs", "params", "input", "inputs")
_UNSTABLE = ("thinking", "redacted_thinking")
"""Blocks that a client may leave out when it sends the conversation again."""
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

    request_key: ClassVar[str]
    response_key: ClassVar[str]

    def __init__(self, window: Window, *, idle_gap: float = 300.0) -> None:
        super().__init__(window, idle_gap=idle_gap)
        window.on_leave = self._forget
        self._last: dict[int, str] = {}
        self._inner: set[int] = set()
        self._marks: dict[str, tuple[list[int], int]] = {}
        self._next = 0
        self._filed = ""

    @abstractmethod
    def replies(self, response: Any) -> list[Any]:
        """The messages of a response, by what it has under ``response_key``."""

    def exchange(self, record: Any) -> Exchange:
        """Request and response of a record, also inside the envelopes of proxies and gateways.

        Raises:
            InputError: it is not a record of this format.
        """
        request = find_request(record, self.request_key)
        response = find_response(record, self.response_key)
        whole = as_mapping(record)
        replies = self.replies(response.get(self.response_key))
        messages = request.get(self.request_key)
        if isinstance(messages, str) and self.request_key == "input":
            messages = [{"role": "user", "content": messages}]
        elif not isinstance(messages, list):
            if not replies or self.request_key != "input":
                raise InputError(
                    f"not a record of {self.name}: it has no list of {self.request_key!r}"
                )
            messages = []
        sources = (request, response, whole)
        definitions = (part.get(key) for part in sources for key in ("tools", "functions"))
        instructions = (part.get(key) for part in sources for key in ("system", "instructions"))
        return Exchange(
            messages,
            replies,
            next(filter(None, definitions), None),
            next(filter(None, instructions), None),
            bool(response.get("truncated")),
            find_time(whole, response),
        )

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

    def conversation(self, messages: list[Any], system: Any) -> Trace:
        """The trace that messages tell."""
        return read_conversation(messages, system)

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The conversation, as its longest request or all requests of a chain tell it.

        The log has no id for it, so that it is grouped by how it begins.
        """
        messages: list[Any] = []
        system: Any = None
        offered: list[str] = []
        for payload in payloads:
            record = json_codec.loads(payload)
            exchange = self.exchange(record)
            asked = exchange.messages
            if len(payloads) > 1:  # else all have the time of the trace
                asked = [_with_time(message, exchange.at) for message in asked]
            messages += [*asked, *exchange.replies]
            system = system or exchange.system
            offered = self.tools.add(exchange.tools) or offered
        trace = self.conversation(messages, system)
        trace.failed, trace.at = run_failed(as_mapping(record)), exchange.at
        trace.offered = offered
        begin = [
            event.id if isinstance(event, TracedCall) else event.text
            for event in trace.events
            if not isinstance(event, AssistantMessage)
        ]
        trace.group = digest(begin[:4]) if begin else ""
        yield trace

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
                mark = _identity(message)
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
                if index + 1 < asked and _is_reply(compared[index + 1]):
                    return last.get(~mark)
                return None
        return None

    def _register(self, key: str, marks: list[int], asked: int) -> None:
        self._forget(key)
        self._marks[key] = (marks, asked)
        self._inner.update(marks[:-1])
        self._last[marks[-1]] = key
        if 0 < asked < len(marks):
            self._last[~marks[asked - 1]] = key

    def _forget(self, key: str) -> None:
        """Forget the beginnings of a conversation, and where it and its request ended."""
        marks, asked = self._marks.pop(key, ([], 0))
        self._inner.difference_update(marks)
        for mark in (*marks[-1:], ~marks[asked - 1] if asked else 0):
            if self._last.get(mark) == key:
                del self._last[mark]


class OpenAIChat(ConversationFormat):
    """One request a record: ``{"messages": […], "tools": […]}``, alone or with its response."""

    name: ClassVar[str] = "openai-chat"
    title: ClassVar[str] = "OpenAI chat-completions requests and responses"
    request_key: ClassVar[str] = "messages"
    response_key: ClassVar[str] = "choices"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether there are ``messages``."""
        return isinstance(find_request(record, "messages").get("messages"), list)

    def replies(self, response: Any) -> list[Any]:
        """The message of the first choice."""
        choice = response[0] if isinstance(response, list) and response else None
        message = choice.get("message") if isinstance(choice, dict) else None
        return [{"role": "assistant", **message}] if isinstance(message, dict) else []


class Anthropic(ConversationFormat):
    """One request a record: ``{"system": …, "messages": […], "tools": […]}``, or with its response.

    Results of tools come in messages of the user; a text in such a message is not a turn.
    """

    name: ClassVar[str] = "anthropic"
    title: ClassVar[str] = "Anthropic messages requests and responses"
    request_key: ClassVar[str] = "messages"
    response_key: ClassVar[str] = "content"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether there are ``messages`` and something that only Anthropic's have."""
        request = find_request(record, "messages")
        messages = request.get("messages")
        if not isinstance(messages, list):
            return False
        if any(isinstance(t, dict) and "input_schema" in t for t in as_list(request.get("tools"))):
            return True
        blocks = (b for m in messages if isinstance(m, dict) for b in as_list(m.get("content")))
        kinds = ("tool_use", "tool_result")
        if any(isinstance(block, dict) and block.get("type") in kinds for block in blocks):
            return True
        response = find_response(record, "content")
        return isinstance(response.get("content"), list) and "messages" not in response

    def replies(self, response: Any) -> list[Any]:
        """The response as a message."""
        return [{"role": "assistant", "content": response}] if isinstance(response, list) else []

    def exchange(self, record: Any) -> Exchange:
        """Request and response; see ``ConversationFormat.exchange``."""
        exchange = super().exchange(record)
        first = exchange.messages[0] if exchange.messages else None
        if isinstance(first, dict) and "tool_calls" in first:
            raise InputError("this is a chat-completions record; import it as openai-chat")
        return exchange


def _identity(message: Any) -> object:
    """What a message is compared by: role, text, calls; None for instructions and reasoning."""
    if not isinstance(message, dict):
        raise InputError("a message is not a JSON object")
    role = message.get("role")
    kind = message.get("type", "message")
    if role in ("system", "developer") or kind == "reasoning":
        return None
    if kind != "message" and role is None:  # an item of the responses API
        name = str(message.get("call_id") or message.get("id"))
        return (str(kind), name, str(message.get("name")), str(message.get("arguments")))
    content = message.get("content")
    if not isinstance(content, str):
        content = _blocks(content)
    calls = message.get("tool_calls") or message.get("function_call")
    return (role, content, _calls(calls) if calls else message.get("tool_call_id"))


def _blocks(content: Any) -> object:
    blocks = [block for block in as_list(content) if isinstance(block, dict)]
    if len(blocks) == 1 and isinstance(text := blocks[0].get("text"), str):
        return text
    kept = tuple(_block(block) for block in blocks if block.get("type") not in _UNSTABLE)
    return kept or ""


def _block(block: Mapping[str, Any]) -> object:
    identifier = block.get("id") or block.get("tool_use_id")
    if isinstance(identifier, str):
        return (block.get("type"), identifier, str(block.get("input")) if "input" in block else "")
    text = block.get("text")
    return text if isinstance(text, str) else str(block.get("type"))


def _calls(calls: Any) -> object:
    identities = []
    for call in calls if isinstance(calls, list) else [calls]:
        if isinstance(call, dict):
            function = call.get("function")
            inner = function if isinstance(function, dict) else call
            values = (call.get("id"), inner.get("name"), inner.get("arguments"))
            identities.append(tuple(map(str, values)))
    return tuple(identities)


def _is_reply(message: Any) -> bool:
    """Whether the model wrote a message or an item of the responses API."""
    if "role" in message:
        return bool(message["role"] == "assistant")
    return not str(message.get("type", "_output")).endswith("_output")


def _with_time(message: Any, at: int) -> Any:
    """A message of a request that came at a time, which the message itself does not say."""
    has_role = isinstance(message, dict) and "role" in message
    return {"timestamp": at, **message} if has_role else message


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
