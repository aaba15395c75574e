"""Spans as OTLP JSON, as Phoenix and OpenTelemetry SDKs print them, or as flat rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dtdr.errors import InputError
from dtdr.traces.base import decode_json
from dtdr.traces.times import nanoseconds

WRAPPERS: Mapping[str, str] = {
    "resourceSpans": "resourceSpans.item.scopeSpans.item.spans.item",
    "resource_spans": "resource_spans.item.scope_spans.item.spans.item",
    "spans": "spans.item",
    "data": "data.item",
}


@dataclass(slots=True)
class RawSpan:
    """A span with flat attributes, before any convention is applied.

    ``log`` says that it is a log record of the span with that id.
    """

    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    events: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
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
    elif "spanId" in record or "traceId" in record:
        yield _otlp(record)
    elif "context" in record or "context.trace_id" in record or "trace_id" in record:
        yield _row(record)
    else:
        raise InputError("not a span: it has none of 'resourceSpans', 'spanId', 'context'")


def try_spans(record: Any) -> list[RawSpan]:
    """As ``raw_spans``; none where it is neither."""
    try:
        return list(raw_spans(record))
    except (InputError, TypeError, AttributeError, ValueError):
        return []


def _iter_nested(value: Any, middle: tuple[str, ...], inner: tuple[str, ...]) -> Iterator[Any]:
    for outer in value if isinstance(value, list) else ():
        for key in middle:
            for scope in outer.get(key) or ():
                for name in inner:
                    yield from scope.get(name) or ()


def _otlp(span: Mapping[str, Any]) -> RawSpan:
    status = span.get("status")
    code = status.get("code") if isinstance(status, dict) else status
    attributes = attribute_values(span.get("attributes"))
    return RawSpan(
        trace=str(span.get("traceId", "")),
        id=str(span.get("spanId", "")),
        parent=str(span.get("parentSpanId") or ""),
        name=str(span.get("name", "")),
        start=nanoseconds(span.get("startTimeUnixNano")),
        end=nanoseconds(span.get("endTimeUnixNano")),
        failed=code in (2, "2", "STATUS_CODE_ERROR", "ERROR") or "error.type" in attributes,
        attributes=attributes,
        events=[
            (
                str(event.get("name", "")),
                nanoseconds(event.get("timeUnixNano")),
                attribute_values(event.get("attributes")),
            )
            for event in span.get("events") or ()
            if isinstance(event, dict)
        ],
    )


def _log(entry: Any) -> RawSpan:
    if not isinstance(entry, dict):
        raise InputError("a log record must be a JSON object")
    attributes = attribute_values(entry.get("attributes"))
    name = entry.get("eventName") or attributes.get("event.name") or ""
    body = any_value(entry.get("body"))
    at = nanoseconds(entry.get("timeUnixNano") or entry.get("observedTimeUnixNano"))
    if isinstance(body, dict):
        attributes = {**attributes, **body}
    return RawSpan(
        trace=str(entry.get("traceId", "")),
        id=str(entry.get("spanId", "")),
        parent="",
        name=str(name),
        start=at,
        end=at,
        failed=False,
        attributes={},
        events=[(str(name), at, attributes)],
        log=True,
    )


def _row(row: Mapping[str, Any]) -> RawSpan:
    context = row.get("context")
    if not isinstance(context, dict):
        context = {
            "trace_id": row.get("context.trace_id", row.get("trace_id")),
            "span_id": row.get("context.span_id", row.get("span_id", row.get("id"))),
        }
    attributes = decode_json(row.get("attributes"))
    if not isinstance(attributes, dict):
        prefix = "attributes."
        attributes = {
            key.removeprefix(prefix): value
            for key, value in row.items()
            if key.startswith(prefix) and value is not None
        }
    status = row.get("status", row.get("status_code"))
    code = status.get("status_code") if isinstance(status, dict) else status
    parent = row.get("parent_id") or row.get("parent_span_id") or ""
    events = row.get("events")
    return RawSpan(
        trace=str(context.get("trace_id") or ""),
        id=str(context.get("span_id") or ""),
        parent=str(parent),
        name=str(row.get("name", "")),
        start=nanoseconds(row.get("start_time")),
        end=nanoseconds(row.get("end_time")),
        failed=code in ("ERROR", "StatusCode.ERROR", 2) or "error.type" in attributes,
        attributes=dict(attributes),
        events=[
            (
                str(event.get("name", "")),
                nanoseconds(event.get("timestamp")),
                dict(event.get("attributes") or {}),
            )
            for event in (events if isinstance(events, list) else ())
            if isinstance(event, dict)
        ],
        kind=str(row.get("span_kind", row.get("kind", ""))),
    )


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
    listed = _as_list(root)
    return listed if isinstance(listed, dict) else root


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return unflatten(value) if any("." in str(key) for key in value) else dict(value)
    if isinstance(value, list):
        return [_inner(item) for item in value]
    return value


def _as_list(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(str(key).isdigit() for key in value):
        return [_as_list(value[key]) for key in sorted(value, key=int)]
    return {key: _as_list(item) for key, item in value.items()}
