"""Methods that are written once for both clients, how they ask the server, and its answers."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import msgspec

from dtdr.errors import DtdrError, InputError
from dtdr.net.http_requests import Request, Transport, wait_for
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.serve.server import schemas

Answer = TypeVar("Answer")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class ServerError(DtdrError):
    """A server refused, failed, or was not reached.

    Attributes:
        status: of the HTTP response; 0 without one.
        kind: what went wrong, such as ``not_found``.
        request_id: names the request in the server's log.
    """

    def __init__(
        self, message: str, *, status: int = 0, kind: str = "", request_id: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.request_id = status, kind, request_id


class InvalidRequestError(ServerError, InputError):
    """A server refused the content of a request."""

    exit_code = 2


class RemoteRanking(msgspec.Struct, frozen=True):
    """The tools that a server sent, best first; reads like ``dtdr.Ranking``.

    Attributes:
        confidence: how likely the best tool is an acceptable one.
        is_familiar: whether the query is like the demonstrations.
        is_none_of_these: whether no tool seems wanted.
        unknown_tools: names in the history that the model never saw.
        model: name of the model.
        generation: grows whenever the model is reloaded or learns.
    """

    _ranked: tuple[schemas.RankedTool, ...] = msgspec.field(name="tools")
    confidence: float
    is_familiar: bool = msgspec.field(name="familiar")
    is_none_of_these: bool = msgspec.field(name="none_of_these")
    unknown_tools: tuple[str, ...]
    model: str
    generation: int

    @property
    def tools(self) -> tuple[str, ...]:
        """Names, best first, never empty."""
        return tuple(item.tool for item in self._ranked)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probabilities of ``tools``, over all tools of the model; may sum to less than 1."""
        return tuple(item.probability for item in self._ranked)

    @property
    def best(self) -> str:
        """The most probable next tool."""
        return self.tools[0]

    def top(self, top_k: int) -> list[tuple[str, float]]:
        """The ``top_k`` most probable tools with their probabilities, of those that were sent."""
        return list(zip(self.tools[:top_k], self.probabilities[:top_k], strict=True))

    def probability(self, tool: str) -> float:
        """Probability of a tool; 0 for one that was not sent."""
        return dict(self).get(tool, 0.0)

    def __len__(self) -> int:
        return len(self.tools)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(zip(self.tools, self.probabilities, strict=True))


def read_search(answer: schemas.SearchResponse) -> list[tuple[str, float]]:
    """The tools that a search found, with their shares."""
    return [(item.tool, item.score) for item in answer.tools]


def read_plans(answer: schemas.PlansResponse) -> list[PlanPrediction]:
    """Predicted plans."""
    return [PlanPrediction.from_dict(msgspec.to_builtins(plan)) for plan in answer.plans]


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
class ServerConnection:
    """Asks one server; a try has ``seconds``, unless a request needs more."""

    url: str
    headers: Mapping[str, str]
    seconds: float
    transport: Transport

    async def ask(
        self,
        path: str,
        fields: Mapping[str, Any] | None,
        kind: type[Answer],
        *,
        method: str = "POST",
        is_repeatable: bool = True,
        seconds: float | None = None,
    ) -> Answer:
        """Send a request, and read the answer as this type.

        Args:
            path: below ``/v1/``.
            fields: of the body, but for those that are None; without any, there is no body.
            kind: one of ``dtdr.serve.server.schemas``; ``object`` takes any answer.
            method: of HTTP.
            is_repeatable: whether sending twice does no more than sending once.
            seconds: for a try.

        Raises:
            ServerError: there is no answer, it is an error, or it is none of a dtdr server.
        """
        body = fields and {name: value for name, value in fields.items() if value is not None}
        seconds, url = seconds or self.seconds, f"{self.url}/v1/{path}"
        request = Request(method, url, body, self.headers, seconds, is_repeatable)
        answer = await self.transport.send(request)
        if answer.problem:
            is_sent = answer.is_sent
            remedy = "try again, or give more time" if is_sent else "start it with: dtdr serve"
            raise ServerError(f"{self.url} {answer.problem}; {remedy}")
        try:
            content = json.loads(answer.content or b"null")
            if answer.is_success:
                return msgspec.convert(content, kind)
            refusal = msgspec.convert(content, schemas.ErrorResponse).error
        except (ValueError, RecursionError):
            shown = answer.content[:80].decode("utf-8", "replace")
            raise ServerError(
                f"this is not an answer of a dtdr server (status {answer.status}): {shown!r}",
                status=0 if answer.is_success else answer.status,
            ) from None
        raise (InvalidRequestError if answer.status in (400, 413, 422) else ServerError)(
            f"the server refused: {refusal.message}",
            status=answer.status,
            kind=refusal.type,
            request_id=refusal.request_id,
        )
