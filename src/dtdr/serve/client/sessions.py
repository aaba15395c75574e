"""A run that the client keeps: each request sends it whole, so any server can answer."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Generator, Mapping
from dataclasses import replace
from typing import Any, Self, Unpack

from dtdr.data.calls import read_text
from dtdr.data.run import CallLike, Run
from dtdr.errors import check_lists
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.predict.search import SEARCH_LIMIT
from dtdr.rankers.selection import Bounds
from dtdr.serve.client.request_fields import limit_fields, step_fields
from dtdr.serve.client.surface import (
    Answer,
    Awaited,
    Blocking,
    RemoteRanking,
    ServerConnection,
    endpoint,
    read_plans,
    read_search,
)
from dtdr.serve.server import schemas


class _SessionEndpoints:
    """A session's calls."""

    def __init__(self, connection: ServerConnection, run: Run, model: str | None) -> None:
        # A load balancer may send a run to the server that ranked its last step.
        headers = {**connection.headers, "x-dtdr-run": secrets.token_hex(8)}
        self._connection, self._model = replace(connection, headers=headers), model
        self.run = run

    @property
    def query(self) -> str:
        """The user's query."""
        return self.run.query

    @property
    def history(self) -> tuple[str, ...]:
        """Names of the tools called so far, oldest first."""
        return tuple(self.run.history)

    @endpoint
    async def rank(
        self, *, offered: Collection[str] | None = None, **bounds: Unpack[Bounds]
    ) -> RemoteRanking:
        """Rank the tools for the next step; see ``Client.rank``."""
        return await self._ask("rank", limit_fields(bounds, offered), RemoteRanking)

    @endpoint
    async def search(
        self, text: str, top_k: int = SEARCH_LIMIT, *, offered: Collection[str] | None = None
    ) -> list[tuple[str, float]]:
        """Search tools for an agent that says what it lacks; see ``Client.search``."""
        check_lists(offered=offered)
        fields = {"text": text, "top_k": top_k, "offered": offered}
        return read_search(await self._ask("search", fields, schemas.SearchResponse))

    @endpoint
    async def next_calls(self, top_k: int = 3) -> list[CallPrediction]:
        """The next calls with their arguments; see ``Client.next_calls``."""
        return (await self._ask("calls", {"top_k": top_k}, schemas.CallsResponse)).calls

    @endpoint
    async def fill(self, tool: str) -> CallPrediction:
        """The most probable arguments of a tool; see ``Client.fill``."""
        return (await self._ask("calls", {"tool": tool}, schemas.CallsResponse)).calls[0]

    @endpoint
    async def plans(self, top_k: int = 5) -> list[PlanPrediction]:
        """The remaining plans; see ``Client.plans``."""
        return read_plans(await self._ask("plans", {"top_k": top_k}, schemas.PlansResponse))

    @endpoint
    async def call(self, *calls: CallLike) -> Self:
        """Add calls to the run: names, calls with outputs, or JSON objects; asks no server.

        Raises:
            InputError: something is not a call, or two calls share an id; nothing is added.
        """
        self.run = self.run.with_calls(calls)
        return self

    @endpoint
    async def say(self, text: str | None) -> Self:
        """Add what the agent wrote before its next call, which takes it; asks no server.

        Raises:
            InputError: it is not text.
        """
        self.run.text = read_text(text, "the text before a call")
        return self

    @endpoint
    async def close(self) -> None:
        """Nothing to close: the server keeps no session."""

    async def _ask(self, path: str, fields: Mapping[str, Any], kind: type[Answer]) -> Answer:
        step = step_fields(self.query, self.run.calls, self.run.before, self.run.text)
        step["model"] = self._model
        return await self._connection.ask(path, {**step, **fields}, kind)


class RemoteSession(_SessionEndpoints, Blocking):
    """A run that the client keeps, and sends whole with each request; a context manager.

    Outputs are cut to the 2,000 characters that models read.

    Attributes:
        run: the query, what came before it, and the calls so far.
    """


class AsyncRemoteSession(_SessionEndpoints, Awaited):
    """``RemoteSession`` for asyncio; it may be awaited or entered."""

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self
