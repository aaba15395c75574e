"""Chat logs of OpenAI and Anthropic: requests with or without their responses.

Every request repeats the whole conversation; the longest request of each is kept.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dtdr.conversation.assembly import assemble, positioned
from dtdr.conversation.events import AssistantMessage, LoggedCall, LoggedRun, UserMessage
from dtdr.conversation.exchanges import offered_tools
from dtdr.conversation.groups import find_group
from dtdr.conversation.injected import remove_blocks
from dtdr.conversation.items import Item, SystemMessage, ToolCallRequest, ToolResult
from dtdr.conversation.messages import items_of
from dtdr.conversation.times import find_time
from dtdr.conversation.values import (
    as_list,
    as_mapping,
    as_text,
    digest,
    each_object,
    first_of,
)
from dtdr.data import json_codec
from dtdr.errors import InputError
from dtdr.logs.log_format import LogFormat, Window, run_failed

_REQUEST_KEYS = """request body request_body kwargs params input inputs
    inputBodyJson""".split()  # noqa: SIM905  # as prose
_RESPONSE_KEYS = """response body response_body completion output outputs outputBodyJson
    result""".split()  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request's messages and the replies, and when it was made, in nanoseconds since 1970.

    ``id`` is that of the response, ``former`` that of the response before; ``group`` names the
    conversation; empty if unknown.
    """

    messages: list[Any]
    replies: list[Any]
    tools: Any
    system: Any
    at: int
    id: str
    former: str
    group: str = ""


class ConversationFormat(LogFormat):
    """Files requests by conversation, which no id names.

    A request belongs to an open conversation if its messages begin with that conversation's.
    Messages are compared by hashes of texts, calls and results, so other fields do not matter.
    Nor do instructions, since many agents write the time into them, nor injected messages, such as
    hints, which no later request has.
    """

    request_key: ClassVar[str]
    response_key: ClassVar[str]

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        window.on_leave = self._forget
        self._last: dict[int, str] = {}
        self._inner: set[int] = set()
        self._marks: dict[str, tuple[list[int], int]] = {}
        self._new_keys = map(str, itertools.count(1))

    @abstractmethod
    def replies(self, response: Any) -> list[Any]:
        """The messages in the ``response_key`` of a response."""

    def exchange(self, record: Any) -> Exchange:
        """Request and response of a record, also inside the envelopes of proxies and gateways."""
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

        def find(*keys: str) -> Any:
            values = (part.get(key) for part in (request, response, whole) for key in keys)
            return next(filter(None, values), None)

        tools = find("tools", "functions") or offered_tools(request)
        system = find("system", "instructions", "systemInstruction", "system_instruction")
        ids = as_text(response.get("id")), as_text(find("previous_response_id"))
        at, group = find_time(whole, response), find_group(record, self.group_by)
        return Exchange(messages, replies, tools, system, at, *ids, group)

    def add(self, record: Any, raw: bytes, origin: tuple[int, int]) -> None:
        """File a request with its conversation; see ``LogFormat.add``."""
        self._file(self.exchange(record), raw, origin)

    def _file(self, exchange: Exchange, raw: bytes, origin: tuple[int, int]) -> str:
        """The key of the request's conversation; empty if that has the request already."""
        self.tools.add(exchange.tools)
        marks, asked, replies = self._chain(exchange)
        if not marks:
            return ""
        if marks[-1] in self._inner or marks[-1] in self._last:
            self.counts["superseded requests"] += 1
            return ""
        known = self._find_continued(marks, asked, replies)
        self.counts["superseded requests"] += known is not None
        key = next(self._new_keys) if known is None else known
        self._register(key, marks, asked)
        self.window.put(key, [raw], origin)
        return key

    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The conversation of the longest request, or of a chain of requests.

        If the log has no name for it, it is grouped by how it begins.
        """
        messages: list[Any] = []
        system: Any = None
        offered: list[str] = []
        for payload in payloads:
            record = json_codec.loads(payload)
            exchange = self.exchange(record)
            asked = exchange.messages
            if len(payloads) > 1:  # else all have the time of the run
                at = {"timestamp": exchange.at}
                asked = [at | item if "role" in item else item for item in asked]
            messages += [*asked, *exchange.replies]
            system = system or exchange.system
            offered = self.tools.add(exchange.tools) or offered
        run = assemble(positioned(items_of(item, self.unknown) for item in messages), system)
        run.failed, run.at = run_failed(as_mapping(record)), exchange.at
        run.offered = offered
        begin = [
            event.id if isinstance(event, LoggedCall) else event.text
            for event in run.events
            if not isinstance(event, AssistantMessage)
        ]
        run.salt = exchange.group  # equal runs of two users have two ids
        run.group = exchange.group or (digest(begin[:4]) if begin else "")
        yield run

    def _chain(self, exchange: Exchange) -> tuple[list[int], int, list[bool]]:
        """Hashes of every beginning of the conversation, how many are the request's, and replies.

        The last says which messages the model wrote. Instructions, reasoning and messages of
        injected blocks alone are passed over.
        """
        marks: list[int] = []
        replies: list[bool] = []
        # Equal messages of two users are two conversations.
        current, asked = hash(exchange.group), 0
        for messages in (exchange.messages, exchange.replies):
            asked = len(marks)
            for message in messages:
                if not isinstance(message, dict):
                    raise InputError("a message is not a JSON object")
                name = message.get("tool_call_id")
                if name and isinstance(name, str):  # as its item, but faster
                    current = hash((current, name))
                    marks.append(current)
                    replies.append(False)
                    continue
                items = [item for item in items_of(message) if not _is_by_program(item)]
                if items:
                    current = hash((current, *map(_mark, items)))
                    marks.append(current)
                    replies.append(isinstance(items[0], (AssistantMessage, ToolCallRequest)))
        return marks, asked, replies

    def _find_continued(self, marks: list[int], asked: int, replies: list[bool]) -> str | None:
        """The open conversation that a request continues."""
        last, inner = self._last, self._inner
        for index in range(len(marks) - 1, -1, -1):
            mark = marks[index]
            if mark in last:
                return last[mark]
            if mark in inner:
                # The next request may repeat a reply in other words than the log. If only the
                # reply is new, it continues the conversation that asked for it.
                if index + 1 < asked and replies[index + 1]:
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
    """A request per record: ``{"messages": […], "tools": […]}``, alone or with its response."""

    name: ClassVar[str] = "openai-chat"
    title: ClassVar[str] = "OpenAI chat-completions requests and responses"
    request_key: ClassVar[str] = "messages"
    response_key: ClassVar[str] = "choices"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether there are ``messages``, and one of them can be read."""
        return _can_read(find_request(record, cls.request_key).get(cls.request_key))

    def replies(self, response: Any) -> list[Any]:
        """The message of the first choice."""
        message = first_of(next(iter(as_list(response)), None), "message")
        return [{"role": "assistant", **message}] if isinstance(message, dict) else []


class Bedrock(OpenAIChat):
    """Converse of Amazon Bedrock: messages with ``toolUse`` and ``toolResult``."""

    name: ClassVar[str] = "bedrock"
    title: ClassVar[str] = "Bedrock Converse requests and responses"
    response_key: ClassVar[str] = "output"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether there are ``messages`` with a block that only Bedrock has."""
        messages = as_list(find_request(record, "messages").get("messages"))
        reply = first_of(find_response(record, "output").get("output"), "message")
        blocks = (b for m in each_object([*messages, reply]) for b in each_object(m.get("content")))
        return any("toolUse" in block or "toolResult" in block for block in blocks)

    def replies(self, response: Any) -> list[Any]:
        """The message of the response."""
        message = first_of(response, "message")
        return [message] if isinstance(message, dict) else []


class Gemini(OpenAIChat):
    """Requests of Gemini: ``{"contents": […], "tools": […]}``, alone or with their response."""

    name: ClassVar[str] = "gemini"
    title: ClassVar[str] = "Gemini requests and responses"
    request_key: ClassVar[str] = "contents"
    response_key: ClassVar[str] = "candidates"

    def replies(self, response: Any) -> list[Any]:
        """The content of the first candidate."""
        content = first_of(next(iter(as_list(response)), None), "content")
        return [{"role": "model", **content}] if isinstance(content, dict) else []


class LangGraph(OpenAIChat):
    """States of LangGraph: ``values.messages``, or ``channel_values.messages`` of checkpoints."""

    name: ClassVar[str] = "langgraph"
    title: ClassVar[str] = "LangGraph states, histories and checkpoints"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a state with messages that can be read."""
        return _can_read(cls._state(record).get("messages"))

    @staticmethod
    def _state(record: Any) -> Mapping[str, Any]:
        inner = first_of(record, "checkpoint")
        values = first_of(record, "values", "channel_values") or first_of(inner, "channel_values")
        return as_mapping(values)

    def exchange(self, record: Any) -> Exchange:
        """The messages of a state, in the group of its thread."""
        state = super().exchange(dict(self._state(record)))
        config = as_mapping(first_of(record, "config", "checkpoint"))
        thread = first_of(first_of(config, "configurable") or config, "thread_id")
        group = find_group(record, self.group_by) if self.group_by or not thread else str(thread)
        return replace(state, group=group, at=find_time(as_mapping(record)))


class Anthropic(ConversationFormat):
    """A request per record: ``{"system": …, "messages": […], "tools": […]}``, or with its response.

    Results of tools are in messages of the user; a text in such a message is not a turn.
    """

    name: ClassVar[str] = "anthropic"
    title: ClassVar[str] = "Anthropic messages requests and responses"
    request_key: ClassVar[str] = "messages"
    response_key: ClassVar[str] = "content"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether there are ``messages`` with something that only Anthropic has."""
        request = find_request(record, "messages")
        messages = request.get("messages")
        if not isinstance(messages, list):
            return False
        if any(first_of(tool, "input_schema") for tool in as_list(request.get("tools"))):
            return True
        blocks = (block for m in messages for block in as_list(first_of(m, "content")))
        if any(first_of(block, "type") in ("tool_use", "tool_result") for block in blocks):
            return True
        response = find_response(record, "content")
        return isinstance(response.get("content"), list) and "messages" not in response

    def replies(self, response: Any) -> list[Any]:
        """The response as a message."""
        return [{"role": "assistant", "content": response}] if isinstance(response, list) else []

    def exchange(self, record: Any) -> Exchange:
        """Request and response; see ``ConversationFormat.exchange``."""
        exchange = super().exchange(record)
        if exchange.messages and first_of(exchange.messages[0], "tool_calls"):
            raise InputError("this is a chat-completions record; import it as openai-chat")
        return exchange


def _can_read(messages: Any) -> bool:
    """Whether one of the first messages of a list can be read."""
    return any(any(True for _ in items_of(message)) for message in as_list(messages)[:50])


def _is_by_program(item: Item) -> bool:
    """Whether it is an instruction, or a user's message that a program wrote, such as a hint."""
    if isinstance(item, UserMessage):
        return bool(item.text) and not remove_blocks(item.text)
    return isinstance(item, SystemMessage)


def _mark(item: Item) -> object:
    """The key to compare items by: texts, and ids of calls; their outputs may be cut."""
    if isinstance(item, ToolCallRequest):
        return item.id, item.tool, str(item.arguments)
    if isinstance(item, ToolResult):
        return item.id or str(item.output)
    return type(item), item.text


def find_part(record: Any, keys: Sequence[str], wanted: Sequence[str]) -> Mapping[str, Any]:
    """The object that has one of the wanted keys: the record, or one below ``keys`` in it."""
    level = [record]
    for _ in range(3):
        below: list[Any] = []
        for candidate in level:
            value = as_mapping(candidate)
            if any(value.get(key) is not None for key in wanted):
                return value
            below.extend(value[key] for key in keys if value.get(key))
        level = below
    return {}


def find_request(record: Any, *wanted: str) -> Mapping[str, Any]:
    """The request in a record, under any of the names that proxies and SDKs use."""
    return find_part(record, _REQUEST_KEYS, wanted)


def find_response(record: Any, *wanted: str) -> Mapping[str, Any]:
    """The response in a record."""
    whole = as_mapping(record)
    for key in _RESPONSE_KEYS:
        if response := find_part(whole.get(key), _RESPONSE_KEYS, wanted):
            return response
    return whole if any(whole.get(key) is not None for key in wanted) else {}
