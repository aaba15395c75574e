"""OpenTelemetry spans by two conventions, GenAI and OpenInference.

They are OTLP JSON, as Phoenix and OpenTelemetry SDKs print them, or flat rows of a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr.conversation.values import as_list, as_text, decode_json, first_of
from dtdr.data.outputs import is_marked
from dtdr.errors import InputError
from dtdr.logs.spans import Span, SpanFormat, message_list, read_output, read_question, span_of

_CONTAINERS = ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "spans")
_IDS = ("spanId", "traceId", "context", "context.trace_id", "trace_id")
_OTHERS = ("resourceLogs", "resourceMetrics", "resource", "scope")
_PREFIX = "attributes."

_AGENT_OPERATION = "invoke_agent"
_MODEL_OPERATIONS = ("chat", "text_completion", "generate_content", "completion")


class OpenTelemetry(SpanFormat):
    """OTLP JSON with ``gen_ai.*`` attributes, and OpenLLMetry's of tools."""

    name: ClassVar[str] = "otel"
    title: ClassVar[str] = "OpenTelemetry GenAI spans (OTLP JSON)"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has spans."""
        return any(span.trace for span, _ in _open_spans(record))

    def spans(self, record: Any) -> Iterator[Span]:
        """The spans of an export batch, or one span; see ``SpanFormat.spans``."""
        for span, attributes in _open_spans(record):
            self._read(span, attributes)
            yield span

    def _read(self, span: Span, attributes: Mapping[str, Any]) -> None:
        operation = attributes.get("gen_ai.operation.name")
        span.group = as_text(attributes.get("gen_ai.conversation.id", attributes.get("session.id")))
        span.offered += self.tools.add(decode_json(attributes.get("gen_ai.tool.definitions")))
        if operation == "execute_tool" or attributes.get("traceloop.span.kind") == "tool":
            self._read_tool(span, attributes)
            return
        name, span.tool = span.tool, ""
        if operation in _MODEL_OPERATIONS:
            span.kind = "llm"
        elif operation == _AGENT_OPERATION:
            agent = as_text(attributes.get("gen_ai.agent.name"))
            span.tool = agent or name.removeprefix(_AGENT_OPERATION).strip()
            span.kind = "agent" if span.tool else ""
        self._read_messages(span, attributes)
        if span.kind != "llm":
            read_question(span, attributes.get("traceloop.entity.input"))

    def _read_tool(self, span: Span, attributes: Mapping[str, Any]) -> None:
        span.kind = "tool"
        name = first_of(attributes, "gen_ai.tool.name", "traceloop.entity.name")
        span.tool = as_text(name) or span.tool.removeprefix("execute_tool ").strip()
        span.call_id = as_text(attributes.get("gen_ai.tool.call.id"))
        span.arguments = first_of(attributes, "gen_ai.tool.call.arguments", "gen_ai.tool.arguments")
        span.output = first_of(
            attributes, "gen_ai.tool.call.result", "gen_ai.tool.message", "traceloop.entity.output"
        )
        if span.arguments is None:
            entered = decode_json(attributes.get("traceloop.entity.input"))
            span.arguments = first_of(entered, "inputs") or entered
        span.failed = span.failed or is_marked(decode_json(span.output))

    def _read_messages(self, span: Span, attributes: Mapping[str, Any]) -> None:
        if instructions := decode_json(attributes.get("gen_ai.system_instructions")):
            span.inputs.append({"role": "system", "content": instructions})
        span.inputs += message_list(decode_json(attributes.get("gen_ai.input.messages")))
        span.outputs += message_list(decode_json(attributes.get("gen_ai.output.messages")))


class OpenInference(OpenTelemetry):
    """Spans with ``openinference.span.kind``: ``LLM`` with its messages, ``TOOL`` with its values.

    Attributes may be flattened (``llm.input_messages.0.message.role``), nested, or lists of
    flattened objects, as the tables of Phoenix have them.
    """

    name: ClassVar[str] = "openinference"
    title: ClassVar[str] = "OpenInference spans (OTLP JSON, Phoenix or Arize export)"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether one of its spans names its kind as OpenInference does."""
        return any(
            _at(_unflatten(attributes), "openinference", "span", "kind")
            for _, attributes in _open_spans(record)
        )

    def _read(self, span: Span, attributes: Mapping[str, Any]) -> None:
        nested = _unflatten(attributes)
        name, span.tool = span.tool, ""
        kind = str(_at(nested, "openinference", "span", "kind") or span.kind).upper()
        span.kind, span.group = "", as_text(_at(nested, "session", "id"))
        entered, left = _at(nested, "input", "value"), _at(nested, "output", "value")
        if kind == "TOOL":
            span.kind = "tool"
            span.tool = str(_at(nested, "tool", "name") or name)
            called = _at(nested, "tool_call")
            span.call_id = str(_at(called, "id") or _at(nested, "tool", "id") or "")
            arguments = _at(called, "function", "arguments")
            if arguments is None:
                arguments = entered if entered is not None else _at(nested, "tool", "parameters")
            span.arguments = _arguments(arguments)
            read_output(span, left)
            if name == f"handoff to {left}":  # OpenAI Agents: from and to are agents' names
                span.tool, span.arguments, span.output = f"agent:{left}", {}, None
        elif kind == "LLM":
            span.kind = "llm"
            llm = nested.get("llm")
            span.inputs = as_list(decode_json(_at(llm, "input_messages")))
            span.outputs = as_list(decode_json(_at(llm, "output_messages")))
            schemas = [_at(tool, "tool", "json_schema") for tool in as_list(_at(llm, "tools"))]
            span.offered += self.tools.add(list(map(decode_json, schemas)))
        else:
            agent = as_text(_at(nested, "agent", "name"))
            if kind == "AGENT" and agent:
                span.kind, span.tool = "agent", agent
                read_output(span, left)
            read_question(span, entered)


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


def _open_spans(record: Any) -> Iterator[tuple[Span, dict[str, Any]]]:
    """The spans of an export batch, or the one span that a record is, with their attributes.

    Raises:
        InputError: it is neither.
    """
    if not isinstance(record, dict):
        raise InputError("a span must be a JSON object")
    if isinstance(inner := first_of(record, *_CONTAINERS), list):
        for item in inner:
            yield from _open_spans(item)
    elif not record.keys().isdisjoint(_IDS):
        yield _read_span(record)
    elif record.keys().isdisjoint(_OTHERS):
        raise InputError("not a span: it has none of 'resourceSpans', 'spanId', 'context'")


def _read_span(record: Mapping[str, Any]) -> tuple[Span, dict[str, Any]]:
    attributes = decode_json(record.get("attributes"))
    if not isinstance(attributes, (dict, list)):
        attributes = {
            key.removeprefix(_PREFIX): value
            for key, value in record.items()
            if key.startswith(_PREFIX) and value is not None
        }
    attributes = _attribute_values(attributes)
    span = span_of(record)
    span.failed = span.failed or "error.type" in attributes
    return span, attributes


def _attribute_values(attributes: Any) -> dict[str, Any]:
    """OTLP's list of keys and typed values as an object."""
    if isinstance(attributes, dict):
        return dict(attributes)
    return {
        str(item["key"]): _any_value(item.get("value"))
        for item in as_list(attributes)
        if isinstance(item, dict) and "key" in item
    }


def _any_value(value: Any) -> Any:
    """An OTLP ``AnyValue`` as plain JSON."""
    kind: str
    inner: Any
    kind, inner = next(iter(value.items()), ("", None)) if isinstance(value, dict) else ("", value)
    if kind == "intValue":
        return int(inner)
    if kind == "arrayValue":
        return list(map(_any_value, as_list(first_of(inner, "values"))))
    if kind == "kvlistValue":
        return _attribute_values(first_of(inner, "values"))
    return inner if kind.endswith("Value") or not kind else value


def _unflatten(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a.0.b": 1}`` as ``{"a": [{"b": 1}]}``; values that are nested stay nested."""
    root: dict[str, Any] = {}
    for key, value in attributes.items():
        target = root
        *path, last = str(key).split(".")
        for step in path:
            below = target.get(step)
            if not isinstance(below, dict):
                below = target[step] = {}
            target = below
        value, present = _inner(value), target.get(last)
        if isinstance(present, dict) and isinstance(value, dict):
            present.update(value)
        else:
            target[last] = value
    listed = _number_keys(root)
    return listed if isinstance(listed, dict) else root


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return _unflatten(value) if any("." in str(key) for key in value) else dict(value)
    return list(map(_inner, value)) if isinstance(value, list) else value


def _number_keys(value: Any) -> Any:
    """Objects whose keys are all numbers as lists."""
    if not isinstance(value, dict):
        return value
    if value and all(str(key).isdigit() for key in value):
        return [_number_keys(value[key]) for key in sorted(value, key=int)]
    return {key: _number_keys(item) for key, item in value.items()}
