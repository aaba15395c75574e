"""Everything that passes between a client and an upstream: requests, questions, notifications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated
from pydantic import ValidationError

from dtdr.gateway.clients import Clients, ClientState, Context
from dtdr.gateway.connection import RawResult
from dtdr.gateway.upstream import InputAnswer, Upstream

LEVELS: tuple[types.LoggingLevel, ...] = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
"""From the least severe."""

MAX_ROUNDS = 10
"""How often one call may ask for input before it is given up; the SDK's clients do the same."""

_OWN_META = ("io.modelcontextprotocol/", "dtdr/")
_PASSED_META = frozenset({types.LOG_LEVEL_META_KEY})


async def forward(
    context: Context, upstream: Upstream, changed: Mapping[str, Any], *, is_modern: bool
) -> RawResult:
    """The upstream's result of a client's request, as it stands on the wire.

    Progress, log messages and questions of the upstream reach the client while it waits; when the
    client cancels, the upstream is told.

    Args:
        context: the client's request.
        upstream: who is to answer it.
        changed: parameters that differ from the client's, such as the tool's own name.
        is_modern: the client uses protocol 2026-07-28, and answers questions by itself.

    Raises:
        MCPError: the upstream's own error.
        UnavailableError: the upstream is away, or went away before it answered.
    """
    sent = {**select_params(context), **changed}
    progress = _progress_to(context)
    upstream.callers.append(context)
    try:
        result = await upstream.request(context.method, sent, progress)
        if not is_modern:
            result = await _answer_inputs(
                context,
                result,
                lambda added: upstream.request(context.method, {**sent, **added}, progress),
            )
    finally:
        upstream.callers.remove(context)
    return without_server_stamp(result)


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
    clients: Clients, callers: Sequence[Context], note: types.LoggingMessageNotification
) -> None:
    """Pass a log message to the clients whose calls the server is working on, else to all.

    A client gets what is at least as severe as it asked for; one of 2026-07-28 asks in each call.
    """
    for context in callers:
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
    clients: Clients, callers: Sequence[Context], request: types.ServerRequest
) -> InputAnswer:
    """The answer to a server's question of the client whose call it can only be about."""
    waiting: dict[int, tuple[ClientState, Context]] = {}
    for context in callers:
        state = clients.of(context)
        waiting[id(state)] = (state, context)
    if len(waiting) != 1:
        reason = "no client's call is" if not waiting else "calls of several clients are"
        return types.ErrorData(
            code=types.INVALID_REQUEST,
            message=f"the gateway cannot tell whom to ask: {reason} being worked on",
        )
    ((_, context),) = waiting.values()
    return await _ask(context, request)


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
    answer: type[Any]
    if isinstance(request, types.CreateMessageRequest):
        wants_tools = request.params.tools is not None or request.params.tool_choice is not None
        answer = types.CreateMessageResultWithTools if wants_tools else types.CreateMessageResult
    elif isinstance(request, types.ElicitRequest):
        answer = types.ElicitResult
    elif isinstance(request, types.ListRootsRequest):
        answer = types.ListRootsResult
    else:
        return types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")
    try:
        result: InputAnswer = await context.session.send_request(
            request,
            answer,
            metadata=ServerMessageMetadata(related_request_id=context.request_id),
        )
    except MCPError as error:
        return error.error
    return result


async def _answer_inputs(
    context: Context, result: RawResult, again: Callable[[Mapping[str, Any]], Awaitable[RawResult]]
) -> RawResult:
    """The final result where a 2026-07-28 server answers a call with questions.

    For clients of the handshake era, which know questions only as requests of their own.

    Args:
        context: the client's request.
        result: the server's first answer.
        again: sends the request again with the given parameters added.

    Raises:
        MCPError: the client refused, or the server never stops asking.
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
