"""The clients: each call of the server once, with and without asyncio."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, Unpack
from urllib.parse import quote

from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import BeforeLike, CallLike, as_run
from dtdr.data.tools import ToolLike, as_tools
from dtdr.errors import InputError, check_lists
from dtdr.net.http_requests import Transport, json_headers, parse_address
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.predict.search import SEARCH_LIMIT
from dtdr.rankers.selection import Bounds
from dtdr.serve.client.request_fields import limit_fields, step_fields
from dtdr.serve.client.sessions import AsyncRemoteSession, RemoteSession
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

KEY_VARIABLE = "DTDR_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8756"

Session = TypeVar("Session", RemoteSession, AsyncRemoteSession)


class _ClientEndpoints(Generic[Session]):
    """The server's calls."""

    _session: type[Session]

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        model: str | None = None,
        timeout: float = 5.0,
        retries: int = 2,
        **options: Any,
    ) -> None:
        if parse_address(url) is None:
            raise InputError(f"{url!r} is not a server's address; write it as {DEFAULT_URL}")
        self.url = url.rstrip("/")
        self.model = model
        origin = "key"
        if key is None:
            key, origin = os.environ.get(KEY_VARIABLE), f"the environment variable {KEY_VARIABLE}"
        headers = json_headers(key, origin)
        transport = Transport("the client", self.url, retries + 1, 0.1, 5.0, **options)
        self._connection = ServerConnection(self.url, headers, timeout, transport)

    @endpoint
    async def rank(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        offered: Collection[str] | None = None,
        text: str | None = None,
        **bounds: Unpack[Bounds],
    ) -> RemoteRanking:
        """Rank the tools for the next step.

        Args:
            query: what the user asked for.
            history: the calls so far, oldest first: names of tools, ``ToolCall``, or JSON objects.
            before: messages and calls of the conversation before the query, oldest first.
            offered: names of the tools that can be called; None: all.
            text: what the agent wrote before its next call, where that is known before the call.
            bounds: which tools to send, as ``dtdr.rankers.selection.Selection`` has them:
                ``top_k``, ``threshold``, ``coverage``, ``token_budget``; without any, ten.

        Raises:
            InvalidRequestError: the server refused what was asked.
            ServerError: it could not answer, or was not reached.
        """
        fields = step_fields(query, history, before, text) | limit_fields(bounds, offered)
        return await self._ask("rank", fields, RemoteRanking)

    @endpoint
    async def search(
        self,
        text: str,
        query: str | None = None,
        history: Sequence[CallLike] = (),
        top_k: int = SEARCH_LIMIT,
        *,
        offered: Collection[str] | None = None,
        before: Sequence[BeforeLike] = (),
    ) -> list[tuple[str, float]]:
        """Search tools for an agent that says what it lacks; best first, with their shares.

        Args:
            text: what the agent wants to do, in its words.
            query: as in ``rank``; None without a run.
            history: as in ``rank``.
            top_k: limit of tools, at most 100.
            offered: names of the tools that may be returned; all by default.
            before: as in ``rank``.
        """
        check_lists(offered=offered)
        request = {"text": text, "top_k": top_k, "offered": offered}
        fields = step_fields(query, history, before) | request
        return read_search(await self._ask("search", fields, schemas.SearchResponse))

    @endpoint
    async def next_calls(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        top_k: int = 3,
        *,
        before: Sequence[BeforeLike] = (),
    ) -> list[CallPrediction]:
        """The next calls, most probable tools first, with their arguments and sources.

        References use the ids of the calls in the history, or their positions from 1. ``top_k`` is
        at most 20; other arguments and errors as ``rank``, with status 409 if the model was fitted
        without arguments.
        """
        fields = step_fields(query, history, before) | {"top_k": top_k}
        return (await self._ask("calls", fields, schemas.CallsResponse)).calls

    @endpoint
    async def fill(
        self,
        tool: str,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
    ) -> CallPrediction:
        """The most probable arguments of a tool; arguments and errors as ``next_calls``."""
        fields = step_fields(query, history, before) | {"tool": tool}
        return (await self._ask("calls", fields, schemas.CallsResponse)).calls[0]

    @endpoint
    async def plans(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        top_k: int = 5,
        *,
        before: Sequence[BeforeLike] = (),
    ) -> list[PlanPrediction]:
        """The ``top_k`` most probable whole plans, or what is left of them after the history.

        As ``next_calls``, with status 409 if the model was fitted without plans.
        """
        fields = step_fields(query, history, before) | {"top_k": top_k}
        return read_plans(await self._ask("plans", fields, schemas.PlansResponse))

    @endpoint
    async def feedback(
        self,
        demonstrations: Iterable[Demonstration | Mapping[str, Any]],
    ) -> schemas.FeedbackResponse:
        """Let the model, a dtdr-f, learn from demonstrations.

        The server learns aside: ``status`` says when the model ranks with them.

        Args:
            demonstrations: or their JSON objects, where a call may be a tool's name alone.

        Raises:
            InvalidRequestError: the server refused what was sent.
            ServerError: the model cannot learn, or the server was not reached.
        """
        check_lists(demonstrations=demonstrations)
        records = [
            item.to_dict() if isinstance(item, Demonstration) else item for item in demonstrations
        ]
        # Not repeated: the model would learn twice.
        fields = {"demonstrations": records}
        return await self._ask("feedback", fields, schemas.FeedbackResponse, is_repeatable=False)

    @endpoint
    async def add_tools(self, tools: Iterable[ToolLike]) -> schemas.ToolChangeResponse:
        """Add tools that no demonstration uses yet, ranked by their descriptions.

        The server adds them aside: see ``status``.

        Args:
            tools: or their JSON objects, or definitions as an LLM takes them.

        Raises:
            InputError: something is not a tool.
            ServerError: as ``feedback``; 409 for a name that the model knows.
        """
        return await self._change_tools({"add": [item.to_dict() for item in as_tools(tools)]})

    @endpoint
    async def remove_tools(self, names: Iterable[str]) -> schemas.ToolChangeResponse:
        """Remove tools; a dtdr-f is fitted again without them, aside: see ``status``.

        Raises:
            ServerError: as ``feedback``; 404 for a name that the model does not know.
        """
        check_lists(names=names)
        return await self._change_tools({"remove": list(names)})

    @endpoint
    async def status(self) -> schemas.ModelDetail:
        """The model: its vocabulary, what it is learning, since when, and what waits.

        Raises:
            ServerError: there is no such model, or the server was not reached.
        """
        return await self._connection.ask(
            f"models/{await self._name()}", None, schemas.ModelDetail, method="GET"
        )

    async def _change_tools(self, fields: Mapping[str, Any]) -> schemas.ToolChangeResponse:
        path = f"models/{await self._name()}/tools"
        kind = schemas.ToolChangeResponse
        return await self._connection.ask(path, fields, kind, is_repeatable=False)

    async def _name(self) -> str:
        """The model's name, also where the server has only one."""
        if self.model is None:
            served = await self._connection.ask(
                "models", None, schemas.ModelsResponse, method="GET"
            )
            if len(served.models) != 1:
                names = ", ".join(item.name for item in served.models)
                raise InputError(f"the server has several models; open Client(model=…): {names}")
            return served.models[0].name
        return quote(self.model, safe="")

    @endpoint
    async def close(self) -> None:
        """Close the connections."""
        await self._connection.transport.close()

    def session(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
    ) -> Session:
        """A session: the client keeps the query and the calls, and any server answers each step.

        A context manager. That of an ``AsyncClient`` may be awaited, or entered.

        Raises:
            InputError: something is not a call or a message.
        """
        return self._session(self._connection, as_run(query, history, before), self.model)

    async def _ask(
        self, path: str, fields: Mapping[str, Any], kind: type[Answer], **options: Any
    ) -> Answer:
        return await self._connection.ask(path, {**fields, "model": self.model}, kind, **options)


class Client(_ClientEndpoints[RemoteSession], Blocking):
    """Asks a ``dtdr serve`` server. Thread-safe; a context manager that closes connections.

    >>> with Client("http://127.0.0.1:8756") as client:                  # doctest: +SKIP
    ...     client.rank("Mail Ann the summary of q3.pdf", ["open_file"]).best

    Args:
        url: the server's address.
        key: an API key; ``$DTDR_API_KEY`` by default.
        model: the model of all calls; None if the server has one only.
        timeout: seconds for one try, from connecting to the last byte.
        retries: how often a request is sent again if the server is busy, fails or is silent. A
            request that changes something on the server is sent again only if no connection was
            made.
        options: of ``httpx2.AsyncClient``, such as ``verify`` or ``transport``.

    Raises:
        InputError: the address or the key is not one.
        MissingExtraError: httpx2 or tenacity is not installed.
    """

    _session = RemoteSession


class AsyncClient(_ClientEndpoints[AsyncRemoteSession], Awaited):
    """Asks a ``dtdr serve`` server from one event loop; a context manager that closes connections.

    Its calls are those of ``Client``, awaited. Arguments and errors are the same.

    >>> async with AsyncClient("http://127.0.0.1:8756") as client:       # doctest: +SKIP
    ...     (await client.rank("Mail Ann the summary of q3.pdf", ["open_file"])).best
    """

    _session = AsyncRemoteSession
