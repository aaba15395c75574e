"""Reads chat messages of any provider as texts, calls and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dtdr.conversation.events import AssistantMessage, UserMessage
from dtdr.conversation.items import (
    Item,
    SystemMessage,
    ToolCallRequest,
    ToolResult,
    output_of,
    text_of,
)
from dtdr.conversation.times import find_time
from dtdr.conversation.values import as_list, as_mapping, as_text, first_of
from dtdr.data.outputs import is_marked

_ROLES = {
    **dict.fromkeys(("human", "HumanMessage", "HumanMessageChunk"), "user"),
    **dict.fromkeys(("ai", "model", "chatbot", "bot", "AIMessage", "AIMessageChunk"), "assistant"),
    **dict.fromkeys(("developer", "SystemMessage"), "system"),
    **dict.fromkeys(("function", "ToolMessage", "FunctionMessage"), "tool"),
}
_CALL_PARTS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "tool-call")
_UNMARKED_PART = "tool_call_response"  # of OpenTelemetry, which marks the span instead
_RESULT_PARTS = ("tool_result", _UNMARKED_PART, "tool-result")
_RESULT_KEYS = ("content", "response", "result", "output")


def items_of(message: object) -> Iterator[Item]:
    """The contents of a message, in order.

    Reads messages of OpenAI, Anthropic, Gemini, LangChain (with or without constructor) and the
    Vercel AI SDK, and OpenTelemetry ``parts``.
    """
    if isinstance(message, list) and len(message) == 2 and isinstance(message[0], str):
        message = {"role": message[0], "content": message[1]}
    if not isinstance(message, dict):
        return
    is_langchain = "role" not in message and message.get("type") in ("constructor", *_ROLES, "tool")
    message = _unwrap(message)
    role = message.get("role", message.get("type", ""))
    role = _ROLES.get(role, role)
    content = first_of(message, "content", "parts", "contents")
    if role == "tool" and not any(map(_is_result, as_list(content))):
        yield ToolResult(
            as_text(message.get("tool_call_id", message.get("id"))),
            output_of(content),
            as_text(message.get("name")),
            _read_mark(message, can_mark=is_langchain),
        )
        return
    items: list[Item] = []
    texts: list[Any] = []
    for part in as_list(content):
        if first_of(part, "type") in _CALL_PARTS:
            items.append(_requested_call(part))
        elif _is_result(part):
            items.append(_result_part(part))
        else:
            texts.append(part)
    text = text_of(texts or content)
    if role == "assistant" and text.strip():
        yield AssistantMessage(text)
    yield from items
    if role == "user" and text.strip() and not any(isinstance(i, ToolResult) for i in items):
        yield UserMessage(text, at=find_time(message))
    elif role == "system" and text.strip():
        yield SystemMessage(text)
    if role == "assistant" and not any(isinstance(i, ToolCallRequest) for i in items):
        yield from _requested_calls(message)


def _unwrap(message: Mapping[str, Any]) -> Mapping[str, Any]:
    kwargs = message.get("kwargs")
    if message.get("type") == "constructor" and isinstance(kwargs, dict):
        names = message.get("id")
        name = names[-1] if isinstance(names, list) and names else kwargs.get("type", "")
        return {**kwargs, "role": _ROLES.get(str(name), str(kwargs.get("type", name)))}
    data = message.get("data")
    if "role" not in message and message.get("type") in _ROLES and isinstance(data, dict):
        return {**data, "role": _ROLES[message["type"]]}
    inner = message.get("message")
    if "role" not in message and isinstance(inner, dict):
        return _unwrap(inner)
    return message


def _is_result(part: object) -> bool:
    kind = as_text(first_of(part, "type"))
    return kind in _RESULT_PARTS or kind.endswith("_tool_result")


def _requested_call(part: Mapping[str, Any]) -> ToolCallRequest:
    arguments = part.get("input", part.get("arguments", part.get("args")))
    identifier = part.get("id", part.get("toolCallId"))
    tool = part.get("name", part.get("toolName"))
    return ToolCallRequest(as_text(identifier), as_text(tool), arguments)


def _result_part(part: Mapping[str, Any]) -> ToolResult:
    content = first_of(part, *_RESULT_KEYS)
    identifier = part.get("tool_use_id", part.get("toolCallId", part.get("id")))
    failed = _read_mark(part, can_mark=part.get("type") != _UNMARKED_PART)
    # Anthropic's own tools and the AI SDK mark what is inside: "error-text", "…_result_error".
    kind = content.get("type") if isinstance(content, dict) else None
    inner = isinstance(kind, str) and (kind.startswith("error-") or kind.endswith("_error"))
    output = None if content is None else output_of(content)
    return ToolResult(as_text(identifier), output, as_text(part.get("toolName")), inner or failed)


def _read_mark(record: Mapping[str, Any], *, can_mark: bool) -> bool | None:
    """Whether a message or part is marked as failed; None if its format has no mark."""
    if record.get("status") == "error" or is_marked(record) or record.get("error"):
        return True
    if can_mark or any(key in record for key in ("status", "error", "is_error", "isError")):
        return False
    return None


def _requested_calls(message: Mapping[str, Any]) -> Iterator[ToolCallRequest]:
    calls = message.get("tool_calls") or first_of(message.get("additional_kwargs"), "tool_calls")
    for call in as_list(calls):
        if isinstance(call, dict):
            call = as_mapping(call.get("tool_call", call))  # of OpenInference
            inner = call.get("function", call.get("custom"))
            if not isinstance(inner, dict):
                inner = {**call, "name": inner} if isinstance(inner, str) else call
            yield _requested_call({**inner, "id": call.get("id")})
    legacy = message.get("function_call")
    if not calls and isinstance(legacy, dict):
        yield _requested_call({**legacy, "id": ""})
