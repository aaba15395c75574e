"""Reads a message of any API as texts, calls and results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from dtdr.conversation.events import AssistantMessage, UserMessage
from dtdr.conversation.items import (
    Item,
    SystemMessage,
    ToolCallRequest,
    ToolResult,
    output_of,
    read_mark,
    text_of,
)
from dtdr.conversation.parts import (
    MessageSegment,
    is_bare_call,
    is_bare_result,
    read_inline,
    read_part,
    request_of,
)
from dtdr.conversation.times import find_time
from dtdr.conversation.values import (
    FORMS,
    as_list,
    as_mapping,
    as_text,
    decode_json,
    first_of,
    is_glued,
)

_ROLES: dict[str, str] = {name: role for role, names in FORMS["roles"].items() for name in names}
_TYPES = frozenset(_ROLES) - set(FORMS["roles"]["call"])
"""Values of ``type`` that name a role."""
_SPOKEN, _SILENT, _PLAIN = (
    frozenset(FORMS["messages"][key]) for key in ("spoken", "silent", "plain")
)
_REQUESTED = ("function_call", "custom_tool_call", "mcp_call")
_TAGGED_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_ACTION = re.compile(r"^Action:[ \t]*(\S[^\n]*)\nAction Input:[ \t]*(.*)", re.MULTILINE | re.DOTALL)
"""How models write calls that have no fields for them."""


def items_of(message: object, unknown: Counter[str] | None = None) -> Iterator[Item]:  # noqa: C901, PLR0912
    """The contents of a message, in order.

    Reads messages of OpenAI (chat and items of responses), Anthropic, Gemini, Bedrock, LangChain
    (with or without constructor), Pydantic AI, AutoGen and the Vercel AI SDK, OpenTelemetry
    ``parts``, and ShareGPT.

    Args:
        message: JSON.
        unknown: counts roles and kinds of parts that are not read.
    """
    if isinstance(message, list) and len(message) == 2 and isinstance(message[0], str):
        message = {"role": message[0], "content": message[1]}
    if not isinstance(message, dict):
        return
    kind, content = as_text(message.get("type")), message.get("content")
    if message.get("role") == "user" and type(content) is str:  # the commonest, fast
        if content.strip():
            yield UserMessage(content, at=find_time(message))
        return
    if (items := _read_reply(message, content)) is not None:
        yield from items
        return
    if "role" not in message:
        if kind.endswith(("_call", "_output")):
            yield from _response_item(message, kind)
            return
        if kind in _SILENT:
            return
        if message.get("kind") in ("request", "response") and "parts" in message:
            for part in as_list(message["parts"]):
                yield from items_of(_pydantic_message(part, message), unknown)
            return
    is_langchain = "role" not in message and (kind == "constructor" or kind in _TYPES)
    message = _unwrap(message)
    name = first_of(message, "role", "from", "sender", "type" if kind in _TYPES else "author") or ""
    role = _role(name, message)
    if not role and name and isinstance(message.get("additional_kwargs"), dict):
        # Langfuse writes the names of tools as the roles of LangChain's messages.
        role, message = "tool", {"name": name, **message}
    if message.get("requestor") == "user":
        return  # tau2: the simulated user calls tools, too
    # UI messages of the AI SDK before version 5 have their text twice.
    content = message.get("parts") or first_of(message, "content", "contents", "value", "blocks")
    if role == "tool" and not _has_results(content):
        yield _tool_message(message, content, can_mark=is_langchain)
    elif role:
        yield from _read_contents(message, role, content, unknown)
    elif is_bare_call(message) or is_bare_result(message):
        yield from _read_contents({}, "assistant", [{**message, "type": None}], unknown)
    elif unknown is not None:
        said = f"with the role {str(name)[:40]!r}" if name else "without a role"
        unknown[f"message {said}"] += 1


def _role(name: Any, message: Mapping[str, Any]) -> str:
    """The role of a message by any name, such as ``MessageRole.USER``; empty if unknown."""
    if not isinstance(name, str) or not name:
        return "user" if isinstance(message.get("parts"), list) else ""  # as Gemini reads it
    return _ROLES.get(name) or _ROLES.get(name.rpartition(".")[2].lower(), "")


def _read_reply(message: Mapping[str, Any], content: Any) -> list[Item] | None:
    """The contents of a plain reply of chat completions, fast; None if it is not plain."""
    if message.get("role") != "assistant" or not message.keys() <= _PLAIN:
        return None
    items: list[Item] = []
    if type(content) is str:
        if content[:2] == "[{" or "<tool_call>" in content or "Action Input:" in content:
            return None
        if content.strip():
            items.append(AssistantMessage(content))
    elif content is not None:
        return None
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return None
        identifier, name = call.get("id"), function.get("name")
        arguments = function.get("arguments")
        if type(identifier) is not str or type(name) is not str or is_glued(arguments):
            return None
        items.append(ToolCallRequest(identifier, name, arguments))
    return items


def _read_contents(  # noqa: PLR0912
    message: Mapping[str, Any], role: str, content: Any, unknown: Counter[str] | None
) -> Iterator[Item]:
    segments = [MessageSegment()]
    if isinstance(content, str):
        if role == "call" or (content[:2] == "[{" and '"function"' in content[:500]):
            _read_calls(decode_json(content), segments[0])
        else:
            segments[0].texts.append(content)
    else:
        for part in [content] if isinstance(content, dict) else as_list(content):
            if isinstance(part, (str, dict)):
                read_part(part, segments, unknown)
    if role not in ("user", "system") and not any(segment.requests for segment in segments):
        _read_fields(message, segments[-1])
    has_results = any(segment.results for segment in segments)
    for segment in segments:
        text = text_of(segment.texts)
        if role not in ("user", "system"):
            if not segment.requests and ("<tool_call>" in text or "Action Input:" in text):
                text = _read_written_calls(text, segment)
            if text.strip():
                yield AssistantMessage(text)
        yield from segment.requests
        yield from segment.results
        if role == "user" and text.strip() and not has_results:
            yield UserMessage(text, at=find_time(message))
        elif role == "system" and text.strip():
            yield SystemMessage(text)


def _has_results(content: Any) -> bool:
    segments = [MessageSegment()]
    for part in as_list(content):
        if isinstance(part, dict):
            read_part(part, segments, None)
    return any(segment.results for segment in segments)


def _tool_message(message: Mapping[str, Any], content: Any, *, can_mark: bool) -> ToolResult:
    """The result in a message of the role tool."""
    listed = as_list(message.get("tool_call_ids"))  # SWE-agent
    names = ("tool_call_id", "toolCallId", "call_id", "id")
    identifier = first_of(message, *names) or (listed[0] if listed else "")
    error = message.get("error")
    if content in (None, "") and isinstance(error, dict):  # Inspect
        content = error.get("message")
    failed = read_mark(message, content, can_mark=can_mark)
    named = as_text(first_of(message, "name", "function", "toolName"))
    return ToolResult(as_text(identifier), output_of(content), named, failed)


def _read_fields(message: Mapping[str, Any], segment: MessageSegment) -> None:
    """Read calls from the fields that messages have for them."""
    extra = as_mapping(message.get("additional_kwargs"))
    for call in as_list(message.get("toolCalls")) + as_list(message.get("toolInvocations")):
        if isinstance(call, dict):
            read_inline(call, segment)
    listed = message.get("tool_calls") or message.get("toolRequests") or extra.get("tool_calls")
    _read_calls(decode_json(listed), segment)
    legacy = message.get("function_call")
    if not segment.requests and isinstance(legacy, dict):
        segment.requests += request_of({**legacy, "id": ""})


def _read_calls(listed: Any, segment: MessageSegment) -> None:
    for call in [listed] if isinstance(listed, dict) else as_list(listed):
        if isinstance(call, dict):
            inner = call.get("tool_call")  # of OpenInference
            segment.requests += request_of(inner if isinstance(inner, dict) else call)


def _read_written_calls(text: str, segment: MessageSegment) -> str:
    """Read the calls that a model wrote into its text; returns the rest of the text."""
    if "<tool_call>" in text:
        for match in _TAGGED_CALL.finditer(text):
            _read_calls(decode_json(match[1]), segment)
        return _TAGGED_CALL.sub("", text)
    action = _ACTION.search(text)
    if action is None:
        return text
    segment.requests.append(ToolCallRequest("", action[1].strip(), action[2].strip()))
    return text[: action.start()]


def _response_item(record: Mapping[str, Any], kind: str) -> Iterator[Item]:
    """An item of the responses API; built-in tools are calls named after the item."""
    identifier = str(record.get("call_id") or record.get("id") or "")
    # A function's output cannot be marked as an error; the items of built-in tools can.
    failed = record.get("status") in ("failed", "incomplete") or bool(record.get("error"))
    if kind.endswith("_output"):
        output = record.get("output", record.get("tools"))
        marked = failed or record.get("is_error") or read_mark({}, output, can_mark=False)
        yield ToolResult(identifier, output_of(output), failed=marked)
        return
    named = record.get("name")
    tool = named if isinstance(named, str) and named else kind.removesuffix("_call")
    arguments = next(
        (record[key] for key in FORMS["keys"]["item_arguments"] if record.get(key)), None
    )
    if kind not in _REQUESTED and arguments is not None and not isinstance(arguments, dict):
        arguments = {"input": arguments}
    yield from request_of({"id": identifier, "name": tool, "arguments": arguments})
    output = record.get("output", record.get("results"))
    if record.get("error") or output is not None:
        yield ToolResult(identifier, output_of(output), failed=failed)


def _pydantic_message(part: Any, message: Mapping[str, Any]) -> dict[str, Any]:
    """A part of Pydantic AI's requests and responses as a message of its own role."""
    kind = first_of(part, "part_kind")
    if kind in ("system-prompt", "instruction"):
        return {"role": "system", "content": part.get("content")}
    if kind == "user-prompt":
        time = first_of(part, "timestamp") or message.get("timestamp")
        return {"role": "user", "content": part.get("content"), "timestamp": time}
    if kind in ("tool-return", "builtin-tool-return", "retry-prompt"):
        if not part.get("tool_name"):
            return {"role": "system", "content": ""}  # asks for another answer
        failed = kind == "retry-prompt" or part.get("outcome", "success") != "success"
        return {**part, "role": "tool", "name": part["tool_name"], "is_error": failed}
    if kind in ("tool-call", "builtin-tool-call"):
        return {"role": "assistant", "content": [{**part, "type": "tool-call"}]}
    return {"role": "assistant", "content": part.get("content") if kind == "text" else None}


def _unwrap(message: dict[str, Any]) -> dict[str, Any]:
    """A message without the objects around it that frameworks write."""
    kwargs = message.get("kwargs")
    if message.get("type") == "constructor" and isinstance(kwargs, dict):
        names = message.get("id")
        name = str(names[-1] if isinstance(names, list) and names else kwargs.get("type", ""))
        return {**kwargs, "role": name if name in _ROLES else str(kwargs.get("type", name))}
    data = message.get("data")
    if "role" not in message and message.get("type") in _TYPES and isinstance(data, dict):
        return {**data, "role": message["type"]}
    if message.get("type") in _SPOKEN and "role" not in message:
        return {**message, "role": "user" if message.get("source") == "user" else "assistant"}
    content = message.get("content")
    if isinstance(content, dict) and isinstance(content.get("parts"), list):  # Gemini, ADK
        role = content.get("role") or message.get("role") or message.get("author")
        return {**message, "role": role, "content": content["parts"]}
    if content is None:
        for key in ("message", "llm_message", "info"):  # OpenInference, Cursor, OpenHands, opencode
            inner = message.get(key)
            if isinstance(inner, dict) and {"role", "type"} & (inner.keys() | message.keys()):
                more = {k: v for k, v in message.items() if k in ("role", "parts", "timestamp")}
                return _unwrap({**inner, **more})
    return message
