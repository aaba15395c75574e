"""The OpenAPI document of the endpoints, also as a page."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import msgspec

from dtdr._version import VERSION
from dtdr.serve.server.endpoints import REFUSALS, Endpoint
from dtdr.serve.server.schemas import ErrorResponse

_DESCRIPTION = (
    "Ranks which tools an agent needs next, from the query and the calls made so far. "
    "Keys are sent as 'Authorization: Bearer KEY' where the server was started with keys."
)
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font:14px/1.4 ui-monospace,monospace;background:#8881;padding:.1em .3em;border-radius:3px}
section{border-top:1px solid #8884;padding:1rem 0}h3{margin:.2rem 0}
pre{white-space:pre-wrap;font:13px/1.4 ui-monospace,monospace}
:root{color-scheme:light dark}
"""


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document; the schemas are those of the functions' annotations."""
    kinds = (kind for endpoint in endpoints for kind in (endpoint.body, endpoint.result))
    types = dict.fromkeys([*filter(_is_struct, kinds), ErrorResponse])
    described, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    contents = {
        kind: {"application/json": {"schema": schema}}
        for kind, schema in zip(types, described, strict=True)
    }
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, contents)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "dtdr", "version": VERSION, "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": components},
    }


def _is_struct(kind: Any) -> bool:
    """Whether a body or result is JSON; others are text, or nothing."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _operation(endpoint: Endpoint, contents: Mapping[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.name.replace("_", " ").capitalize(),
        "description": inspect.getdoc(endpoint.function),
        "operationId": endpoint.name,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ],
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.needs_body,
            "content": contents[endpoint.body],
        }
    success: dict[str, Any] = {"description": "Done."}
    if _is_struct(endpoint.result):
        success["content"] = contents[endpoint.result]
    elif endpoint.result is not None:
        success["content"] = {endpoint.result.media_type: {"schema": {"type": "string"}}}
    refusals = {
        str(status): {"description": text, "content": contents[ErrorResponse]}
        for status, (_, text) in REFUSALS.items()
        if text
    }
    operation["responses"] = {str(endpoint.status): success, **refusals}
    return operation


def page(document: Mapping[str, Any]) -> str:
    """An OpenAPI document as a page without scripts that loads nothing."""
    info = document["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{info['title']}</title>"
        f"<style>{_STYLE}</style><h1>{info['title']} <small>{info['version']}</small></h1>"
        f"<p>{escape(info['description'])}</p>"
        "<p>For programs: <a href=openapi.json>openapi.json</a></p>"
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            text = json.dumps(operation)
            names = dict.fromkeys(re.findall(r"#/components/schemas/(\w+)", text))
            parts.append(
                f"<section><h3><code>{method.upper()} {escape(path)}</code></h3>"
                f"<p>{escape(operation['description'])}</p><p>{', '.join(names)}</p></section>"
            )
    parts.append("<h2>Requests and responses</h2>")
    for name, schema in document["components"]["schemas"].items():
        text = escape(json.dumps(schema, indent=1, ensure_ascii=False))
        parts.append(f"<section id={name}><h3>{name}</h3><pre>{text}</pre></section>")
    return "".join(parts)
