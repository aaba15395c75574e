"""One call of the server's API as data, and a method that is written once for both clients."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from dtdr.net.http_requests import Answer, NoAnswerError, Request
from dtdr.serve.client.answers import InvalidRequestError, ServerError

Result = TypeVar("Result")
ResultOut = TypeVar("ResultOut", covariant=True)
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class Call(Generic[ResultOut]):
    """One request and how its answer is read.

    Attributes:
        read: the result, from the JSON of the answer; from None where there is no content, or
            where the failure is forgiven.
        is_repeatable: whether asking twice does no more than asking once.
        seconds: for an answer, where that takes longer than a ranking.
        forgives: whether a failure counts as an answer without content.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None
    read: Callable[[Any], ResultOut]
    is_repeatable: bool = True
    seconds: float | None = None
    forgives: Callable[[ServerError], bool] = lambda error: False

    def result(self, url: str, answer: Answer | NoAnswerError) -> ResultOut:
        """What the caller gets.

        Raises:
            ServerError: there is no answer, or it is an error, or not JSON.
        """
        try:
            content = _read(url, answer)
        except ServerError as error:
            if not self.forgives(error):
                raise
            content = None
        return self.read(content)


@dataclass(frozen=True, slots=True)
class Connection:
    """How a server is reached.

    Attributes:
        headers: of every request.
        seconds: for one try.
        transport: a ``Transport``, or an ``AsyncTransport``.
    """

    url: str
    headers: Mapping[str, str]
    seconds: float
    transport: Any

    def request(self, call: Call[Any]) -> Request:
        """The request of a call."""
        seconds = call.seconds or self.seconds
        return Request(
            call.method, self.url + call.path, call.body, self.headers, seconds, call.is_repeatable
        )


class Sync:
    """Sends calls and waits; a context manager that closes."""

    _connection: Connection

    def send(self, call: Call[Result]) -> Result:
        """The result of a call."""
        connection = self._connection
        try:
            answer = connection.transport.send(connection.request(call))
        except NoAnswerError as error:
            answer = error
        return call.result(connection.url, answer)

    def close(self) -> None:
        """Close the connections."""
        self._connection.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Async:
    """Sends calls from an event loop; an asynchronous context manager that closes."""

    _connection: Connection

    async def send(self, call: Call[Result]) -> Result:
        """The result of a call."""
        connection = self._connection
        try:
            answer = await connection.transport.send(connection.request(call))
        except NoAnswerError as error:
            answer = error
        return call.result(connection.url, answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class endpoint(Generic[Arguments, Result]):  # noqa: N801  # a decorator
    """Turns a method that describes a call into one that sends it.

    On an object whose ``send`` is a coroutine function the result is awaited.
    """

    def __init__(self, describe: Callable[Concatenate[Any, Arguments], Call[Result]]) -> None:
        returned: str = describe.__annotations__["return"]
        # What the sending method returns, for help().
        describe.__annotations__["return"] = returned.removeprefix("Call[").removesuffix("]")
        self.describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Call[Result]]: ...
    @overload
    def __get__(self, instance: Sync, owner: type) -> Callable[Arguments, Result]: ...
    @overload
    def __get__(self, instance: Async, owner: type) -> Callable[Arguments, Awaitable[Result]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """The describing function of a class; the sending method of an object."""
        if instance is None:
            return self.describe

        @functools.wraps(self.describe)
        def sent(*args: Arguments.args, **keywords: Arguments.kwargs) -> Any:
            return instance.send(self.describe(instance, *args, **keywords))

        return sent


def _read(url: str, answer: Answer | NoAnswerError) -> Any:
    """The JSON of an answer, None where there is none."""
    if isinstance(answer, NoAnswerError):
        if not answer.is_sent:
            raise ServerError(f"{url} was not reached: it {answer}; start it with: dtdr serve")
        raise ServerError(f"{url} {answer}; try again, or give more time")
    parsed: Any = None
    is_json = True
    if answer.content:
        try:
            parsed = json.loads(answer.content)
        except (ValueError, RecursionError):
            is_json = False
    if answer.is_success and is_json:
        return parsed
    error = parsed.get("error") if isinstance(parsed, Mapping) else None
    if not isinstance(error, Mapping):
        shown = answer.content[:80].decode("utf-8", "replace")
        status = 0 if answer.is_success else answer.status
        raise ServerError(
            f"this is not an answer of a dtdr server (status {answer.status}): {shown!r}",
            status=status,
        )
    kind = InvalidRequestError if answer.status in (400, 413, 422) else ServerError
    raise kind(
        f"the server refused: {error.get('message', 'without a reason')}",
        status=answer.status,
        kind=str(error.get("type", "")),
        request_id=str(error.get("request_id", "")),
    )
