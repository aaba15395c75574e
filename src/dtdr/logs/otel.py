"""OpenTelemetry spans of any convention: OTLP JSON, as SDKs and Phoenix print them, or as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr.conversation.groups import find_group
from dtdr.conversation.values import as_list, decode_json, first_of
from dtdr.errors import InputError
from dtdr.logs.conventions import PREFIXES, flatten, kind_of, read_attributes
from dtdr.logs.spans import Span, SpanFormat, span_of

_CONTAINERS = ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "spans", "data")
_IDS = ("spanId", "traceId", "context", "context.trace_id", "trace_id", "span_id")
_OTHERS = ("resourceLogs", "resourceMetrics", "resource", "scope", "info")
_PREFIX = "attributes."


class OpenTelemetry(SpanFormat):
    """Spans with attributes of GenAI, OpenLLMetry, the Vercel AI SDK, MLflow, Logfire or others."""

    name: ClassVar[str] = "otel"
    title: ClassVar[str] = "OpenTelemetry spans of agents (OTLP JSON or lines)"
    needs: ClassVar[str] = (
        f"spans with attributes of an agent's convention ({', '.join(PREFIXES[:6])} …)"
    )

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has a span with an attribute of a known convention."""
        return any(
            str(key).startswith(PREFIXES)
            for _, attributes in _open_spans(record)
            for key in attributes
        )

    @classmethod
    def lacks(cls, record: Any) -> str:
        """The names of attributes that spans of another convention have."""
        seen: Counter[str] = Counter()
        names: Counter[str] = Counter()
        for span, attributes in _open_spans(record):
            seen.update({str(key).split(".")[0] for key in attributes})
            names[span.tool] += 1
        if not names:
            return ""
        prefixes = ", ".join(f"{key}.*" for key, _ in seen.most_common(5)) or "none"
        spans = ", ".join(name for name, _ in names.most_common(3))
        return f"has spans ({spans}) with attributes {prefixes}"

    def spans(self, record: Any) -> Iterator[Span]:
        """The spans of an export batch, or one span; see ``SpanFormat.spans``."""
        for span, attributes in _open_spans(record):
            is_handoff = span.tool.startswith("handoff to ")
            read_attributes(span, attributes, self.tools)
            if self.group_by:
                span.group = find_group(dict(attributes), self.group_by) or span.group
            if is_handoff and span.kind == "tool":  # OpenAI Agents: from and to are agents' names
                span.tool, span.arguments, span.output = f"agent:{span.output}", {}, None
            yield span


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
        return any("openinference.span.kind" in each for _, each in _open_spans(record))

    @classmethod
    def lacks(cls, record: Any) -> str:
        """Nothing; the other format of spans says what it lacks."""
        return ""


def _open_spans(record: Any) -> Iterator[tuple[Span, dict[str, Any]]]:
    """The spans of an export batch, or the one span that a record is, with their attributes.

    Raises:
        InputError: it is neither.
    """
    if not isinstance(record, dict):
        raise InputError("a span must be a JSON object")
    inner = first_of(record, *_CONTAINERS)
    if isinstance(inner, dict):  # MLflow
        inner = inner.get("spans")
    if isinstance(inner, list):
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
    attributes = flatten(_attribute_values(attributes))
    for event in as_list(record.get("events")):  # messages as events, before they were attributes
        _read_event(event, attributes)
    span = span_of(record)
    span.kind = kind_of({"openinference.span.kind": span.kind})
    return span, attributes


_EVENT_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


def _read_event(event: Any, attributes: dict[str, Any]) -> None:
    """Add the message of a span's event to its attributes."""
    values = _attribute_values(first_of(event, "attributes"))
    name = first_of(event, "name")
    if name == "gen_ai.client.inference.operation.details":
        attributes |= values
    elif name in _EVENT_ROLES:
        asked = attributes.setdefault("gen_ai.prompt", [])
        if isinstance(asked, list):
            asked.append({"role": _EVENT_ROLES[name], **values})
    elif name == "gen_ai.choice":
        message = decode_json(values.get("message"))
        said = message if isinstance(message, dict) else {"content": message, **values}
        attributes.setdefault("gen_ai.completion", [{"role": "assistant", **said}])


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
