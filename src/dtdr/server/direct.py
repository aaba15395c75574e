"""The short way to the endpoints that agents call at every step.

FastAPI describes them and could answer them; but its way through routers, dependencies and stacks
took .13 ms a request, as long as all else that the server does around a ranking. Whatever is not a
plain, valid request is left to FastAPI, so that refusals are written in one place.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

_BODY = "given"
"""What endpoints call the argument that takes the body."""


@dataclass(frozen=True)
class _Endpoint:
    route: APIRoute
    body: TypeAdapter[Any]
    parameters: Mapping[str, TypeAdapter[Any]]


class Direct:
    """The POST endpoints of some routers that have a body, by path.

    Args:
        routers: whose endpoints take the request, the parameters of their path and ``given``.
    """

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        self._endpoints = {
            re.sub(r"{\w+}", "{}", route.path): _endpoint(route)
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and "POST" in (route.methods or ())
        }

    def find(
        self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], body: bytes
    ) -> tuple[APIRoute, Callable[[Request], Awaitable[Response]]] | None:
        """The route of a request and what answers it; None for one that FastAPI has to see."""
        if scope["method"] != "POST" or scope.get("root_path") or not body:
            return None
        kind = headers.get(b"content-type", b"")
        if kind != b"application/json" and not kind.startswith(b"application/json;"):
            return None
        path: str = scope["path"]
        given: list[str] = []
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            parts = path.split("/")
            if len(parts) != 5:  # "", "v1", "sessions", an identifier, an action
                return None
            given = [parts[3]]
            endpoint = self._endpoints.get(f"/{parts[1]}/{parts[2]}/{{}}/{parts[4]}")
            if endpoint is None:
                return None
        try:
            arguments = {
                name: adapter.validate_python(value)
                for (name, adapter), value in zip(endpoint.parameters.items(), given, strict=True)
            }
            arguments[_BODY] = endpoint.body.validate_json(body)
        except (ValidationError, RecursionError):
            return None
        call = endpoint.route.endpoint
        return endpoint.route, lambda request: call(request, **arguments)


def _endpoint(route: APIRoute) -> _Endpoint:
    taken = signature(route.endpoint, eval_str=True).parameters
    adapters = {
        name: TypeAdapter(parameter.annotation)
        for name, parameter in taken.items()
        if name != "request"
    }
    return _Endpoint(route, adapters.pop(_BODY), adapters)
