"""The OpenAPI document as one page of HTML: no script, and nothing loaded from other hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font:14px/1.4 ui-monospace,monospace;background:#8881;padding:.1em .3em;border-radius:3px}
section{border-top:1px solid #8884;padding:1rem 0}
h3{margin:.2rem 0}table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0}
td,th{border-bottom:1px solid #8882}
:root{color-scheme:light dark}
"""


def render(document: Mapping[str, Any]) -> str:
    """The page of an OpenAPI document."""
    info = document["info"]
    title = escape(str(info["title"]))
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        f"<style>{_STYLE}</style><h1>{title} <small>{escape(str(info['version']))}</small></h1>",
        f"<p>{escape(str(info.get('description', '')))}</p>",
        "<p>The same for programs: <a href=openapi.json>openapi.json</a></p>",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.extend(_operation(document, path, method, operation))
    return "".join(parts)


def _operation(
    document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> Iterator[str]:
    yield f"<section><h3><code>{escape(method.upper())} {escape(path)}</code></h3>"
    yield f"<p>{escape(str(operation.get('description', '')))}</p>"
    content = operation.get("requestBody", {}).get("content", {})
    for kind, body in content.items():
        yield f"<p>Request, <code>{escape(kind)}</code></p>"
        yield from _fields(document, body["schema"])
    for status, response in operation["responses"].items():
        for body in response.get("content", {}).values():
            schema = body.get("schema", {})
            if status.startswith("2") and schema:
                yield f"<p>Response {escape(status)}</p>"
                yield from _fields(document, schema)
    refused = [status for status in operation["responses"] if not status.startswith("2")]
    if refused:
        yield f"<p>Refusals: {escape(', '.join(refused))}</p>"
    yield "</section>"


def _fields(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    schema = _resolve(document, schema)
    properties = schema.get("properties")
    if not properties:
        yield f"<p><code>{escape(_type(schema))}</code></p>"
        return
    required = set(schema.get("required", ()))
    yield "<table><tr><th>Field<th>Type<th>Meaning"
    for name, field in properties.items():
        need = "" if name in required else " <small>optional</small>"
        yield (
            f"<tr><td><code>{escape(name)}</code>{need}<td><code>{escape(_type(field))}</code>"
            f"<td>{escape(str(field.get('description', '')))}"
        )
    yield "</table>"


def _resolve(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = str(schema.get("$ref", ""))
    if not reference:
        choices = [item for item in schema.get("anyOf", ()) if item.get("type") != "null"]
        return _resolve(document, choices[0]) if len(choices) == 1 else schema
    found: Mapping[str, Any] = document["components"]["schemas"][reference.rsplit("/", 1)[-1]]
    return found


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " | ".join(_type(item) for item in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(repr(item) for item in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))
