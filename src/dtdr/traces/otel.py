"""OpenTelemetry spans that follow the GenAI semantic conventions, in each of their generations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, ClassVar

from dtdr.traces.base import decode_json
from dtdr.traces.otlp import WRAPPERS, RawSpan, raw_spans, try_spans, unflatten
from dtdr.traces.spans import Span, SpanFormat, message_list

_TOOL_OPERATIONS = ("execute_tool",)
_AGENT_OPERATION = "invoke_agent"
_MODEL_OPERATIONS = ("chat", "text_completion", "generate_content", "completion")
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_DETAILS = "gen_ai.client.inference.operation.details"


class OpenTelemetry(SpanFormat):
    """OTLP JSON with ``gen_ai.*`` attributes.

    Messages are read from ``gen_ai.input.messages`` and ``gen_ai.output.messages`` (1.37 and
    later), from the message events before that, on the span or as log records, and from the
    numbered ``gen_ai.prompt.0.role`` attributes of OpenLLMetry; tools from ``execute_tool`` spans.
    """

    name: ClassVar[str] = "otel"
    title: ClassVar[str] = "OpenTelemetry GenAI spans (OTLP JSON)"
    wrappers: ClassVar[Mapping[str, str]] = WRAPPERS

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it holds spans."""
        return any(raw.trace for raw in try_spans(record))

    def spans(self, record: Any) -> Iterator[Span]:
        """The spans of an export batch, or one span; see ``SpanFormat.spans``."""
        for raw in raw_spans(record):
            yield self._span(raw)

    def _span(self, raw: RawSpan) -> Span:
        attributes = raw.attributes
        operation = attributes.get("gen_ai.operation.name")
        span = Span(raw.trace, raw.id, raw.parent, "", raw.start, raw.end, failed=raw.failed)
        span.group = _text(attributes.get("gen_ai.conversation.id", attributes.get("session.id")))
        self.tools.add(decode_json(attributes.get("gen_ai.tool.definitions")))
        if raw.log:
            span.kind = "event"
        elif operation in _TOOL_OPERATIONS or attributes.get("traceloop.span.kind") == "tool":
            self._read_tool(span, raw)
            return span
        elif operation in _MODEL_OPERATIONS or "llm.request.type" in attributes:
            span.kind = "llm"
        elif operation == _AGENT_OPERATION:
            name = _text(attributes.get("gen_ai.agent.name"))
            span.tool = name or raw.name.removeprefix(_AGENT_OPERATION).strip()
            span.kind = "agent" if span.tool else ""
        self._read_messages(span, attributes)
        for name, _, values in raw.events:
            self._read_event(span, name, values)
        if span.kind != "llm":
            span.text = _plain(attributes.get("traceloop.entity.input"))
        return span

    def _read_tool(self, span: Span, raw: RawSpan) -> None:
        attributes = raw.attributes
        span.kind = "tool"
        name = attributes.get("gen_ai.tool.name", attributes.get("traceloop.entity.name"))
        span.tool = _text(name) or raw.name.removeprefix("execute_tool ").strip()
        span.call_id = _text(attributes.get("gen_ai.tool.call.id"))
        span.arguments = _first(attributes, "gen_ai.tool.call.arguments", "gen_ai.tool.arguments")
        span.output = _first(attributes, "gen_ai.tool.call.result", "gen_ai.tool.message")
        if span.arguments is None and "traceloop.entity.input" in attributes:
            entered = decode_json(attributes["traceloop.entity.input"])
            inputs = entered.get("inputs") if isinstance(entered, dict) else None
            span.arguments = inputs if isinstance(inputs, dict) else entered
            span.output = attributes.get("traceloop.entity.output")
        for name, _, values in raw.events:
            content = values.get("content", values.get("gen_ai.event.content"))
            if name in ("gen_ai.tool.message", "gen_ai.choice") and span.output is None:
                span.output = content

    def _read_messages(self, span: Span, attributes: Mapping[str, Any]) -> None:
        instructions = decode_json(attributes.get("gen_ai.system_instructions"))
        if instructions:
            span.inputs.append({"role": "system", "content": instructions})
        span.inputs += message_list(decode_json(attributes.get("gen_ai.input.messages")))
        span.outputs += message_list(decode_json(attributes.get("gen_ai.output.messages")))
        if any(key.startswith(("gen_ai.prompt.", "gen_ai.completion.")) for key in attributes):
            nested = unflatten(
                {key: value for key, value in attributes.items() if key.startswith("gen_ai.")}
            )["gen_ai"]
            span.inputs += map(_read_parts, message_list(nested.get("prompt")))
            span.outputs += map(_read_parts, message_list(nested.get("completion")))
        definitions = []
        for number in count():
            prefix = f"llm.request.functions.{number}"
            if f"{prefix}.name" not in attributes:
                break
            definitions.append(
                {
                    "name": attributes[f"{prefix}.name"],
                    "description": attributes.get(f"{prefix}.description"),
                    "parameters": decode_json(attributes.get(f"{prefix}.parameters")),
                }
            )
        self.tools.add(definitions)

    def _read_event(self, span: Span, name: str, values: Mapping[str, Any]) -> None:
        if name == _DETAILS:
            self._read_messages(span, values)
            return
        whole = decode_json(values.get("gen_ai.event.content"))
        body = whole if isinstance(whole, dict) else values
        if name in _ROLES:
            span.inputs.append(_event_message(_ROLES[name], body))
        elif name == "gen_ai.choice":
            message = decode_json(body.get("message"))
            inner = message if isinstance(message, dict) else body
            span.outputs.append(_event_message("assistant", {**body, **inner}))
        elif name == "gen_ai.content.prompt":
            span.inputs += message_list(decode_json(values.get("gen_ai.prompt")))
        elif name == "gen_ai.content.completion":
            span.outputs += message_list(decode_json(values.get("gen_ai.completion")))


def _event_message(role: str, body: Mapping[str, Any]) -> dict[str, Any]:
    message = {**body, "role": role, "tool_calls": decode_json(body.get("tool_calls"))}
    message["content"] = decode_json(body.get("content")) if role != "user" else body.get("content")
    if role == "tool":
        message["tool_call_id"] = body.get("id", body.get("tool_call_id"))
    return message


def _read_parts(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    parts = decode_json(content)
    # Only lists of parts: a user's question that happens to be a JSON object stays a text.
    return {**message, "content": parts if isinstance(parts, list) else content}


def _plain(value: Any) -> str:
    """A question out of what an entry point was given, where it is one text."""
    value = decode_json(value)
    while isinstance(value, dict):
        inner = [value[key] for key in ("inputs", "input", "query", "question") if key in value]
        if not inner:
            return ""
        value = decode_json(inner[0])
    return value if isinstance(value, str) else ""


def _first(attributes: Mapping[str, Any], *keys: str) -> Any:
    return next((attributes[key] for key in keys if attributes.get(key) is not None), None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
