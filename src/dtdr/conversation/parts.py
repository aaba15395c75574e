"""Reads the parts of a message: texts, calls and results, in the form of any API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dtdr.conversation.items import TEXT_PARTS, ToolCallRequest, ToolResult, output_of, read_mark
from dtdr.conversation.values import FORMS, as_mapping, as_text, first_of, split_arguments

_PARTS, _KEYS = FORMS["parts"], FORMS["keys"]
_CALLS, _UNMARKED, _SILENT = (frozenset(_PARTS[key]) for key in ("calls", "unmarked", "silent"))
_RESULTS = _UNMARKED.union(_PARTS["results"])
_IDS, _NAMES, _ARGUMENTS = (tuple(_KEYS[key]) for key in ("ids", "names", "arguments"))
_RESULT_IDS = ("tool_use_id", "source_call_id", *_IDS)


@dataclass(slots=True)
class MessageSegment:
    """Items of a message up to its first results; calls of one segment are parallel."""

    texts: list[Any] = field(default_factory=list)
    requests: list[ToolCallRequest] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)


def read_part(part: Any, segments: list[MessageSegment], unknown: Counter[str] | None) -> None:  # noqa: C901, PLR0912
    """Add a part to the last segment of its message, or begin another one.

    Args:
        part: JSON.
        segments: of the message so far; at least one.
        unknown: counts the kinds of parts that are not read.
    """
    last = segments[-1]
    if isinstance(inner := first_of(part, "message_content"), dict):  # of OpenInference
        part = {key.removeprefix("message_content."): value for key, value in inner.items()}
    kind = part.get("type") if isinstance(part, dict) else "text"
    if not isinstance(kind, str):
        kind = None
    if isinstance(part, dict) and part.get("synthetic") is True:  # of opencode
        return
    if kind in TEXT_PARTS or (kind is None and isinstance(part.get("text"), str)):
        if last.results:
            segments.append(last := MessageSegment())
        last.texts.append(part)
    elif kind is None:
        _read_keyed(part, segments, unknown)
    elif kind in _CALLS:
        _begin_calls(segments).requests += request_of(part)
    elif kind in _RESULTS or kind.endswith("_tool_result"):
        last.results.append(result_of(part))
    elif kind in _PARTS["inline"] or kind.startswith("tool-"):
        read_inline(as_mapping(part.get("toolInvocation", part)), last)
    elif kind in _PARTS["separators"]:
        if last.texts or last.requests:
            segments.append(MessageSegment())
    elif kind in _SILENT or kind.startswith("data-") or "reasoning" in kind.lower():
        pass
    elif unknown is not None:
        unknown[f"part of the type {kind!r}"] += 1


def _begin_calls(segments: list[MessageSegment]) -> MessageSegment:
    """The segment for a call that is made after all results so far."""
    if segments[-1].results:
        segments.append(MessageSegment())
    return segments[-1]


def _read_keyed(part: Mapping[str, Any], segments: list[MessageSegment], unknown: Any) -> None:
    """Read a part that is named by its key, as those of Gemini and Bedrock."""
    if isinstance(call := first_of(part, *_PARTS["keyed_calls"]), dict):
        _begin_calls(segments).requests += request_of(call)
    elif isinstance(result := first_of(part, *_PARTS["keyed_results"]), dict):
        segments[-1].results.append(_keyed_result(result))
    elif is_bare_call(part):
        _begin_calls(segments).requests += request_of(part)
    elif is_bare_result(part):
        segments[-1].results.append(result_of(part))
    elif isinstance(code := first_of(part, "executableCode", "executable_code"), dict):
        _begin_calls(segments).requests.append(ToolCallRequest("", "code_execution", dict(code)))
    elif isinstance(done := first_of(part, "codeExecutionResult", "code_execution_result"), dict):
        has_failed = str(done.get("outcome", "")).endswith(("FAILED", "EXCEEDED"))
        segments[-1].results.append(ToolResult("", done.get("output"), failed=has_failed))
    elif part and part.keys().isdisjoint(_PARTS["silent_keys"]) and unknown is not None:
        unknown[f"part with the keys {', '.join(sorted(map(str, part))[:4])}"] += 1


def is_bare_call(part: Mapping[str, Any]) -> bool:
    """Whether an object without a type is a call: a name and arguments."""
    inner = part.get("function")
    if isinstance(inner, dict):
        return "arguments" in inner
    named = isinstance(first_of(part, *_NAMES[:-1]), str)
    return named and any(key in part for key in _ARGUMENTS[:4])


def is_bare_result(part: Mapping[str, Any]) -> bool:
    """Whether an object without a type is a result: the id of a call, and content."""
    named = isinstance(first_of(part, *_RESULT_IDS[:-1]), str)
    return named and any(key in part for key in _KEYS["returned"])


def request_of(call: Mapping[str, Any]) -> list[ToolCallRequest]:
    """The call of a part or of a message's list; several if a stream glued them together."""
    identifier = as_text(first_of(call, *_IDS))
    inner = call.get("function", call.get("custom"))
    if isinstance(inner, str):  # Inspect: a name
        call = {**call, "name": inner}
    elif isinstance(inner, dict):
        call = inner
    name = as_text(first_of(call, *_NAMES))
    parts = split_arguments(first_of(call, *_ARGUMENTS))
    return [
        ToolCallRequest(f"{identifier}~{n}" if n and identifier else identifier, name, part)
        for n, part in enumerate(parts)
    ]


def result_of(part: Mapping[str, Any]) -> ToolResult:
    """The result in a part."""
    content = first_of(part, *_KEYS["returned"])
    failed = read_mark(part, content, can_mark=part.get("type") not in _UNMARKED)
    # Anthropic's tools and the AI SDK mark what is inside: "error-text", "…_result_error".
    kind = as_text(content.get("type")) if isinstance(content, dict) else ""
    inner = kind.startswith("error-") or kind.endswith("_error") or part.get("type") == "tool-error"
    return _result(part, None if content is None else output_of(content), failed=inner or failed)


def _keyed_result(part: Mapping[str, Any]) -> ToolResult:
    """A result of Gemini or Bedrock; Gemini's are objects, so that programs wrap a text in one."""
    content = part.get("response")
    if isinstance(content, dict) and len(content) == 1:
        if "error" in content:
            return _result(part, output_of(content["error"]), failed=True)
        part = {**part, "response": first_of(content, "output", "result", "content") or content}
    return result_of(part)


def _result(part: Mapping[str, Any], output: Any, *, failed: bool | None) -> ToolResult:
    named = as_text(first_of(part, "toolName", "name", "tool_name"))
    return ToolResult(as_text(first_of(part, *_RESULT_IDS)), output, named, failed)


def read_inline(part: Mapping[str, Any], segment: MessageSegment) -> None:
    """Read a call that has its result with it, if it has ended.

    The AI SDK writes it as a part (``tool-NAME``) or in ``toolInvocations``, opencode with a
    ``state``, and Gemini CLI in ``toolCalls``.
    """
    state = part.get("state")
    whole = {**part, **state} if isinstance(state, dict) else part
    said = whole.get("status") if isinstance(state, dict) else state or part.get("status")
    status, kind = as_text(said), as_text(part.get("type"))
    requests = request_of({key: whole.get(key) for key in (*_IDS, *_NAMES, *_ARGUMENTS)})
    for request in requests:
        request.tool = request.tool or kind.removeprefix("tool-")
    segment.requests += requests
    left = first_of(whole.get("metadata"), "exit")  # opencode's shell
    failed = status in _KEYS["failed"] or bool(whole.get("errorText")) or left not in (None, 0)
    output = first_of(whole, "output", "result", "errorText", "error")
    if not requests or (output is None and not failed):
        return
    if isinstance(output, list) and output and first_of(output[0], *_PARTS["keyed_results"]):
        inner = _keyed_result(first_of(output[0], *_PARTS["keyed_results"]))
        output, failed = inner.output, failed or inner.failed is True
    else:
        failed = failed or read_mark({}, output, can_mark=True) is True
    segment.results.append(ToolResult(requests[0].id, output_of(output), requests[0].tool, failed))
