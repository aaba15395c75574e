"""Finds the messages in a request or a response of any API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dtdr.conversation.values import as_list, as_text, decode_value, each_object, first_of

_LISTS = ("messages", "contents", "new_message", "input_messages", "chat_history", "items")
_TEXTS = """input question query prompt text task inputs contents user_input""".split()  # noqa: SIM905
_INSIDE = ("inputs", "input", "request", "kwargs", "body", "llm_request", "data")
_INSTRUCTIONS = ("system", "instructions", "system_instruction", "systemInstruction")
_SPEAKER = re.compile(r"^(system|developer|user|assistant|tool|human|ai): ", re.MULTILINE)
_DEEPEST = 4


def message_list(value: Any) -> list[Any]:
    """Messages as a list: of one message, a list, or LangChain's list of lists."""
    if isinstance(value, dict):
        return [value]
    if value and all(isinstance(item, list) for item in as_list(value)):
        return [message for batch in as_list(value) for message in batch]
    return as_list(value)


def asked_messages(value: Any, depth: int = 0) -> list[Any]:
    """The messages of a request, also of a chain's or an agent's input; empty if it has none.

    A text is the user's; one with a speaker before each paragraph is several messages.
    """
    value = decode_value(value)
    if isinstance(value, str):
        return _spoken(value)
    if isinstance(value, list):
        return [item for item in message_list(value) if isinstance(item, (dict, list))]
    if not isinstance(value, dict) or depth == _DEEPEST:
        return []
    if is_message(value):
        return [value]
    system = first_of(value, *_INSTRUCTIONS) or first_of(value.get("config"), *_INSTRUCTIONS)
    begin = [{"role": "system", "content": system}] if system else []
    for key in _LISTS:
        inner = decode_value(value.get(key))
        if isinstance(inner, (list, dict)) and (messages := asked_messages(inner, depth + 1)):
            return [*begin, *messages]
    for key in _TEXTS:
        inner = decode_value(value.get(key))
        if isinstance(inner, str) and inner.strip():
            return [*begin, {"role": "user", "content": inner}]
    for key in _INSIDE:
        if messages := asked_messages(_object_in(value.get(key)), depth + 1):
            return [*begin, *messages]
    return []


def replied_messages(value: Any, depth: int = 0) -> list[Any]:
    """The messages of a response; of several choices, the first."""
    value = decode_value(value)
    if isinstance(value, str):
        return (
            [{"role": "assistant", "content": value}] if value.strip() not in ("", "None") else []
        )
    if isinstance(value, list):
        return [item.get("message", item) for item in each_object(message_list(value))]
    if not isinstance(value, dict) or depth == _DEEPEST:
        return []
    for key in ("choices", "candidates"):
        if options := as_list(value.get(key)):
            return _in_assistant(first_of(options[0], "message", "content", "text", "delta"))
    if generations := as_list(value.get("generations")):
        return [i["message"] for i in each_object(message_list(generations)) if "message" in i][:1]
    if is_message(value) or isinstance(value.get("content"), (list, str)):
        return _in_assistant(value)
    for key in ("messages", "output", "message", "result", "response", "outputs"):
        inner = decode_value(value.get(key))
        if isinstance(inner, (list, dict)) and (messages := replied_messages(inner, depth + 1)):
            return messages
    return []


def offered_tools(value: Any) -> list[Any]:
    """The definitions of tools in a request."""
    value = decode_value(value)
    config = first_of(value, "config", "toolConfig", "tool_config", "model_request_parameters")
    for part in (value, first_of(value, *_INSIDE), config):
        tools = first_of(part, "tools", "functions", "function_tools", "tool_definitions")
        if isinstance(tools, list):
            return tools
    return []


def is_message(value: Mapping[str, Any]) -> bool:
    """Whether an object says whose message it is, and has content of any kind."""
    if value.get("type") == "constructor" and isinstance(value.get("kwargs"), dict):
        return True
    speaker = first_of(value, "role", "from", "sender", "type", "kind", "author")
    contents = ("content", "parts", "data", "value", "blocks", "tool_calls", "toolCalls", "message")
    return isinstance(speaker, str) and any(key in value for key in contents)


def _in_assistant(value: Any) -> list[Any]:
    if isinstance(value, str):
        value = {"content": value}
    if not isinstance(value, dict):
        return []
    return [{"role": "assistant", **value} if "type" not in value or "content" in value else value]


def _object_in(value: Any) -> Any:
    value = decode_value(value)
    return value if isinstance(value, dict) else None


def _spoken(text: str) -> list[Any]:
    """A text as the user's message, or as the messages of the speakers that it names."""
    if _SPEAKER.match(text) is None:
        return [{"role": "user", "content": text}] if text.strip() else []
    pieces = _SPEAKER.split(text)[1:]
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    return [
        {"role": role, "content": said.strip()} for role, said in pairs if as_text(said).strip()
    ]
