"""Spans that follow the OpenInference conventions, as OTLP JSON or exported by Phoenix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr.traces.base import decode_json
from dtdr.traces.otlp import WRAPPERS, RawSpan, raw_spans, try_spans, unflatten
from dtdr.traces.spans import Span, SpanFormat, message_list, plain_output


class OpenInference(SpanFormat):
    """Spans with ``openinference.span.kind``: ``LLM`` with its messages, ``TOOL`` with its values.

    Attributes may be flattened (``llm.input_messages.0.message.role``), nested, or lists of
    flattened objects, as the tables of Phoenix have them.
    """

    name: ClassVar[str] = "openinference"
    title: ClassVar[str] = "OpenInference spans (OTLP JSON, Phoenix or Arize export)"
    wrappers: ClassVar[Mapping[str, str]] = WRAPPERS

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it holds spans of which one names its kind as OpenInference does."""
        return any(
            _at(unflatten(raw.attributes), "openinference", "span", "kind")
            for raw in try_spans(record)
        )

    def spans(self, record: Any) -> Iterator[Span]:
        """The spans of an export batch, or one span; see ``SpanFormat.spans``."""
        for raw in raw_spans(record):
            if not raw.log:
                yield self._span(raw)

    def _span(self, raw: RawSpan) -> Span:
        nested = unflatten(raw.attributes)
        kind = str(_at(nested, "openinference", "span", "kind") or raw.kind).upper()
        span = Span(raw.trace, raw.id, raw.parent, "", raw.start, raw.end, failed=raw.failed)
        group = _at(nested, "session", "id")
        span.group = group if isinstance(group, str) else ""
        entered = _at(nested, "input", "value")
        left = _at(nested, "output", "value")
        if kind == "TOOL":
            span.kind = "tool"
            span.tool = str(_at(nested, "tool", "name") or raw.name)
            called = _at(nested, "tool_call")
            span.call_id = str(_at(called, "id") or _at(nested, "tool", "id") or "")
            arguments = _at(called, "function", "arguments")
            if arguments is None:
                arguments = entered if entered is not None else _at(nested, "tool", "parameters")
            span.arguments = _arguments(arguments)
            span.output = plain_output(decode_json(left))
            if raw.name == f"handoff to {left}":  # OpenAI Agents: from and to are agents' names
                span.tool, span.arguments, span.output = f"agent:{left}", {}, None
        elif kind == "LLM":
            span.kind = "llm"
            llm = nested.get("llm")
            span.inputs = _messages(_at(llm, "input_messages"))
            span.outputs = _messages(_at(llm, "output_messages"))
            schemas = [
                decode_json(_at(tool, "tool", "json_schema")) for tool in _list(_at(llm, "tools"))
            ]
            self.tools.add(schemas)
        else:
            name = _at(nested, "agent", "name")
            if kind == "AGENT" and isinstance(name, str) and name:
                span.kind, span.tool = "agent", name
                span.output = plain_output(decode_json(left))
            value = decode_json(entered)
            if isinstance(value, dict):
                messages = value.get("messages")
                span.inputs = message_list(messages)
                value = next(
                    (value[key] for key in ("input", "query", "question") if key in value), ""
                )
            span.text = value if isinstance(value, str) else ""
        return span


def _messages(value: Any) -> list[dict[str, Any]]:
    """OpenInference messages in the shape of chat messages."""
    messages = []
    for item in _list(decode_json(value)):
        message = _at(item, "message") or item
        if not isinstance(message, dict):
            continue
        calls = []
        for call in _list(message.get("tool_calls")):
            inner = _at(call, "tool_call") or call
            calls.append({"id": _at(inner, "id"), "function": _at(inner, "function") or {}})
        texts = [_at(part, "message_content", "text") for part in _list(message.get("contents"))]
        content = message.get("content")
        if content is None and texts:
            content = "\n".join(text for text in texts if isinstance(text, str))
        legacy = message.get("function_call_name")
        if legacy and not calls:
            arguments = message.get("function_call_arguments_json")
            calls = [{"function": {"name": legacy, "arguments": arguments}}]
        messages.append(
            {
                "role": message.get("role"),
                "content": content,
                "tool_calls": calls,
                "tool_call_id": message.get("tool_call_id"),
                "name": message.get("name"),
            }
        )
    return messages


def _arguments(value: Any) -> Any:
    value = decode_json(value)
    if isinstance(value, dict) and len(value) == 1 and "kwargs" in value:
        return value["kwargs"]
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _at(value: Any, *path: str) -> Any:
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value
