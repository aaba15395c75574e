"""Methods that are written once for both clients, and how they ask the server."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from dtdr.net.http_requests import NoAnswerError, Request, Transport, wait_for
from dtdr.serve.client.answers import InvalidRequestError, ServerError

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class Blocking:
    """Waits for its endpoints; a context manager that closes."""

    close: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Awaited:
    """Has its endpoints awaited; an asynchronous context manager that closes."""

    close: Callable[[], Coroutine[Any, Any, None]]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class endpoint(Generic[Arguments, Result]):  # noqa: N801  # a decorator
    """A coroutine method; a ``Blocking`` class waits for its result."""

    def __init__(
        self, method: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Result]]
    ) -> None:
        self.method = method

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[Arguments, Result]: ...
    @overload
    def __get__(
        self, instance: Awaited, owner: type
    ) -> Callable[Arguments, Coroutine[Any, Any, Result]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """The method as it is, or one that waits."""
        if instance is None:
            return self.method
        method = MethodType(self.method, instance)
        if not issubclass(owner, Blocking):
            return method

        @functools.wraps(method)
        def wait(*args: Any, **keywords: Any) -> Any:
            return wait_for(method(*args, **keywords))

        return wait


@dataclass(frozen=True)
class Connection:
    """Asks one server; a try has ``seconds``, unless a request needs more."""

    url: str
    headers: Mapping[str, str]
    seconds: float
    transport: Transport

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        is_repeatable: bool = True,
        seconds: float | None = None,
    ) -> Any:
        """The JSON of the answer, None for an empty one; fields of the body that are None stay out.

        Raises:
            ServerError: there is no answer, or it is an error, or not JSON.
        """
        if body is not None:
            body = {name: value for name, value in body.items() if value is not None}
        request = Request(
            method, self.url + path, body, self.headers, seconds or self.seconds, is_repeatable
        )
        try:
            answer = await self.transport.send(request)
        except NoAnswerError as error:
            is_sent = error.is_sent
            remedy = "try again, or give more time" if is_sent else "start it with: dtdr serve"
            raise ServerError(f"{self.url} {error}; {remedy}") from None
        try:
            content = json.loads(answer.content or b"null")
            if answer.is_success:
                return content
            refusal = content["error"]
            message, kind, request_id = refusal["message"], refusal["type"], refusal["request_id"]
        except (ValueError, TypeError, KeyError, RecursionError):
            shown = answer.content[:80].decode("utf-8", "replace")
            raise ServerError(
                f"this is not an answer of a dtdr server (status {answer.status}): {shown!r}",
                status=0 if answer.is_success else answer.status,
            ) from None
        error_type = InvalidRequestError if answer.status in (400, 413, 422) else ServerError
        raise error_type(
            f"the server refused: {message}",
            status=answer.status,
            kind=str(kind),
            request_id=str(request_id),
        )
