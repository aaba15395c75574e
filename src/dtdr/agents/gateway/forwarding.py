"""A client's request on its way to an upstream, and the questions that the upstream asks first."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dtdr.agents.gateway.clients import Context, client_key
from dtdr.agents.gateway.questions import InputAnswer, answer_type, ask
from dtdr.agents.gateway.upstream import RawResult, Upstream

MAX_ROUNDS = 10
"""How often one call may ask for input before it fails; the SDK's clients do the same."""

ANSWER_SECONDS = 600.0
"""How long a server's call stays open for the answer of a person."""

MAX_OPEN_CALLS = 1_000
"""Calls of one server that wait for the answers of clients."""

_ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that 2026-07-28 lets a server answer with questions."""

_QUESTION = "question"
"""The key of the one question that a client is asked at a time."""

_OWN_META = ("io.modelcontextprotocol/", "dtdr/")

_Question = tuple[types.ServerRequest, asyncio.Future[InputAnswer]]
"""A question of a server, and the future of its answer."""


async def forward(context: Context, upstream: Upstream, changed: Mapping[str, Any]) -> RawResult:
    """The upstream's result of a client's request, as it came over the wire.

    Progress, log messages and questions of the upstream reach the client while it waits. If the
    client cancels, the upstream's call is cancelled. ``changed`` replaces some of the client's
    parameters, such as the tool's name. Errors are those of ``Upstream.request``.
    """
    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    sent = {**select_params(context), **changed}
    progress = _progress_to(context)

    async def send(added: Mapping[str, Any]) -> RawResult:
        return await upstream.request(context.method, {**sent, **added}, progress)

    call: OpenCall | None = None
    if is_modern and not upstream.is_modern and context.method in _ASKING:
        call = OpenCall.resume(upstream, context, sent) or OpenCall(send({}))
    caller = (context, call)
    upstream.callers.append(caller)
    try:
        result = await (send({}) if call is None else call.outcome(upstream, context))
        if not is_modern:
            result = await _answer_inputs(context, result, send)
    finally:
        upstream.callers.remove(caller)
    return without_server_stamp(result)


class OpenCall:
    """A call of a 2026-07-28 client to a server of the handshake protocols, which may ask it.

    Such a server sends requests while it works on the call. Such a client is asked by the answer to
    its call, and calls again with its answer; the server's call stays open meanwhile.
    """

    def __init__(self, result: Coroutine[Any, Any, RawResult]) -> None:
        self._questions: asyncio.Queue[_Question | None] = asyncio.Queue()
        self._asked: _Question | None = None
        self._given_up: asyncio.TimerHandle | None = None
        self._result = asyncio.get_running_loop().create_task(result)
        self._result.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[RawResult]) -> None:
        self._questions.put_nowait(None)  # no more of them
        if not task.cancelled():
            task.exception()  # seen, whether or not the client asks for the result

    @staticmethod
    def resume(upstream: Upstream, context: Context, sent: Mapping[str, Any]) -> OpenCall | None:
        """The call whose question a request answers, if any."""
        key = client_key(context), sent.get("requestState")
        call: OpenCall | None = upstream.open_calls.pop(key, None)
        if call is not None and call._given_up is not None:
            call._given_up.cancel()
            call._answer(sent.get("inputResponses"))
        return call

    async def ask(self, request: types.ServerRequest) -> InputAnswer:
        """The client's answer to a question of the server."""
        answered: asyncio.Future[InputAnswer] = asyncio.get_running_loop().create_future()
        self._questions.put_nowait((request, answered))
        return await answered

    def _answer(self, responses: object) -> None:
        """Answer the open question by a request's ``inputResponses``."""
        if self._asked is None or self._asked[1].done():
            return
        request, answered = self._asked
        answer = responses.get(_QUESTION) if isinstance(responses, Mapping) else None
        try:
            answered.set_result(answer_type(request).model_validate(answer))
        except ValidationError:
            refusal = types.ErrorData(code=types.INVALID_PARAMS, message="no answer was given")
            answered.set_result(refusal)

    async def outcome(self, upstream: Upstream, context: Context) -> RawResult:
        """The server's result, or its next question in the form of 2026-07-28."""
        try:
            self._asked = await self._questions.get()
        except asyncio.CancelledError:
            self._result.cancel()
            raise
        if self._asked is None:
            return self._result.result()
        if len(upstream.open_calls) >= MAX_OPEN_CALLS:
            self._result.cancel()
            raise MCPError(types.INTERNAL_ERROR, "too many calls wait for an answer")
        state = secrets.token_urlsafe()
        key = client_key(context), state
        upstream.open_calls[key] = self

        def give_up() -> None:
            upstream.open_calls.pop(key, None)
            self._result.cancel()

        self._given_up = asyncio.get_running_loop().call_later(ANSWER_SECONDS, give_up)
        asks = self._asked[0].model_dump(by_alias=True, mode="json", exclude_none=True)
        return {
            "resultType": "input_required",
            "inputRequests": {_QUESTION: asks},
            "requestState": state,
        }


def select_params(context: Context) -> dict[str, Any]:
    """A request's parameters without what is between the client and the gateway."""
    params = dict(context.params or {})
    meta = params.pop("_meta", None)
    kept = {
        key: value
        for key, value in (meta.items() if isinstance(meta, Mapping) else ())
        if key == types.LOG_LEVEL_META_KEY
        or not (key.startswith(_OWN_META) or key == "progressToken")
    }
    return {**params, "_meta": kept} if kept else params


def _progress_to(context: Context) -> ProgressFnT | None:
    """Reports progress to the client, if it asked for it."""
    meta = (context.params or {}).get("_meta")
    if not isinstance(meta, Mapping) or "progressToken" not in meta:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        await context.session.report_progress(progress, total, message)

    return report


def without_server_stamp(result: RawResult) -> RawResult:
    """A result without the upstream's name, which the gateway replaces with its own."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or types.SERVER_INFO_META_KEY not in meta:
        return result
    kept = {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}
    rest = {key: value for key, value in result.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


async def _answer_inputs(
    context: Context, result: RawResult, again: Callable[[Mapping[str, Any]], Awaitable[RawResult]]
) -> RawResult:
    """The final result of a 2026-07-28 server that asks a client of the handshake protocols.

    Such a server answers a call with questions; such a client gets requests. ``again`` sends the
    call once more, with parameters added.
    """
    for _ in range(MAX_ROUNDS):
        if result.get("resultType") != "input_required":
            return result
        try:
            interim = types.InputRequiredResult.model_validate(result, by_name=False)
        except ValidationError as error:
            raise MCPError(types.INTERNAL_ERROR, "the server asked in a way not known") from error
        added: dict[str, Any] = {}
        if interim.request_state is not None:
            added["requestState"] = interim.request_state
        for key, request in (interim.input_requests or {}).items():
            answer = await ask(context, request)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            record = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
            added.setdefault("inputResponses", {})[key] = record
        result = await again(added)
    raise MCPError(types.INTERNAL_ERROR, f"the server asked for input more than {MAX_ROUNDS} times")
