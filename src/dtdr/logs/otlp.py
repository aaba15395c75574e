"""Spans as OTLP JSON, as Phoenix and OpenTelemetry SDKs print them, or as flat rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dtdr.errors import InputError
from dtdr.logs.log_format import as_list, decode_json, first_of
from dtdr.logs.spans import Span, span_of

_CONTAINERS = ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "spans")
_IDS = ("spanId", "traceId", "context", "context.trace_id", "trace_id")
_OTHERS = ("resourceLogs", "resourceMetrics", "resource", "scope")
_PREFIX = "attributes."


def open_spans(record: Any) -> Iterator[tuple[Span, dict[str, Any]]]:
    """The spans of an export batch, or the one span that a record is, with their attributes.

    Raises:
        InputError: it is neither.
    """
    if not isinstance(record, dict):
        raise InputError("a span must be a JSON object")
    if isinstance(inner := first_of(record, *_CONTAINERS), list):
        for item in inner:
            yield from open_spans(item)
    elif not record.keys().isdisjoint(_IDS):
        yield _read(record)
    elif record.keys().isdisjoint(_OTHERS):
        raise InputError("not a span: it has none of 'resourceSpans', 'spanId', 'context'")


def try_spans(record: Any) -> list[tuple[Span, dict[str, Any]]]:
    """As ``open_spans``; empty for anything else."""
    try:
        return list(open_spans(record))
    except (InputError, TypeError, AttributeError, ValueError):
        return []


def _read(record: Mapping[str, Any]) -> tuple[Span, dict[str, Any]]:
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


def unflatten(attributes: Mapping[str, Any]) -> dict[str, Any]:
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
        return unflatten(value) if any("." in str(key) for key in value) else dict(value)
    return list(map(_inner, value)) if isinstance(value, list) else value


def _number_keys(value: Any) -> Any:
    """Objects whose keys are all numbers as lists."""
    if not isinstance(value, dict):
        return value
    if value and all(str(key).isdigit() for key in value):
        return [_number_keys(value[key]) for key in sorted(value, key=int)]
    return {key: _number_keys(item) for key, item in value.items()}
