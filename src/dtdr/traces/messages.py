"""Chat messages of any provider, read as what users said and which calls were made and answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dtdr.traces.base import AssistantMessage, Trace, TracedCall, UserMessage, decode_json
from dtdr.traces.times import find_time

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "bot": "assistant",
    "developer": "system",
    "function": "tool",
    "HumanMessage": "user",
    "HumanMessageChunk": "user",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
}
_FAILURE_STARTS = (
    "error:",
    "error executing",
    "error calling",
    "error invoking",
    "exception:",
    "traceback (most recent call last)",
)
_TEXT_PARTS = ("text", "input_text", "output_text")
_CALL_PARTS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "tool-call")
_RESULT_PARTS = ("tool_result", "tool_call_response", "tool-result")


@dataclass(slots=True)
class ToolCallRequest:
    """The model asks for a call."""

    id: str
    tool: str
    arguments: Any


@dataclass(slots=True)
class ToolResult:
    """A call's result; ``tool`` where the log names it, ``failed`` where it is marked so."""

    id: str
    output: Any
    tool: str = ""
    failed: bool = False


@dataclass(slots=True)
class SystemMessage:
    """The agent's instructions."""

    text: str


Item = UserMessage | AssistantMessage | SystemMessage | ToolCallRequest | ToolResult


def looks_failed(output: Any) -> bool:
    """Whether a result that carries no mark reads like an error.

    An object with a true ``error``, ``isError`` or ``is_error``, with ``success`` false or with the
    status error or failed; or a text that begins as error messages do.
    """
    if isinstance(output, str) and output[:1] not in ("{", "["):
        return output[:40].lstrip().casefold().startswith(_FAILURE_STARTS)
    value = decode_json(output)
    if not isinstance(value, dict):
        return False
    return (
        any(value.get(key) for key in ("error", "isError", "is_error"))
        or value.get("success") is False
        or value.get("status") in ("error", "failed")
    )


def text_of(content: Any) -> str:
    """The text of a message's content: a text, or a list of parts of any provider."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS:
            text = part.get("text", part.get("content"))
            if isinstance(text, str):
                texts.append(text)
    return "\n".join(texts)


def output_of(content: Any) -> Any:
    """What a tool returned: text parts joined to a text, anything else as it is."""
    if isinstance(content, dict) and isinstance(content.get("structuredContent"), dict):
        return content["structuredContent"]
    if isinstance(content, dict) and isinstance(content.get("content"), list):
        content = content["content"]
    if isinstance(content, list) and content:
        parts = [part for part in content if isinstance(part, dict)]
        if len(parts) == len(content) and all(part.get("type") in _TEXT_PARTS for part in parts):
            return text_of(content)
    if isinstance(content, dict) and content.keys() <= {"type", "value"} and "value" in content:
        return content["value"]
    return content


def items_of(message: object) -> Iterator[Item]:
    """What one message holds, in its order.

    Reads OpenAI, Anthropic and Gemini-like messages, OpenTelemetry ``parts``, LangChain messages
    (dumped with or without constructor) and the messages of the Vercel AI SDK.
    """
    if isinstance(message, list) and len(message) == 2 and isinstance(message[0], str):
        message = {"role": message[0], "content": message[1]}
    if not isinstance(message, dict):
        return
    message = _unwrap(message)
    role = message.get("role", message.get("type", ""))
    role = _ROLES.get(role, role)
    content = message.get("content")
    if content is None:
        content = message.get("parts")
    if role == "tool" and not _has_results(content):
        output = output_of(content)
        failed = message.get("status") == "error" or message.get("is_error") is True
        failed = failed or bool(message.get("error"))
        yield ToolResult(
            _text(message.get("tool_call_id", message.get("id"))),
            output,
            _text(message.get("name")),
            failed or looks_failed(output),
        )
        return
    parts = content if isinstance(content, list) else []
    items: list[Item] = []
    texts: list[str] = []
    for part in parts:
        if not isinstance(part, dict):
            if isinstance(part, str):
                texts.append(part)
            continue
        kind = part.get("type")
        if kind in _CALL_PARTS:
            items.append(_requested_call(part))
        elif kind in _RESULT_PARTS or (isinstance(kind, str) and kind.endswith("_tool_result")):
            items.append(_result_part(part))
        elif text := text_of([part]):
            texts.append(text)
    text = "\n".join(texts) if parts else text_of(content)
    if role == "assistant" and text.strip():
        yield AssistantMessage(text)
    yield from items
    if role == "user" and text.strip() and not any(isinstance(i, ToolResult) for i in items):
        yield UserMessage(text, at=find_time(message))
    elif role == "system" and text.strip():
        yield SystemMessage(text)
    if role == "assistant" and not any(isinstance(i, ToolCallRequest) for i in items):
        yield from _requested_calls(message)


def conversation(items: Iterable[tuple[int, Item]], system: Any = None) -> Trace:
    """The trace that a conversation's items tell, each with its position.

    Calls start at the position of the message that asked for them and end at that of their result,
    so that calls asked for together cannot have used each other's outputs; calls of one position
    are of one step.

    Args:
        items: what messages hold, in order, with the position of the message.
        system: instructions that stand outside the messages.
    """
    trace = Trace("", [])
    given: list[str] = []
    waiting: list[TracedCall] = []
    last: Item | None = None
    for position, item in items:
        if isinstance(item, SystemMessage):
            given.append(item.text)
            continue
        if isinstance(item, UserMessage):
            trace.events.append(UserMessage(item.text, isinstance(last, UserMessage), item.at))
        elif isinstance(item, AssistantMessage):
            trace.events.append(item)
        elif isinstance(item, ToolCallRequest):
            if item.tool:
                call = TracedCall(item.tool, item.arguments, position, id=item.id, step=position)
                trace.events.append(call)
                waiting.append(call)
        elif (answered := _take_waiting(waiting, item)) is not None:
            answered.output, answered.failed, answered.ended = item.output, item.failed, position
        else:
            trace.unmatched += 1
        last = item
    if instructions := text_of(system):
        given.append(instructions)
    trace.given = tuple(given)
    return trace


def read_conversation(messages: Iterable[Any], system: Any = None) -> Trace:
    """The trace that a conversation's messages tell."""
    return conversation(
        (
            (position, item)
            for position, message in enumerate(messages)
            for item in items_of(message)
        ),
        system,
    )


def _take_waiting(waiting: list[TracedCall], answer: ToolResult) -> TracedCall | None:
    """The call that an answer belongs to, taken from those that wait for one."""
    for index in range(len(waiting) - 1, -1, -1):
        if answer.id and waiting[index].id == answer.id:
            return waiting.pop(index)
    if answer.id and any(call.id for call in waiting):
        return None
    for index, call in enumerate(waiting):
        if not answer.tool or call.tool == answer.tool:
            return waiting.pop(index)
    return None


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


def _has_results(content: Any) -> bool:
    return isinstance(content, list) and any(
        isinstance(part, dict)
        and isinstance(kind := part.get("type"), str)
        and (kind in _RESULT_PARTS or kind.endswith("_tool_result"))
        for part in content
    )


def _requested_call(part: Mapping[str, Any]) -> ToolCallRequest:
    arguments = part.get("input", part.get("arguments", part.get("args")))
    identifier = part.get("id", part.get("toolCallId"))
    tool = part.get("name", part.get("toolName"))
    return ToolCallRequest(_text(identifier), _text(tool), arguments)


def _result_part(part: Mapping[str, Any]) -> ToolResult:
    output = None
    for key in ("content", "response", "result", "output"):
        if part.get(key) is not None:
            output = output_of(part[key])
            break
    identifier = part.get("tool_use_id", part.get("toolCallId", part.get("id")))
    failed = part.get("is_error") is True or part.get("isError") is True or looks_failed(output)
    return ToolResult(_text(identifier), output, _text(part.get("toolName")), failed)


def _requested_calls(message: Mapping[str, Any]) -> Iterator[ToolCallRequest]:
    calls = message.get("tool_calls")
    extra = message.get("additional_kwargs")
    if not calls and isinstance(extra, dict):
        calls = extra.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, dict):
            continue
        inner = call.get("function", call.get("custom"))
        if isinstance(inner, str):
            inner = {**call, "name": inner}
        elif not isinstance(inner, dict):
            inner = call
        arguments = inner.get("arguments", inner.get("args", inner.get("input")))
        yield ToolCallRequest(_text(call.get("id")), _text(inner.get("name")), arguments)
    legacy = message.get("function_call")
    if not calls and isinstance(legacy, dict):
        yield ToolCallRequest("", _text(legacy.get("name")), legacy.get("arguments"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
