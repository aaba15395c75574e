"""What servers send on their own: changes, log messages, and questions to a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated

from dtdr.agents.gateway.clients import Clients, Context

LEVELS: tuple[types.LoggingLevel, ...] = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
"""From the least severe."""

InputAnswer = (
    types.CreateMessageResult
    | types.CreateMessageResultWithTools
    | types.ElicitResult
    | types.ListRootsResult
    | types.ErrorData
)
"""A client's answer to a server's question."""

Caller = tuple[Context, Any]
"""A client's request that a server is working on, and its ``OpenCall`` if it has one."""


async def forward_change(clients: Clients, note: types.ServerNotification) -> None:
    """Send a change of resources or prompts to the clients, in the way of their protocol."""
    for state in clients:
        if isinstance(note, types.ResourceUpdatedNotification):
            # A server may report a part of what was subscribed to.
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
    """Send a log message to the clients whose calls the server is working on, else to all.

    A client gets what is at least as severe as it asked for; one of 2026-07-28 asks in each call.
    """
    for context, _ in callers:
        state = clients.of(context)
        level: Any = state.log_level
        if state.is_modern:
            level = (context.meta or {}).get(types.LOG_LEVEL_META_KEY, "none")
        if _wants(level, note):
            await context.session.send_notification(note, context.request_id)
    for state in () if callers else clients:
        if state.wire is not None and not state.is_modern and _wants(state.log_level, note):
            await state.wire.send_notification(note)


def _wants(level: str | None, note: types.LoggingMessageNotification) -> bool:
    if level is None:
        return True
    return level in LEVELS and LEVELS.index(level) <= LEVELS.index(note.params.level)


async def forward_question(
    clients: Clients, callers: Sequence[Caller], request: types.ServerRequest
) -> InputAnswer:
    """The answer to a server's question of the client whose call it is about."""
    waiting = {id(clients.of(context)): (context, call) for context, call in callers}
    if len(waiting) != 1:
        reason = "no client's call is" if not waiting else "calls of several clients are"
        return types.ErrorData(
            code=types.INVALID_REQUEST,
            message=f"the gateway cannot tell whom to ask: {reason} being worked on",
        )
    ((context, call),) = waiting.values()
    return await (ask(context, request) if call is None else call.ask(request))


async def ask(context: Context, request: types.ServerRequest) -> InputAnswer:
    """Ask the client whose request is being worked on."""
    if not context.session.can_send_request:
        return types.ErrorData(
            code=types.INVALID_REQUEST,
            message="this client takes no questions from servers on its connection",
        )
    metadata = ServerMessageMetadata(related_request_id=context.request_id)
    try:
        result: InputAnswer = await context.session.send_request(
            request, answer_type(request), metadata=metadata
        )
    except MCPError as error:
        return error.error
    return result


def answer_type(request: types.ServerRequest) -> type[Any]:
    """The type of the answer to a question."""
    if isinstance(request, types.CreateMessageRequest):
        wants_tools = request.params.tools is not None or request.params.tool_choice is not None
        return types.CreateMessageResultWithTools if wants_tools else types.CreateMessageResult
    return types.ElicitResult if isinstance(request, types.ElicitRequest) else types.ListRootsResult
