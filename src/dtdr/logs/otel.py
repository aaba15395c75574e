"""OpenTelemetry spans by two conventions: GenAI, in each of its generations, and OpenInference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr.data.outputs import is_marked
from dtdr.logs.log_format import as_list, as_text, decode_json, first_of
from dtdr.logs.otlp import WRAPPERS, RawSpan, raw_spans, try_spans, unflatten
from dtdr.logs.spans import Span, SpanFormat, message_list, read_output, read_question

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
        span.group = as_text(attributes.get("gen_ai.conversation.id", attributes.get("session.id")))
        listed = decode_json(attributes.get("gen_ai.tool.definitions"))
        span.offered += self.tools.add(listed)
        if raw.log:
            span.kind = "event"
        elif operation == "execute_tool" or attributes.get("traceloop.span.kind") == "tool":
            self._read_tool(span, raw)
            return span
        elif operation in _MODEL_OPERATIONS or "llm.request.type" in attributes:
            span.kind = "llm"
        elif operation == _AGENT_OPERATION:
            name = as_text(attributes.get("gen_ai.agent.name"))
            span.tool = name or raw.name.removeprefix(_AGENT_OPERATION).strip()
            span.kind = "agent" if span.tool else ""
        self._read_messages(span, attributes)
        for name, values in raw.events:
            self._read_event(span, name, values)
        if span.kind != "llm":
            read_question(span, attributes.get("traceloop.entity.input"))
        return span

    def _read_tool(self, span: Span, raw: RawSpan) -> None:
        attributes = raw.attributes
        span.kind = "tool"
        name = first_of(attributes, "gen_ai.tool.name", "traceloop.entity.name")
        span.tool = as_text(name) or raw.name.removeprefix("execute_tool ").strip()
        span.call_id = as_text(attributes.get("gen_ai.tool.call.id"))
        span.arguments = first_of(attributes, "gen_ai.tool.call.arguments", "gen_ai.tool.arguments")
        span.output = first_of(attributes, "gen_ai.tool.call.result", "gen_ai.tool.message")
        if span.arguments is None and "traceloop.entity.input" in attributes:
            entered = decode_json(attributes["traceloop.entity.input"])
            inputs = first_of(entered, "inputs")
            span.arguments = inputs if isinstance(inputs, dict) else entered
            span.output = attributes.get("traceloop.entity.output")
        for name, values in raw.events:
            content = values.get("content", values.get("gen_ai.event.content"))
            if name in ("gen_ai.tool.message", "gen_ai.choice") and span.output is None:
                span.output = content
        span.failed = span.failed or is_marked(decode_json(span.output))

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
        prefix = "llm.request.functions."
        functions = {k: v for k, v in attributes.items() if k.startswith(prefix)}
        if functions:
            listed = as_list(unflatten(functions)["llm"]["request"]["functions"])
            tools = [tool for tool in listed if isinstance(tool, dict)]
            definitions = [{k: decode_json(v) for k, v in tool.items()} for tool in tools]
            span.offered += self.tools.add(definitions)

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
        span.group = as_text(_at(nested, "session", "id"))
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
            read_output(span, left)
            if raw.name == f"handoff to {left}":  # OpenAI Agents: from and to are agents' names
                span.tool, span.arguments, span.output = f"agent:{left}", {}, None
        elif kind == "LLM":
            span.kind = "llm"
            llm = nested.get("llm")
            span.inputs = _messages(_at(llm, "input_messages"))
            span.outputs = _messages(_at(llm, "output_messages"))
            schemas = [
                decode_json(_at(tool, "tool", "json_schema")) for tool in as_list(_at(llm, "tools"))
            ]
            span.offered += self.tools.add(schemas)
        else:
            name = _at(nested, "agent", "name")
            if kind == "AGENT" and isinstance(name, str) and name:
                span.kind, span.tool = "agent", name
                read_output(span, left)
            read_question(span, entered)
        return span


def _messages(value: Any) -> list[dict[str, Any]]:
    """OpenInference messages in the shape of chat messages."""
    messages = []
    for item in as_list(decode_json(value)):
        message = _at(item, "message") or item
        if not isinstance(message, dict):
            continue
        calls = []
        for call in as_list(message.get("tool_calls")):
            inner = _at(call, "tool_call") or call
            calls.append({"id": _at(inner, "id"), "function": _at(inner, "function") or {}})
        texts = [_at(part, "message_content", "text") for part in as_list(message.get("contents"))]
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


def _at(value: Any, *path: str) -> Any:
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value
