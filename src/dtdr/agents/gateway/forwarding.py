"""Everything that passes between a client and an upstream: requests, questions, notifications."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dtdr.agents.gateway.clients import Clients, Context, client_key
from dtdr.agents.gateway.upstream import InputAnswer, RawResult, Upstream

LEVELS: tuple[types.LoggingLevel, ...] = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
"""From the least severe."""

MAX_ROUNDS = 10
"""How often one call may ask for input before it is given up; the SDK's clients do the same."""

ANSWER_SECONDS = 600.0
"""How long a server's call stays open for the answer of a person."""

MAX_OPEN_CALLS = 1_000
"""Of one server, that wait for the answers of clients."""

_ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that 2026-07-28 lets a server answer with questions."""

_QUESTION = "question"
"""The key of the one question that a client is asked at a time."""

_OWN_META = ("io.modelcontextprotocol/", "dtdr/")
_PASSED_META = frozenset({types.LOG_LEVEL_META_KEY})


Caller = tuple[Context, "OpenCall | None"]
"""A client's request that a server is working on."""

_Question = tuple[types.ServerRequest, asyncio.Future[InputAnswer]]
"""A question of a server, and its answer once it is there."""


async def forward(context: Context, upstream: Upstream, changed: Mapping[str, Any]) -> RawResult:
    """The upstream's result of a client's request, as it came over the wire.

    Progress, log messages and questions of the upstream reach the client while it waits; when the
    client cancels, the call to the upstream is cancelled. Of the parameters, ``changed`` differ
    from the client's, such as the tool's own name.

    Raises:
        MCPError: the upstream's own error.
        UnavailableError: the upstream is away, or went away before it answered.
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

    Such a server sends its own requests while it works on the call. Such a client is asked
    by the answer to its call, and calls again with what it answers; the server's call stays open
    meanwhile.
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
        """The call that a request answers a question of; None where it answers none."""
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
        given = responses.get(_QUESTION) if isinstance(responses, Mapping) else None
        try:
            answered.set_result(_answer_type(request).model_validate(given))
        except ValidationError:
            refusal = types.ErrorData(code=types.INVALID_PARAMS, message="no answer was given")
            answered.set_result(refusal)

    async def outcome(self, upstream: Upstream, context: Context) -> RawResult:
        """The server's result, or what it asks first, as a 2026-07-28 client is asked.

        Raises:
            MCPError: the server's own error, or too many calls wait for an answer.
            UnavailableError: the server went away before it answered.
        """
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
    """A request's parameters without what belongs to the client's own hop."""
    params = dict(context.params or {})
    meta = params.pop("_meta", None)
    if isinstance(meta, Mapping):
        kept = {
            key: value
            for key, value in meta.items()
            if key in _PASSED_META or not (key.startswith(_OWN_META) or key == "progressToken")
        }
        if kept:
            params["_meta"] = kept
    return params


def _progress_to(context: Context) -> ProgressFnT | None:
    """Reports progress to the client, where it asked for it."""
    meta = (context.params or {}).get("_meta")
    if not isinstance(meta, Mapping) or "progressToken" not in meta:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        await context.session.report_progress(progress, total, message)

    return report


def without_server_stamp(result: RawResult) -> RawResult:
    """A result without the upstream's name tag; the gateway puts its own."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or types.SERVER_INFO_META_KEY not in meta:
        return result
    kept = {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}
    rest = {key: value for key, value in result.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


async def forward_change(clients: Clients, note: types.ServerNotification) -> None:
    """Pass a change of resources or prompts to the clients, in the way their protocol has."""
    for state in clients:
        if isinstance(note, types.ResourceUpdatedNotification):
            # A server may tell of a part of what was subscribed to.
            if not any(note.params.uri.startswith(known) for known in state.subscriptions):
                continue
            await state.bus.publish(ResourceUpdated(note.params.uri))
        elif isinstance(note, types.ResourceListChangedNotification):
            await state.bus.publish(ResourcesListChanged())
        elif isinstance(note, types.PromptListChangedNotification):
            await state.bus.publish(PromptsListChanged())
        if state.wire is not None and not state.is_modern:
            await state.wire.send_notification(note)


async def forward_log(
    clients: Clients, callers: Sequence[Caller], note: types.LoggingMessageNotification
) -> None:
    """Pass a log message to the clients whose calls the server is working on, else to all.

    A client gets what is at least as severe as it asked for; one of 2026-07-28 asks in each call.
    """
    for context, _ in callers:
        state = clients.of(context)
        meta = context.meta or {}
        level: Any = (
            meta.get(types.LOG_LEVEL_META_KEY, "none") if state.is_modern else state.log_level
        )
        if _wants(level, note):
            await context.session.send_notification(note, context.request_id)
    if callers:
        return
    for state in clients:
        if state.wire is not None and not state.is_modern and _wants(state.log_level, note):
            await state.wire.send_notification(note)


def lowest_level(clients: Clients) -> types.LoggingLevel:
    """The least severe level that any client asked for."""
    asked = [state.log_level for state in clients if state.log_level is not None]
    return min(asked, key=LEVELS.index, default="info")


async def forward_question(
    clients: Clients, callers: Sequence[Caller], request: types.ServerRequest
) -> InputAnswer:
    """The answer to a server's question of the client whose call it can only be about."""
    waiting = {id(clients.of(context)): (context, call) for context, call in callers}
    if len(waiting) != 1:
        reason = "no client's call is" if not waiting else "calls of several clients are"
        return types.ErrorData(
            code=types.INVALID_REQUEST,
            message=f"the gateway cannot tell whom to ask: {reason} being worked on",
        )
    ((context, call),) = waiting.values()
    return await (_ask(context, request) if call is None else call.ask(request))


def _wants(level: str | None, note: types.LoggingMessageNotification) -> bool:
    if level is None:
        return True
    return level in LEVELS and LEVELS.index(level) <= LEVELS.index(note.params.level)


async def _ask(context: Context, request: types.ServerRequest) -> InputAnswer:
    """Put a server's question to the client whose request is being worked on."""
    if not context.session.can_send_request:
        return types.ErrorData(
            code=types.INVALID_REQUEST,
            message="this client takes no questions from servers on its connection",
        )
    try:
        result: InputAnswer = await context.session.send_request(
            request,
            _answer_type(request),
            metadata=ServerMessageMetadata(related_request_id=context.request_id),
        )
    except MCPError as error:
        return error.error
    return result


def _answer_type(request: types.ServerRequest) -> type[Any]:
    if isinstance(request, types.CreateMessageRequest):
        wants_tools = request.params.tools is not None or request.params.tool_choice is not None
        return types.CreateMessageResultWithTools if wants_tools else types.CreateMessageResult
    return types.ElicitResult if isinstance(request, types.ElicitRequest) else types.ListRootsResult


async def _answer_inputs(
    context: Context, result: RawResult, again: Callable[[Mapping[str, Any]], Awaitable[RawResult]]
) -> RawResult:
    """The final result where a 2026-07-28 server answers a call with questions.

    For clients of the handshake era, which know questions only as requests of their own. ``again``
    sends the request once more, with parameters added.
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
        answers: dict[str, Any] = {}
        for key, request in (interim.input_requests or {}).items():
            answer = await _ask(context, request)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        if answers:
            added["inputResponses"] = answers
        result = await again(added)
    raise MCPError(types.INTERNAL_ERROR, f"the server asked for input more than {MAX_ROUNDS} times")
