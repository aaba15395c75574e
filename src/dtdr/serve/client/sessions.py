"""Sessions on the server: one query, encoded once, and the calls made for it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from dtdr.data.calls import ToolCall
from dtdr.data.run import CallLike
from dtdr.predict.anomaly import Surprise
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.predict.search import SEARCH_LIMIT
from dtdr.rankers.selection import Bounds, Selection
from dtdr.serve.client.answers import (
    RemoteRanking,
    ServerError,
    read_calls,
    read_plans,
    read_search,
)
from dtdr.serve.client.calls import Async, Call, Connection, Sync, endpoint

Result = TypeVar("Result")


class _Steps:
    """A session's calls.

    Attributes:
        id: names the session on the server.
        query: what the user asked for.
        history: names of the tools called so far, oldest first.
    """

    def __init__(
        self, connection: Connection, identifier: str, query: str, history: Sequence[str]
    ) -> None:
        self._connection = connection
        self.id = identifier
        self.query = query
        self.history: tuple[str, ...] = tuple(history)

    @endpoint
    def rank(
        self,
        *,
        offered: Collection[str] | None = None,
        selection: Selection | None = None,
        **bounds: Unpack[Bounds],
    ) -> Call[RemoteRanking]:
        """Rank the tools for the next step; see ``Client.rank``."""
        return self._post("rank", selected(selection, bounds, offered), RemoteRanking.read)

    @endpoint
    def search(
        self, text: str, k: int = SEARCH_LIMIT, *, among: Collection[str] | None = None
    ) -> Call[list[tuple[str, float]]]:
        """The tools that an agent means which says what it lacks; see ``Client.search``."""
        names = {} if among is None else {"among": list(among)}
        return self._post("search", {"text": text, "top_k": k, **names}, read_search)

    @endpoint
    def surprise(self, call: CallLike) -> Call[Surprise]:
        """How odd a call is at this step; see ``Client.surprise``."""
        return self._post("surprise", {"call": call_record(call)}, Surprise.from_dict)

    @endpoint
    def next_calls(self, k: int = 3) -> Call[list[CallPrediction]]:
        """The next calls with their arguments; see ``Client.next_calls``."""
        return self._post("calls", {"top_k": k}, read_calls)

    @endpoint
    def fill(self, tool: str) -> Call[CallPrediction]:
        """The most probable arguments of a tool; see ``Client.fill``."""
        return self._post("calls", {"tool": tool}, lambda answer: read_calls(answer)[0])

    @endpoint
    def plans(self, k: int = 5) -> Call[list[PlanPrediction]]:
        """What is left to do; see ``Client.plans``."""
        return self._post("plans", {"top_k": k}, read_plans)

    def _addition(self, calls: Sequence[CallLike]) -> Call[None]:
        tools = list(map(call_record, calls))
        body = {"tools": tools, "idempotency_key": secrets.token_hex(8)}

        def read(answer: Mapping[str, Any]) -> None:
            self.history = tuple(answer["history"])

        return self._post("call", body, read)

    def _post(
        self, action: str, body: Mapping[str, Any], read: Callable[[Any], Result]
    ) -> Call[Result]:
        return Call("POST", f"/v1/sessions/{self.id}/{action}", body, read)

    def _deletion(self) -> Call[None]:
        def is_gone(error: ServerError) -> bool:
            return error.status == 404

        path = f"/v1/sessions/{self.id}"
        return Call("DELETE", path, None, lambda _: None, forgives=is_gone)


class RemoteSession(_Steps, Sync):
    """One query, encoded once on the server, and the calls made for it.

    A context manager: it is deleted on the server when the block ends.
    """

    def call(self, *calls: CallLike) -> Self:
        """Tell the session that tools were called: names, calls with outputs, or JSON objects."""
        self.send(self._addition(calls))
        return self

    def close(self) -> None:
        """Delete the session on the server; one that is gone already is not an error."""
        self.send(self._deletion())


class AsyncRemoteSession(_Steps, Async):
    """One query, encoded once on the server, and the calls made for it.

    An asynchronous context manager: it is deleted on the server when the block ends.
    """

    async def call(self, *calls: CallLike) -> Self:
        """Tell the session that tools were called: names, calls with outputs, or JSON objects."""
        await self.send(self._addition(calls))
        return self

    async def close(self) -> None:
        """Delete the session on the server; one that is gone already is not an error."""
        await self.send(self._deletion())


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


def selected(
    selection: Selection | None, bounds: Bounds, offered: Collection[str] | None
) -> dict[str, Any]:
    """What a request says of the tools that it asks for."""
    chosen = Selection.of(selection, bounds).to_dict()
    return chosen if offered is None else {**chosen, "offered": list(offered)}


def call_record(call: CallLike) -> Any:
    """A call as the server takes it: a name, or an object."""
    if isinstance(call, str):
        return call
    record = call.to_dict() if isinstance(call, ToolCall) else dict(call)
    return {name: record[name] for name in record if name != "output_length"}
