"""Chat logs of OpenAI and Anthropic: requests with or without their responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dtdr.errors import InputError
from dtdr.traces.base import as_mapping, decode_json
from dtdr.traces.conversations import ConversationFormat, Exchange, find_request, find_response
from dtdr.traces.event_streams import assemble, is_event_stream
from dtdr.traces.times import find_time

_UNSTABLE = ("thinking", "redacted_thinking")
"""Blocks that a client may leave out when it sends the conversation again."""


class OpenAIChat(ConversationFormat):
    """One request a record: ``{"messages": […], "tools": […]}``, alone or beside its response."""

    name: ClassVar[str] = "openai-chat"
    title: ClassVar[str] = "OpenAI chat-completions requests and responses"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether there are ``messages``."""
        return isinstance(find_request(record, "messages").get("messages"), list)

    def exchange(self, record: Any) -> Exchange:
        """Request and response, also inside the envelopes of proxies and gateways.

        Raises:
            InputError: there are no ``messages``.
        """
        request = find_request(record, "messages")
        messages = request.get("messages")
        if not isinstance(messages, list):
            raise InputError("not a chat-completions record: it has no list of 'messages'")
        response = find_response(record, "choices")
        choices = response.get("choices")
        replies: list[Any] = []
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            message = choices[0].get("message")
            if isinstance(message, dict):
                replies = [{"role": "assistant", **message}]
        tools = request.get("tools") or request.get("functions")
        if tools is None and isinstance(record, dict):
            tools = record.get("tools")
        is_truncated, at = bool(response.get("truncated")), find_time(as_mapping(record), response)
        return Exchange(messages, replies, tools, is_truncated=is_truncated, at=at)

    def mark(self, message: Any) -> object:
        """Role, text, and ids, names and arguments of calls."""
        if not isinstance(message, dict):
            raise InputError("a message is not a JSON object")
        role = message.get("role")
        if role in ("system", "developer"):
            return None
        content = message.get("content")
        if not isinstance(content, str):
            content = _parts(content)
        calls = message.get("tool_calls") or message.get("function_call")
        if calls:
            return (role, content, _calls(calls))
        return (role, content, message.get("tool_call_id"))


class Anthropic(ConversationFormat):
    """One request a record: ``{"system": …, "messages": […], "tools": […]}``, or with its response.

    Results of tools come in messages of the user; a text beside them is not a turn of its own.
    """

    name: ClassVar[str] = "anthropic"
    title: ClassVar[str] = "Anthropic messages requests and responses"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether there are ``messages`` and something that only Anthropic's have."""
        request = find_request(record, "messages")
        messages, tools = request.get("messages"), request.get("tools")
        if not isinstance(messages, list):
            return False
        if isinstance(tools, list) and any(
            isinstance(tool, dict) and "input_schema" in tool for tool in tools
        ):
            return True
        blocks = [
            block
            for message in messages
            if isinstance(message, dict) and isinstance(message.get("content"), list)
            for block in message["content"]
            if isinstance(block, dict)
        ]
        if any(block.get("type") in ("tool_use", "tool_result") for block in blocks):
            return True
        response = find_response(record, "content")
        return isinstance(response.get("content"), list) and "messages" not in response

    def exchange(self, record: Any) -> Exchange:
        """Request and response, also inside the envelopes of proxies and gateways.

        Raises:
            InputError: there are no ``messages``.
        """
        request = find_request(record, "messages")
        messages = request.get("messages")
        if not isinstance(messages, list):
            raise InputError("not an Anthropic record: it has no list of 'messages'")
        if messages and isinstance(messages[0], dict) and "tool_calls" in messages[0]:
            raise InputError("this is a chat-completions record; import it as openai-chat")
        response = find_response(record, "content")
        content = response.get("content")
        replies = [{"role": "assistant", "content": content}] if isinstance(content, list) else []
        return Exchange(
            messages,
            replies,
            request.get("tools"),
            request.get("system"),
            bool(response.get("truncated")),
            find_time(as_mapping(record), response),
        )

    def mark(self, message: Any) -> object:
        """Role and, block by block, text, ids and arguments."""
        if not isinstance(message, dict):
            raise InputError("a message is not a JSON object")
        content = message.get("content")
        role = message.get("role")
        if role == "system":
            return None
        if isinstance(content, str):
            return (role, content)
        blocks = [block for block in content or () if isinstance(block, dict)]
        if len(blocks) == 1 and isinstance(text := blocks[0].get("text"), str):
            return (role, text)
        return (role, *(_block(block) for block in blocks if block.get("type") not in _UNSTABLE))


class Pairs(ConversationFormat):
    """What went into a model and what came out: ``{"input": …, "output": …}``.

    The input may be a text, messages, or a request; the output a text, a message, messages, calls,
    or a response of any provider.
    """

    name: ClassVar[str] = "pairs"
    title: ClassVar[str] = "inputs and outputs of model calls"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has an input and an output."""
        return isinstance(record, dict) and any(
            key in record and f"{key[:-5]}output{key[5:]}" in record for key in ("input", "inputs")
        )

    def exchange(self, record: Any) -> Exchange:
        """Messages in and out.

        Raises:
            InputError: there is no input or no output.
        """
        if not self.recognizes(record):
            raise InputError("not a pair: it has no 'input' and 'output'")
        entered = decode_json(record.get("input", record.get("inputs")))
        left = decode_json(record.get("output", record.get("outputs")))
        tools = record.get("tools")
        system: Any = None
        if isinstance(entered, dict):
            tools = entered.get("tools") or entered.get("functions") or tools
            system = entered.get("system")
            texts = (entered.get(key) for key in ("messages", "input", *_QUESTIONS))
            entered = next((value for value in texts if value), "")
        at = find_time(record, as_mapping(left))
        return Exchange(_messages(entered, "user"), _replies(left), tools, system, at=at)

    def mark(self, message: Any) -> object:
        """Role, text, calls and results."""
        if not isinstance(message, dict):
            raise InputError("a message is not a JSON object")
        if message.get("role") in ("system", "developer"):
            return None
        return str(sorted((key, str(value)) for key, value in message.items()))


_QUESTIONS = ("question", "query", "prompt", "text")


def _messages(value: Any, role: str) -> list[Any]:
    if isinstance(value, str):
        return [{"role": role, "content": value}] if value.strip() else []
    if isinstance(value, dict):
        return [value]
    items = value if isinstance(value, list) else []
    return [item if isinstance(item, dict) else {"role": role, "content": item} for item in items]


def _replies(value: Any) -> list[Any]:
    """The messages that an output holds."""
    if is_event_stream(value):
        value = assemble(value)
    if isinstance(value, dict):
        choices = value.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            value = choices[0].get("message")
        elif isinstance(value.get("messages"), list):
            value = value["messages"]
    if isinstance(value, dict):
        return [{"role": "assistant", **value}]
    if isinstance(value, list) and value and all(_is_call(item) for item in value):
        calls = [{**item, "name": item.get("name", item.get("tool"))} for item in value]
        return [{"role": "assistant", "content": None, "tool_calls": calls}]
    return _messages(value, "assistant")


def _is_call(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and "role" not in item
        and ("function" in item or isinstance(item.get("name", item.get("tool")), str))
    )


def _parts(content: Any) -> object:
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else str(texts)


def _calls(calls: Any) -> object:
    if isinstance(calls, dict):
        return str(calls.get("name")), str(calls.get("arguments"))
    marks = []
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            function = call.get("function")
            inner = function if isinstance(function, dict) else call
            marks.append((str(call.get("id")), str(inner.get("name")), str(inner.get("arguments"))))
    return tuple(marks)


def _block(block: Mapping[str, Any]) -> object:
    identifier = block.get("id") or block.get("tool_use_id")
    if isinstance(identifier, str):
        return (block.get("type"), identifier, str(block.get("input")) if "input" in block else "")
    text = block.get("text")
    return text if isinstance(text, str) else str(block.get("type"))
