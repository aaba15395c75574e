"""Spans as OTLP JSON, as Phoenix and OpenTelemetry SDKs print them, or as flat rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dtdr.errors import InputError
from dtdr.logs.log_format import as_list, decode_json, first_of, nanoseconds

WRAPPERS: Mapping[str, str] = {
    "resourceSpans": "resourceSpans.item.scopeSpans.item.spans.item",
    "resource_spans": "resource_spans.item.scope_spans.item.spans.item",
    "spans": "spans.item",
    "data": "data.item",
}

_ERRORS = (2, "2", "STATUS_CODE_ERROR", "ERROR", "StatusCode.ERROR")


@dataclass(slots=True)
class RawSpan:
    """A span with flat attributes, before any convention is applied.

    ``log`` says that it is a log record of the span with that id.
    """

    trace: str
    id: str
    parent: str
    name: str
    start: int = 0
    end: int = 0
    failed: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    log: bool = False
    kind: str = ""


def raw_spans(record: Any) -> Iterator[RawSpan]:
    """The spans and log records of an export batch, or the one span that a record is.

    Raises:
        InputError: it is neither.
    """
    if not isinstance(record, dict):
        raise InputError("a span must be a JSON object")
    batches = record.get("resourceSpans", record.get("resource_spans"))
    logs = record.get("resourceLogs", record.get("resource_logs"))
    if isinstance(batches, list) or isinstance(logs, list):
        for span in _iter_nested(batches, ("scopeSpans", "scope_spans"), ("spans",)):
            yield from raw_spans(span)
        for entry in _iter_nested(logs, ("scopeLogs", "scope_logs"), ("logRecords", "log_records")):
            yield _log(entry)
    elif isinstance(record.get("spans"), list):
        for span in record["spans"]:
            yield from raw_spans(span)
    elif record.keys() & {"spanId", "traceId", "context", "context.trace_id", "trace_id"}:
        yield _span(record)
    else:
        raise InputError("not a span: it has none of 'resourceSpans', 'spanId', 'context'")


def try_spans(record: Any) -> list[RawSpan]:
    """As ``raw_spans``; none where it is neither."""
    try:
        return list(raw_spans(record))
    except (InputError, TypeError, AttributeError, ValueError):
        return []


def _iter_nested(value: Any, middle: tuple[str, ...], inner: tuple[str, ...]) -> Iterator[Any]:
    for outer in as_list(value):
        for key in middle:
            for scope in outer.get(key) or ():
                for name in inner:
                    yield from scope.get(name) or ()


def _span(record: Mapping[str, Any]) -> RawSpan:
    """A span of OTLP, as an SDK prints it, or as a row of a table."""
    context = record.get("context")
    attributes = decode_json(record.get("attributes"))
    if not isinstance(attributes, (dict, list)):
        prefix = "attributes."
        attributes = {
            key.removeprefix(prefix): value
            for key, value in record.items()
            if key.startswith(prefix) and value is not None
        }
    attributes = attribute_values(attributes)
    status = first_of(record, "status", "status_code")
    code = first_of(status, "code", "status_code") if isinstance(status, dict) else status
    trace = first_of(context, "trace_id")
    identifier = first_of(context, "span_id")
    return RawSpan(
        trace=str(trace or first_of(record, "traceId", "context.trace_id", "trace_id") or ""),
        id=str(identifier or first_of(record, "spanId", "context.span_id", "span_id", "id") or ""),
        parent=str(first_of(record, "parentSpanId", "parent_id", "parent_span_id") or ""),
        name=str(record.get("name", "")),
        start=nanoseconds(first_of(record, "startTimeUnixNano", "start_time")),
        end=nanoseconds(first_of(record, "endTimeUnixNano", "end_time")),
        failed=code in _ERRORS or "error.type" in attributes,
        attributes=attributes,
        events=[
            (str(event.get("name", "")), attribute_values(event.get("attributes")))
            for event in as_list(record.get("events"))
            if isinstance(event, dict)
        ],
        kind=str(first_of(record, "span_kind", "kind") or ""),
    )


def _log(entry: Any) -> RawSpan:
    """A log record, as a span that has one event."""
    if not isinstance(entry, dict):
        raise InputError("a log record must be a JSON object")
    attributes = attribute_values(entry.get("attributes"))
    name = entry.get("eventName") or attributes.get("event.name") or ""
    body = any_value(entry.get("body"))
    at = nanoseconds(entry.get("timeUnixNano") or entry.get("observedTimeUnixNano"))
    event = (str(name), {**attributes, **body} if isinstance(body, dict) else attributes)
    span = RawSpan(str(entry.get("traceId", "")), str(entry.get("spanId", "")), "", str(name))
    span.start, span.end, span.events, span.log = at, at, [event], True
    return span


def attribute_values(attributes: Any) -> dict[str, Any]:
    """OTLP's list of keys and typed values as an object."""
    if isinstance(attributes, dict):
        return dict(attributes)
    return {
        str(item["key"]): any_value(item.get("value"))
        for item in attributes or ()
        if isinstance(item, dict) and "key" in item
    }


def any_value(value: Any) -> Any:
    """An OTLP ``AnyValue`` as plain JSON."""
    if not isinstance(value, dict):
        return value
    for key in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if key in value:
            return value[key]
    if "intValue" in value:
        return int(value["intValue"])
    if "arrayValue" in value:
        return [any_value(item) for item in (value["arrayValue"] or {}).get("values", ())]
    if "kvlistValue" in value:
        return attribute_values((value["kvlistValue"] or {}).get("values", ()))
    return dict(value) if value else None


def unflatten(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a.0.b": 1}`` as ``{"a": [{"b": 1}]}``; what is nested already stays nested."""
    root: dict[str, Any] = {}
    for key, value in attributes.items():
        target = root
        *path, last = str(key).split(".")
        for step in path:
            below = target.get(step)
            if not isinstance(below, dict):
                below = target[step] = {}
            target = below
        value = _inner(value)
        present = target.get(last)
        if isinstance(present, dict) and isinstance(value, dict):
            present.update(value)
        else:
            target[last] = value
    listed = _number_keys(root)
    return listed if isinstance(listed, dict) else root


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return unflatten(value) if any("." in str(key) for key in value) else dict(value)
    if isinstance(value, list):
        return [_inner(item) for item in value]
    return value


def _number_keys(value: Any) -> Any:
    """Objects whose keys are all numbers as lists."""
    if not isinstance(value, dict):
        return value
    if value and all(str(key).isdigit() for key in value):
        return [_number_keys(value[key]) for key in sorted(value, key=int)]
    return {key: _number_keys(item) for key, item in value.items()}
