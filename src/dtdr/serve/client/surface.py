"""A method that is written once for both clients, and how it asks the server."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Coroutine, Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from dtdr.net.http_requests import NoAnswerError, Request, wait_for
from dtdr.serve.client.answers import InvalidRequestError, ServerError

if TYPE_CHECKING:
    from dtdr.net.http_transport import AsyncTransport

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


class Connection:
    """How a server is reached.

    Attributes:
        headers: of every request.
        seconds: for one try.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], seconds: float, transport: AsyncTransport
    ) -> None:
        self.url = url
        self.headers = headers
        self.seconds = seconds
        self.transport = transport

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        is_repeatable: bool = True,
        seconds: float | None = None,
    ) -> Any:
        """The JSON that the server answers, None where it has no content.

        Args:
            method: of HTTP.
            path: on the server.
            body: sent as JSON, without the fields that are None.
            is_repeatable: whether asking twice does no more than asking once.
            seconds: for one try, where that takes longer than a ranking.

        Raises:
            ServerError: there is no answer, or it is an error, or not JSON.
        """
        if body is not None:
            body = {name: value for name, value in body.items() if value is not None}
        seconds = seconds or self.seconds
        request = Request(method, self.url + path, body, self.headers, seconds, is_repeatable)
        try:
            answer = await self.transport.send(request)
        except NoAnswerError as error:
            if not error.is_sent:
                text = f"{self.url} was not reached: it {error}; start it with: dtdr serve"
                raise ServerError(text) from None
            raise ServerError(f"{self.url} {error}; try again, or give more time") from None
        try:
            content = json.loads(answer.content) if answer.content else None
        except (ValueError, RecursionError):
            content = answer.content
        if answer.is_success and content is not answer.content:
            return content
        refusal = content.get("error") if isinstance(content, Mapping) else None
        if not isinstance(refusal, Mapping):
            shown = answer.content[:80].decode("utf-8", "replace")
            raise ServerError(
                f"this is not an answer of a dtdr server (status {answer.status}): {shown!r}",
                status=0 if answer.is_success else answer.status,
            )
        kind = InvalidRequestError if answer.status in (400, 413, 422) else ServerError
        raise kind(
            f"the server refused: {refusal.get('message', 'without a reason')}",
            status=answer.status,
            kind=str(refusal.get("type", "")),
            request_id=str(refusal.get("request_id", "")),
        )
