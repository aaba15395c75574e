"""The OpenAPI document of the endpoints, and the same as a page of HTML."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import msgspec
from starlette.responses import Response

import dtdr
from dtdr.server.endpoints import Endpoint
from dtdr.server.model_schemas import ErrorResponse

_DESCRIPTION = (
    "Ranks which tools an agent needs next, from the query and the calls made so far. "
    "Keys are sent as 'Authorization: Bearer KEY' where the server was started with keys."
)
_REFUSALS = {
    400: "The body cannot be read.",
    401: "No valid key.",
    403: "The key may not do this.",
    404: "There is no such model or session.",
    408: "The body took too long.",
    409: "The model cannot do this as it is.",
    413: "The body is too large.",
    421: "The host is not this machine's.",
    422: "The request is not valid.",
    429: "Too many sessions are open.",
    502: "The model's encoder failed.",
    503: "The model folder cannot be used.",
}
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font:14px/1.4 ui-monospace,monospace;background:#8881;padding:.1em .3em;border-radius:3px}
section{border-top:1px solid #8884;padding:1rem 0}
h3{margin:.2rem 0}table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0}
td,th{border-bottom:1px solid #8882}
:root{color-scheme:light dark}
"""


# -- the document ------------------------------------------------------------------------------


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document; the schemas are those of the functions' annotations."""
    types = list(dict.fromkeys(kind for endpoint in endpoints for kind in _types(endpoint)))
    described, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    references = dict(zip(types, described, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, references)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "dtdr", "version": dtdr.__version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": components},
    }


def _types(endpoint: Endpoint) -> Iterator[Any]:
    if endpoint.body is not None:
        yield endpoint.body.annotation
    if not _is_text(endpoint.result) and endpoint.result is not None:
        yield endpoint.result
    yield from endpoint.others.values()
    yield ErrorResponse


def _is_text(result: Any) -> bool:
    return isinstance(result, type) and issubclass(result, Response)


def _operation(endpoint: Endpoint, references: Mapping[Any, Any]) -> dict[str, Any]:
    name = endpoint.function.__name__
    operation: dict[str, Any] = {
        "summary": name.replace("_", " ").capitalize(),
        "description": inspect.getdoc(endpoint.function),
        "operationId": name,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ],
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.body.default is inspect.Parameter.empty,
            "content": _json(references[endpoint.body.annotation]),
        }
    success: dict[str, Any] = {"description": "Done."}
    if _is_text(endpoint.result):
        success["content"] = {endpoint.result.media_type: {"schema": {"type": "string"}}}
    elif endpoint.result is not None:
        success["content"] = _json(references[endpoint.result])
    operation["responses"] = {str(endpoint.status): success}
    for status, text in _REFUSALS.items():
        kind = endpoint.others.get(status, ErrorResponse)
        operation["responses"][str(status)] = {
            "description": text,
            "content": _json(references[kind]),
        }
    return operation


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


# -- the page ----------------------------------------------------------------------------------


def page(document: Mapping[str, Any]) -> str:
    """The page of an OpenAPI document: no script, and nothing loaded from other hosts."""
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
            parts.extend(_section(document, path, method, operation))
    return "".join(parts)


def _section(
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
    resolved: Mapping[str, Any] = document["components"]["schemas"][reference.rsplit("/", 1)[-1]]
    return resolved


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
