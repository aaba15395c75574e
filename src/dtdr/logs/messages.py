"""Reads chat messages of any provider as texts, calls and results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dtdr.data.outputs import is_marked, looks_failed
from dtdr.logs.log_format import (
    AssistantMessage,
    Trace,
    TracedCall,
    UserMessage,
    as_list,
    as_mapping,
    as_text,
    find_time,
    first_of,
)

_ROLES = {
    **dict.fromkeys(("human", "HumanMessage", "HumanMessageChunk"), "user"),
    **dict.fromkeys(("ai", "model", "chatbot", "bot", "AIMessage", "AIMessageChunk"), "assistant"),
    **dict.fromkeys(("developer", "SystemMessage"), "system"),
    **dict.fromkeys(("function", "ToolMessage", "FunctionMessage"), "tool"),
}
_TEXT_PARTS = ("text", "input_text", "output_text")
_CALL_PARTS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "tool-call")
_UNMARKED_PART = "tool_call_response"  # of OpenTelemetry, which marks the span instead
_RESULT_PARTS = ("tool_result", _UNMARKED_PART, "tool-result")
_RESULT_KEYS = ("content", "response", "result", "output")


@dataclass(slots=True)
class ToolCallRequest:
    """The model asks for a call."""

    id: str
    tool: str
    arguments: Any


@dataclass(slots=True)
class ToolResult:
    """A call's result.

    ``tool`` is empty if the log does not name it. ``failed`` is None if the format cannot mark a
    failure, so that only the output can show it.
    """

    id: str
    output: Any
    tool: str = ""
    failed: bool | None = False

    @property
    def has_failed(self) -> bool:
        """By the mark; by the output if there is no mark."""
        return looks_failed(self.output) if self.failed is None else self.failed


@dataclass(slots=True)
class SystemMessage:
    """The agent's instructions."""

    text: str


Item = UserMessage | AssistantMessage | SystemMessage | ToolCallRequest | ToolResult


def text_of(content: Any) -> str:
    """The text of a message's content: a text, or a list of parts of any provider."""
    if isinstance(content, str):
        return content
    texts = []
    for part in [content] if isinstance(content, dict) else as_list(content):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS:
            part = part.get("message_content", part)  # of OpenInference
            text = first_of(part, "text", "content")
            if isinstance(text, str) and text:
                texts.append(text)
    return "\n".join(texts)


def output_of(content: Any) -> Any:
    """What a tool returned: text parts joined to a text, anything else as it is."""
    if isinstance(structured := first_of(content, "structuredContent"), dict):
        return structured
    if isinstance(inner := first_of(content, "content"), list):
        content = inner
    if isinstance(content, list):
        is_text = content and all(first_of(part, "type") in _TEXT_PARTS for part in content)
        return text_of(content) if is_text else content
    if isinstance(content, dict) and content.keys() <= {"type", "value"} and "value" in content:
        return content["value"]
    return content


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


def conversation(items: Iterable[tuple[int, Item]], system: Any = None) -> Trace:
    """The trace of a conversation's items, each with the position of its message.

    Calls start at the position of the message that requests them and end at that of their result,
    so calls requested together cannot use each other's outputs. Calls of one position are one step.

    Args:
        items: with positions, in order.
        system: instructions outside the messages.
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
            answered.output, answered.ended = item.output, position
            answered.failed = item.has_failed
        else:
            trace.unmatched += 1
        last = item
    if instructions := text_of(system):
        given.append(instructions)
    trace.given = tuple(given)
    return trace


def positioned(messages: Iterable[Iterable[Item]]) -> Iterator[tuple[int, Item]]:
    """The contents of messages with positions; calls in a row have one position."""
    position, together = 0, False
    for message in messages:
        items = list(message)
        if not items:
            continue  # reasoning between two calls does not separate them
        only_call = len(items) == 1 and isinstance(items[0], ToolCallRequest)
        if not (together and only_call):
            position += 1
        together = only_call
        for item in items:
            yield position, item


def _take_waiting(waiting: list[TracedCall], answer: ToolResult) -> TracedCall | None:
    """The call that an answer belongs to, removed from those that wait for one.

    Some servers use names of tools as ids: of equal ids in a message, the first is first.
    """
    found = None
    for index in range(len(waiting) - 1, -1, -1):
        if found is not None and waiting[index].started < waiting[found].started:
            break
        if answer.id and waiting[index].id == answer.id:
            found = index
    if found is not None:
        return waiting.pop(found)
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
