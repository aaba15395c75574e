"""The OpenAPI document of the endpoints, and the same as a page of HTML."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import msgspec
from starlette.responses import Response

import dtdr
from dtdr.serve.server.endpoints import REFUSALS, Endpoint
from dtdr.serve.server.model_schemas import ErrorResponse

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
    for status, (_, text) in REFUSALS.items():
        if not text:
            continue
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
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>",
        f"<style>{_STYLE}</style><h1>{escape(info['title'])} <small>{escape(info['version'])}",
        f"</small></h1><p>{escape(info['description'])}</p>",
        "<p>The same for programs: <a href=openapi.json>openapi.json</a></p>",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            title = escape(f"{method.upper()} {path}")
            parts.append(f"<section><h3><code>{title}</code></h3>")
            parts.append(f"<p>{escape(operation['description'])}</p>")
            parts += _schemas("Request", operation.get("requestBody", {}))
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    parts += _schemas(f"Response {status}", response)
            refused = [item for item in operation["responses"] if not item.startswith("2")]
            parts.append(f"<p>Refusals: {', '.join(refused)}</p></section>")
    parts.append("<h2>Requests and responses</h2>")
    for name, schema in document["components"]["schemas"].items():
        text = json.dumps(schema, indent=1, ensure_ascii=False)
        parts.append(f"<section id={escape(name)}><h3>{escape(name)}</h3>")
        parts.append(f"<pre>{escape(text)}</pre></section>")
    return "".join(parts)


def _schemas(what: str, described: Mapping[str, Any]) -> Iterator[str]:
    """Which schema a request or response has; the page has them all below."""
    for content in described.get("content", {}).values():
        reference = re.findall(r"#/components/schemas/(\w+)", json.dumps(content))
        for name in dict.fromkeys(reference):
            yield f"<p>{what}: <code>{escape(name)}</code></p>"
