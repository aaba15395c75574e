"""The clients: the calls of the server, each described once, sent with or without asyncio."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from urllib.parse import quote

from dtdr.data.demonstrations import Demonstration, before_record
from dtdr.data.run import BeforeLike, CallLike
from dtdr.errors import InputError
from dtdr.net.http_requests import BUSY, RetryPolicy, json_headers, parse_address, require_http
from dtdr.predict.anomaly import Surprise
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.predict.search import SEARCH_LIMIT
from dtdr.rankers.selection import AnthropicForm, Bounds, OpenAIForm, Selection
from dtdr.serve.client.answers import (
    FeedbackResult,
    Mask,
    RemoteRanking,
    ServedModel,
    read_calls,
    read_feedback,
    read_items,
    read_model,
    read_plans,
    read_rankings,
    read_search,
)
from dtdr.serve.client.calls import Async, Call, Connection, Sync, endpoint
from dtdr.serve.client.sessions import (
    AsyncRemoteSession,
    OpeningSession,
    RemoteSession,
    call_record,
    selected,
)

if TYPE_CHECKING:
    from dtdr.net.http_transport import AsyncTransport, Transport

KEY_VARIABLE = "DTDR_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8756"

SLOW_SECONDS = 120.0
"""For learning, loading and saving."""

Result = TypeVar("Result")
Session = TypeVar("Session")


class _Endpoints(ABC):
    """The server's calls; a client sends them."""

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
        self.retries = retries
        origin = f"the environment variable {KEY_VARIABLE}" if key is None else "key"
        key = os.environ.get(KEY_VARIABLE) if key is None else key
        headers = json_headers(key, origin)
        require_http("the client")
        policy = RetryPolicy(retries + 1, pause=0.1, longest_pause=5.0, statuses=BUSY)
        self._connection = Connection(self.url, headers, timeout, self._transport(policy, options))

    @abstractmethod
    def _transport(self, policy: RetryPolicy, options: dict[str, Any]) -> Any:
        """What sends requests to the server."""

    @endpoint
    def rank(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        offered: Collection[str] | None = None,
        model: str | None = None,
        selection: Selection | None = None,
        **bounds: Unpack[Bounds],
    ) -> Call[RemoteRanking]:
        """Rank the tools for the next step.

        Args:
            query: what the user asked for.
            history: the calls so far, oldest first, each the name of its tool, a ``ToolCall`` or
                its JSON object with an ``"output"`` and a ``"status"``, say.
            before: messages and calls of the conversation before the query, oldest first.
            offered: names of the tools that can be called; None: all.
            model: one of the server's models.
            selection: which tools to send; 10 without any bound.
            bounds: ``top_k``, ``threshold``, ``coverage`` and ``token_budget`` of a
                ``dtdr.rankers.selection.Selection``, instead of one.

        Raises:
            InvalidRequestError: the server refused what was asked.
            ServerError: it could not answer, or was not reached.
        """
        fields = selected(selection, bounds, offered)
        step = _step(query, history, before)
        return self._post("/v1/rank", RemoteRanking.read, model, **step, **fields)

    @endpoint
    def rank_batch(
        self,
        queries: Sequence[str],
        histories: Sequence[Sequence[CallLike]],
        *,
        befores: Sequence[Sequence[BeforeLike]] | None = None,
        offered: Collection[str] | None = None,
        model: str | None = None,
        selection: Selection | None = None,
        **bounds: Unpack[Bounds],
    ) -> Call[list[RemoteRanking]]:
        """Rank many steps with one request, all among the same tools; as ``rank``.

        Raises:
            InputError: there are more queries than histories or ``befores``, or fewer.
        """
        if len(queries) != len(histories):
            raise InputError(f"{len(queries)} queries but {len(histories)} histories were given")
        befores = [()] * len(queries) if befores is None else befores
        if len(queries) != len(befores):
            raise InputError(f"{len(queries)} queries but {len(befores)} befores were given")
        fields = selected(selection, bounds, offered)
        steps = [_step(*step) for step in zip(queries, histories, befores, strict=True)]
        return self._post("/v1/rank/batch", read_rankings, model, steps=steps, **fields)

    @endpoint
    def search(
        self,
        text: str,
        query: str | None = None,
        history: Sequence[CallLike] = (),
        k: int = SEARCH_LIMIT,
        *,
        among: Collection[str] | None = None,
        before: Sequence[BeforeLike] = (),
        model: str | None = None,
    ) -> Call[list[tuple[str, float]]]:
        """The tools that an agent means which says what it lacks, best first, with their shares.

        Args:
            text: what the agent wants to do, in its words.
            query: what the user asked for; None where nothing is known of the run.
            history: the calls so far, as in ``rank``.
            k: how many at most, up to 100.
            among: names of the tools that may be returned; all by default.
            before: messages and calls of the conversation before the query, oldest first.
            model: one of the server's models.

        Raises:
            InvalidRequestError: the server refused what was asked.
            ServerError: it could not answer, or was not reached.
        """
        names = None if among is None else list(among)
        step = _step(query, history, before)
        return self._post("/v1/search", read_search, model, **step, text=text, top_k=k, among=names)

    @endpoint
    def surprise(
        self,
        call: CallLike,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        model: str | None = None,
    ) -> Call[Surprise]:
        """How odd a call is after these calls; further arguments and errors as ``next_calls``.

        Args:
            call: the tool's name, or the call with its arguments.
            query: what the user asked for.
            history: the calls so far.
            before: messages and calls of the conversation before the query, oldest first.
            model: one of the server's models.
        """
        step = _step(query, history, before)
        judged = call_record(call)
        return self._post("/v1/surprise", Surprise.from_dict, model, **step, call=judged)

    @endpoint
    def next_calls(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        k: int = 3,
        *,
        before: Sequence[BeforeLike] = (),
        model: str | None = None,
    ) -> Call[list[CallPrediction]]:
        """The next calls: the k most probable tools, each with its arguments and their sources.

        Args:
            query: what the user asked for.
            history: the calls so far, as in ``rank``; references use their ids, or their places
                from 1 where they have none.
            k: how many, up to 20.
            before: messages and calls of the conversation before the query, oldest first.
            model: one of the server's models.

        Raises:
            InvalidRequestError: the server refused what was asked.
            ServerError: the model was fitted without arguments (status 409), or the server could
                not answer, or was not reached.
        """
        step = _step(query, history, before)
        return self._post("/v1/calls", read_calls, model, **step, top_k=k)

    @endpoint
    def fill(
        self,
        tool: str,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        model: str | None = None,
    ) -> Call[CallPrediction]:
        """The most probable arguments of a tool; further arguments and errors as ``next_calls``.

        Args:
            tool: its name.
            query: what the user asked for.
            history: the calls so far.
            before: messages and calls of the conversation before the query, oldest first.
            model: one of the server's models.
        """
        step = _step(query, history, before)
        return self._post(
            "/v1/calls", lambda answer: read_calls(answer)[0], model, **step, tool=tool
        )

    @endpoint
    def plans(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        k: int = 5,
        *,
        before: Sequence[BeforeLike] = (),
        model: str | None = None,
    ) -> Call[list[PlanPrediction]]:
        """The k most probable whole plans, or what is left to do after the calls of the history.

        Args:
            query: what the user asked for.
            history: the calls so far, as in ``next_calls``.
            k: how many, up to 20.
            before: messages and calls of the conversation before the query, oldest first.
            model: one of the server's models.

        Raises:
            InvalidRequestError: the server refused what was asked.
            ServerError: the model was fitted without plans (status 409), or the server could not
                answer, or was not reached.
        """
        step = _step(query, history, before)
        return self._post("/v1/plans", read_plans, model, **step, top_k=k)

    @endpoint
    def mask_openai(
        self,
        request: Mapping[str, Any],
        *,
        form: OpenAIForm | None = None,
        policy: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> Call[Mask]:
        """Mask the keywords of ``chat.completions.create`` or ``responses.create``.

        Args:
            request: with ``messages`` or ``input``, and ``tools``.
            form: as in ``dtdr.agents.openai.mask_request``.
            policy: fields of ``dtdr.agents.ToolPolicy``.
            model: one of the server's models.
        """
        return self._mask("openai", request, form, policy, model)

    @endpoint
    def mask_anthropic(
        self,
        request: Mapping[str, Any],
        *,
        form: AnthropicForm | None = None,
        policy: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> Call[Mask]:
        """Mask the keywords of ``messages.create``; as ``mask_openai``."""
        return self._mask("anthropic", request, form, policy, model)

    @endpoint
    def feedback(
        self,
        demonstrations: Iterable[Demonstration | Mapping[str, Any]],
        *,
        model: str | None = None,
    ) -> Call[FeedbackResult]:
        """Update a model with demonstrations; returns when it ranks with them.

        Args:
            demonstrations: or their JSON objects, where a call may be a tool's name alone.
            model: one of the server's models, a dtdr-f.
        """
        call = self._post(
            "/v1/feedback",
            read_feedback,
            model,
            demonstrations=[_record(item) for item in demonstrations],
        )
        # Learning twice is not learning once.
        return replace(call, is_repeatable=False, seconds=SLOW_SECONDS)

    @endpoint
    def models(self) -> Call[list[ServedModel]]:
        """The server's models."""
        return Call("GET", "/v1/models", None, read_items("models", read_model))

    @endpoint
    def reload(self, model: str) -> Call[ServedModel]:
        """Have a model's folder loaded again."""
        return _model_call("reload", model)

    @endpoint
    def save(self, model: str) -> Call[ServedModel]:
        """Have what a model learned written to its folder."""
        return _model_call("save", model)

    @endpoint
    def is_ready(self) -> Call[bool]:
        """Whether the server answers and is ready."""
        return Call(
            "GET",
            "/readyz",
            None,
            lambda answer: answer is not None and answer["status"] == "ok",
            forgives=lambda error: True,
        )

    def _session_call(
        self,
        kind: Callable[..., Session],
        query: str,
        history: Sequence[CallLike],
        before: Sequence[BeforeLike],
        model: str | None,
    ) -> Call[Session]:
        """Open a session of a client's kind."""

        def read(answer: Mapping[str, Any]) -> Session:
            return kind(self._connection, str(answer["session"]), query, answer["history"])

        call = self._post("/v1/sessions", read, model, **_step(query, history, before))
        return replace(call, is_repeatable=False)  # a lost answer leaves a session open

    def _mask(
        self,
        provider: str,
        request: Mapping[str, Any],
        form: str | None,
        policy: Mapping[str, Any] | None,
        model: str | None,
    ) -> Call[Mask]:
        def read(answer: Mapping[str, Any]) -> Mask:
            shown, hidden = tuple(answer["shown"]), tuple(answer["hidden"])
            return Mask({**request, **answer["changes"]}, shown, hidden, str(answer["failure"]))

        chosen = None if policy is None else dict(policy)
        path = f"/v1/mask/{provider}"
        return self._post(path, read, model, request=dict(request), form=form, policy=chosen)

    def _post(
        self, path: str, read: Callable[[Any], Result], model: str | None, **fields: Any
    ) -> Call[Result]:
        """A call with the fields that are given; without a model the server's only one is meant."""
        fields["model"] = model or self.model
        body = {name: value for name, value in fields.items() if value is not None}
        return Call("POST", path, body, read)


class Client(_Endpoints, Sync):
    """Asks a ``dtdr serve`` server. Thread-safe; a context manager that closes connections.

    Args:
        url: the server's address.
        key: an API key; ``$DTDR_API_KEY`` where none is given.
        model: the model that is meant where a call names none.
        timeout: seconds for one try, from connecting to the last byte.
        retries: how often a question is asked again when no answer came. What changes something
            on the server is asked again only if no connection was made.
        options: of ``httpx2.AsyncClient``, such as ``verify`` or ``transport``.

    Raises:
        InputError: the address is none, or the key holds characters that no key has.
        MissingExtraError: httpx2 or tenacity is not installed.
    """

    def _transport(self, policy: RetryPolicy, options: dict[str, Any]) -> Transport:
        from dtdr.net.http_transport import Transport

        return Transport(self.url, policy, **options)

    def session(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        model: str | None = None,
    ) -> RemoteSession:
        """A session on the server, which encodes the query once."""
        return self.send(self._session_call(RemoteSession, query, history, before, model))


class AsyncClient(_Endpoints, Async):
    """Asks a ``dtdr serve`` server from one event loop; a context manager that closes connections.

    Its calls are those of ``Client``, awaited. Arguments and errors are the same.
    """

    def _transport(self, policy: RetryPolicy, options: dict[str, Any]) -> AsyncTransport:
        from dtdr.net.http_transport import AsyncTransport

        return AsyncTransport(self.url, policy, **options)

    def session(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
        model: str | None = None,
    ) -> OpeningSession:
        """A session on the server, which encodes the query once.

        Awaited, it is the session; ``async with client.session(query) as session`` deletes it when
        the block ends.
        """
        call = self._session_call(AsyncRemoteSession, query, history, before, model)
        return OpeningSession(partial(self.send, call))


def _step(
    query: str | None, history: Sequence[CallLike], before: Sequence[BeforeLike] = ()
) -> dict[str, Any]:
    if isinstance(history, str):
        raise InputError(f"a history must be a list of calls, not {history!r}")
    step: dict[str, Any] = {"history": list(map(call_record, history))}
    if query is not None:
        step["query"] = query
    if before:
        step["before"] = list(map(before_record, before))
    return step


def _record(item: Demonstration | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(item, Demonstration):
        return dict(item)
    record = item.to_dict()
    return {name: record[name] for name in record if name not in ("source", "group")}


def _model_call(action: str, model: str) -> Call[ServedModel]:
    path = f"/v1/models/{quote(model, safe='')}/{action}"
    return Call("POST", path, None, read_model, seconds=SLOW_SECONDS)
