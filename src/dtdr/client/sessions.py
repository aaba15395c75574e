"""Sessions on the server: one query, encoded once, and the calls made for it."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from typing import Any, Self, TypeVar, Unpack

from dtdr.arguments.prediction import CallPrediction
from dtdr.calls import ToolCall
from dtdr.client.answers import RemoteRanking, read_calls, read_plans, read_search, read_surprise
from dtdr.client.calls import Call, endpoint
from dtdr.plans.prediction import PlanPrediction
from dtdr.retrievers.search import SEARCH_LIMIT
from dtdr.retrievers.surprise import Surprise
from dtdr.run import CallLike
from dtdr.selection import Bounds, Selection

Result = TypeVar("Result")


class Closing(ABC):
    """A context manager that closes."""

    @abstractmethod
    def close(self) -> None:
        """End what was opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClosing(ABC):
    """An asynchronous context manager that closes."""

    @abstractmethod
    async def close(self) -> None:
        """End what was opened."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Sessions:
    """A session's calls.

    Attributes:
        id: names the session on the server.
        query: what the user asked for.
        history: names of the tools called so far, oldest first.
    """

    def __init__(self, client: Any, identifier: str, query: str, history: Sequence[str]) -> None:
        self._client = client
        self.id = identifier
        self.query = query
        self.history: tuple[str, ...] = tuple(history)

    @endpoint
    def rank(
        self,
        *,
        selection: Selection | None = None,
        **bounds: Unpack[Bounds],
    ) -> Call[RemoteRanking]:
        """Rank the tools for the next step; see ``Client.rank``."""
        body = Selection.of(selection, bounds).to_dict()
        return Call("POST", f"/v1/sessions/{self.id}/rank", body, RemoteRanking.read)

    @endpoint
    def search(
        self, text: str, k: int = SEARCH_LIMIT, *, among: Collection[str] | None = None
    ) -> Call[list[tuple[str, float]]]:
        """The tools that an agent means which says what it lacks; see ``Client.search``."""
        body: dict[str, Any] = {"text": text, "top_k": k}
        if among is not None:
            body["among"] = list(among)
        return Call("POST", f"/v1/sessions/{self.id}/search", body, read_search)

    @endpoint
    def surprise(self, call: CallLike) -> Call[Surprise]:
        """How odd a call is at this step; see ``Client.surprise``."""
        path = f"/v1/sessions/{self.id}/surprise"
        return Call("POST", path, {"call": call_record(call)}, read_surprise)

    @endpoint
    def next_calls(self, k: int = 3) -> Call[list[CallPrediction]]:
        """The next calls with their arguments; see ``Client.next_calls``."""
        return Call("POST", f"/v1/sessions/{self.id}/calls", {"top_k": k}, read_calls)

    @endpoint
    def fill(self, tool: str) -> Call[CallPrediction]:
        """The most probable arguments of a tool; see ``Client.fill``."""
        path = f"/v1/sessions/{self.id}/calls"
        return Call("POST", path, {"tool": tool}, lambda answer: read_calls(answer)[0])

    @endpoint
    def plans(self, k: int = 5) -> Call[list[PlanPrediction]]:
        """What is left to do; see ``Client.plans``."""
        return Call("POST", f"/v1/sessions/{self.id}/plans", {"top_k": k}, read_plans)

    @endpoint
    def _delete(self) -> Call[None]:
        return Call(
            "DELETE",
            f"/v1/sessions/{self.id}",
            None,
            lambda _: None,
            forgives=lambda error: error.status == 404,
        )

    def _add_calls(self, calls: Sequence[CallLike]) -> Call[tuple[str, ...]]:
        return Call(
            "POST",
            f"/v1/sessions/{self.id}/call",
            {
                "tools": list(map(call_record, calls)),
                "idempotency_key": secrets.token_hex(8),
            },
            lambda answer: tuple(answer["history"]),
        )


class RemoteSession(_Sessions, Closing):
    """One query, encoded once on the server, and the calls made for it.

    A context manager: it is deleted on the server when the block ends.
    """

    def call(self, *calls: CallLike) -> Self:
        """Tell the session that tools were called: names, calls with outputs, or JSON objects."""
        self.history = self.send(self._add_calls(calls))
        return self

    def close(self) -> None:
        """Delete the session on the server; one that is gone already is not an error."""
        self._delete()

    def send(self, call: Call[Result]) -> Result:
        """Send one call."""
        result: Result = self._client.send(call)
        return result


class AsyncRemoteSession(_Sessions, AsyncClosing):
    """One query, encoded once on the server, and the calls made for it.

    An asynchronous context manager: it is deleted on the server when the block ends.
    """

    async def call(self, *calls: CallLike) -> Self:
        """Tell the session that tools were called: names, calls with outputs, or JSON objects."""
        self.history = await self.send(self._add_calls(calls))
        return self

    async def close(self) -> None:
        """Delete the session on the server; one that is gone already is not an error."""
        await self._delete()

    async def send(self, call: Call[Result]) -> Result:
        """Send one call."""
        result: Result = await self._client.send(call)
        return result


class OpeningSession(Awaitable[AsyncRemoteSession]):
    """A session that is opened when it is awaited, or entered as a context manager."""

    def __init__(self, open_session: Callable[[], Awaitable[AsyncRemoteSession]]) -> None:
        self._open = open_session
        self._session: AsyncRemoteSession | None = None

    def __await__(self) -> Generator[Any, None, AsyncRemoteSession]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncRemoteSession:
        self._session = await self
        return self._session

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()


def call_record(call: CallLike) -> Any:
    """A call as the server takes it: a name, or an object."""
    if isinstance(call, str):
        return call
    record = call.to_dict() if isinstance(call, ToolCall) else dict(call)
    return {name: record[name] for name in record if name != "output_length"}
