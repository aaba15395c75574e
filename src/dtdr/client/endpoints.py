"""The calls of the server, each described once for both clients."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack
from urllib.parse import quote

from dtdr.arguments.prediction import CallPrediction
from dtdr.client.answers import (
    FeedbackResult,
    Mask,
    RemoteRanking,
    ServedModel,
    read_calls,
    read_plans,
    read_search,
    read_surprise,
)
from dtdr.client.calls import Call, endpoint
from dtdr.client.sessions import call_record
from dtdr.demonstrations import Demonstration, before_record
from dtdr.errors import InputError
from dtdr.http_requests import BUSY, RetryPolicy, json_headers, parse_address, require_http
from dtdr.plans.prediction import PlanPrediction
from dtdr.retrievers.search import SEARCH_LIMIT
from dtdr.retrievers.surprise import Surprise
from dtdr.run import BeforeLike, CallLike
from dtdr.selection import AnthropicForm, Bounds, OpenAIForm, Selection

KEY_VARIABLE = "DTDR_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8756"

SLOW_SECONDS = 120.0
"""For learning, loading and saving."""

Result = TypeVar("Result")


class Endpoints(ABC):
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
        self._timeout = timeout
        origin = f"the environment variable {KEY_VARIABLE}" if key is None else "key"
        key = os.environ.get(KEY_VARIABLE) if key is None else key
        self._headers = json_headers(key, origin)
        require_http("the client")
        self._policy = RetryPolicy(retries + 1, pause=0.1, longest_pause=5.0, statuses=BUSY)
        self._open(options)

    @abstractmethod
    def _open(self, options: dict[str, Any]) -> None:
        """Make the transport."""

    @endpoint
    def rank(
        self,
        query: str,
        history: Sequence[CallLike] = (),
        *,
        before: Sequence[BeforeLike] = (),
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
            model: one of the server's models.
            selection: which tools to send; 10 without any bound.
            bounds: ``top_k``, ``threshold``, ``coverage`` and ``token_budget`` of a
                ``dtdr.selection.Selection``, instead of one.

        Raises:
            InvalidRequestError: the server refused what was asked.
            ServerError: it could not answer, or was not reached.
        """
        body = self._body(
            model,
            **_step(query, history, before),
            **Selection.of(selection, bounds).to_dict(),
        )
        return Call("POST", "/v1/rank", body, RemoteRanking.read)

    @endpoint
    def rank_batch(
        self,
        queries: Sequence[str],
        histories: Sequence[Sequence[CallLike]],
        *,
        befores: Sequence[Sequence[BeforeLike]] | None = None,
        model: str | None = None,
        selection: Selection | None = None,
        **bounds: Unpack[Bounds],
    ) -> Call[list[RemoteRanking]]:
        """Rank many steps with one request; as ``rank``.

        Raises:
            InputError: there are more queries than histories or ``befores``, or fewer.
        """
        if len(queries) != len(histories):
            raise InputError(f"{len(queries)} queries but {len(histories)} histories were given")
        befores = [()] * len(queries) if befores is None else befores
        if len(queries) != len(befores):
            raise InputError(f"{len(queries)} queries but {len(befores)} befores were given")
        body = self._body(
            model,
            steps=[_step(*step) for step in zip(queries, histories, befores, strict=True)],
            **Selection.of(selection, bounds).to_dict(),
        )
        return Call(
            "POST",
            "/v1/rank/batch",
            body,
            lambda answer: [RemoteRanking.read(item) for item in answer["rankings"]],
        )

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
        body = self._body(model, **_step(query, history, before), text=text, top_k=k, among=names)
        return Call("POST", "/v1/search", body, read_search)

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
        body = self._body(model, **_step(query, history, before), call=call_record(call))
        return Call("POST", "/v1/surprise", body, read_surprise)

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
        body = self._body(model, **_step(query, history, before), top_k=k)
        return Call("POST", "/v1/calls", body, read_calls)

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
        body = self._body(model, **_step(query, history, before), tool=tool)
        return Call("POST", "/v1/calls", body, lambda answer: read_calls(answer)[0])

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
        body = self._body(model, **_step(query, history, before), top_k=k)
        return Call("POST", "/v1/plans", body, read_plans)

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
            form: as in ``dtdr.integrations.openai.mask_request``.
            policy: fields of ``dtdr.integrations.ToolPolicy``.
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
        return Call(
            "POST",
            "/v1/feedback",
            self._body(model, demonstrations=[_record(item) for item in demonstrations]),
            FeedbackResult.read,
            is_repeatable=False,  # learning twice is not learning once
            seconds=SLOW_SECONDS,
        )

    @endpoint
    def models(self) -> Call[list[ServedModel]]:
        """The server's models."""
        return Call(
            "GET",
            "/v1/models",
            None,
            lambda answer: [ServedModel.read(item) for item in answer["models"]],
        )

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

    def session_call(
        self,
        kind: type[Result],
        query: str,
        history: Sequence[CallLike],
        before: Sequence[BeforeLike],
        model: str | None,
    ) -> Call[Result]:
        """Open a session of a client's kind."""

        def read(answer: Mapping[str, Any]) -> Result:
            make: Any = kind
            session: Result = make(self, str(answer["session"]), query, answer["history"])
            return session

        body = self._body(model, **_step(query, history, before))
        # A lost answer leaves a session open.
        return Call("POST", "/v1/sessions", body, read, is_repeatable=False)

    def _mask(
        self,
        provider: str,
        request: Mapping[str, Any],
        form: str | None,
        policy: Mapping[str, Any] | None,
        model: str | None,
    ) -> Call[Mask]:
        body = self._body(
            model, request=dict(request), form=form, policy=None if policy is None else dict(policy)
        )
        return Call("POST", f"/v1/mask/{provider}", body, lambda answer: Mask.read(request, answer))

    def _body(self, model: str | None, **fields: Any) -> dict[str, Any]:
        """Fields that are given, and the model; without one the server's only model is meant."""
        return _drop_none(**fields, model=model or self.model)


def _drop_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


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
    return Call("POST", path, None, ServedModel.read, seconds=SLOW_SECONDS)
