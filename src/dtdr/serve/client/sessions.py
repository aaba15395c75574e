"""Sessions on the server: a query, and the calls made for it."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Generator, Mapping
from typing import Any, Self, Unpack

from dtdr.data.calls import ToolCall
from dtdr.data.run import CallLike
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
from dtdr.serve.client.surface import Awaited, Blocking, Connection, endpoint


class _Endpoints:
    """A session's calls."""

    def __init__(self, connection: Connection, query: str, fields: Mapping[str, Any]) -> None:
        self._connection = connection
        self._fields = fields
        self.id = ""
        self.query = query
        self.history: tuple[str, ...] = ()

    @endpoint
    async def _open(self) -> Self:
        if not self.id:
            # Not repeated: a lost answer leaves a session open.
            ask = self._connection.ask
            answer = await ask("POST", "/v1/sessions", self._fields, is_repeatable=False)
            self.id, self.history = str(answer["session"]), tuple(answer["history"])
        return self

    @endpoint
    async def rank(
        self,
        *,
        offered: Collection[str] | None = None,
        selection: Selection | None = None,
        **bounds: Unpack[Bounds],
    ) -> RemoteRanking:
        """Rank the tools for the next step; see ``Client.rank``."""
        return RemoteRanking.read(await self._post("rank", **selected(selection, bounds, offered)))

    @endpoint
    async def search(
        self, text: str, k: int = SEARCH_LIMIT, *, among: Collection[str] | None = None
    ) -> list[tuple[str, float]]:
        """Search tools for an agent that says what it lacks; see ``Client.search``."""
        names = None if among is None else list(among)
        return read_search(await self._post("search", text=text, top_k=k, among=names))

    @endpoint
    async def next_calls(self, k: int = 3) -> list[CallPrediction]:
        """The next calls with their arguments; see ``Client.next_calls``."""
        return read_calls(await self._post("calls", top_k=k))

    @endpoint
    async def fill(self, tool: str) -> CallPrediction:
        """The most probable arguments of a tool; see ``Client.fill``."""
        return read_calls(await self._post("calls", tool=tool))[0]

    @endpoint
    async def plans(self, k: int = 5) -> list[PlanPrediction]:
        """What is left to do; see ``Client.plans``."""
        return read_plans(await self._post("plans", top_k=k))

    @endpoint
    async def call(self, *calls: CallLike) -> Self:
        """Add calls to the session: names, calls with outputs, or JSON objects."""
        tools = list(map(call_record, calls))
        answer = await self._post("call", tools=tools, idempotency_key=secrets.token_hex(8))
        self.history = tuple(answer["history"])
        return self

    @endpoint
    async def close(self) -> None:
        """Delete the session on the server, if it is still there."""
        try:
            await self._connection.ask("DELETE", f"/v1/sessions/{self.id}")
        except ServerError as error:
            if error.status != 404:
                raise

    async def _post(self, action: str, **fields: Any) -> Any:
        return await self._connection.ask("POST", f"/v1/sessions/{self.id}/{action}", fields)


class RemoteSession(_Endpoints, Blocking):
    """A query that the server keeps, and the calls made for it; a context manager that deletes it.

    Attributes:
        id: of the session on the server.
        query: what the user asked for.
        history: names of the tools called so far, oldest first.
    """

    def __init__(self, connection: Connection, query: str, fields: Mapping[str, Any]) -> None:
        super().__init__(connection, query, fields)
        self._open()


class AsyncRemoteSession(_Endpoints, Awaited):
    """``RemoteSession`` for asyncio; it opens when it is awaited or entered."""

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self


def selected(
    selection: Selection | None, bounds: Bounds, offered: Collection[str] | None
) -> dict[str, Any]:
    """The fields of a request that limit the answer."""
    chosen = Selection.of(selection, bounds).to_dict()
    return chosen if offered is None else {**chosen, "offered": list(offered)}


def call_record(call: CallLike) -> Any:
    """A call as the server takes it: a name, or an object."""
    if isinstance(call, str):
        return call
    record = call.to_dict() if isinstance(call, ToolCall) else dict(call)
    return {name: record[name] for name in record if name != "output_length"}
