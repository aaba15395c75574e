"""Brings what servers say and ask on their own to the clients that it concerns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated

from dtdr.gateway.asking import ask
from dtdr.gateway.clients import Clients, ClientState, Context
from dtdr.gateway.listener import InputAnswer

LEVELS: tuple[types.LoggingLevel, ...] = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
"""From the least severe."""


async def announce(clients: Clients, note: types.ServerNotification) -> None:
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


async def log(
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


async def answer(
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
    return await ask(context, request)


def _wants(level: str | None, note: types.LoggingMessageNotification) -> bool:
    if level is None:
        return True
    return level in LEVELS and LEVELS.index(level) <= LEVELS.index(note.params.level)
