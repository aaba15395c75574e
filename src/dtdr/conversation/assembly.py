"""Puts the contents of messages together: which result answers which call, and the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dtdr.conversation.events import AssistantMessage, LoggedCall, LoggedRun, UserMessage
from dtdr.conversation.items import Item, SystemMessage, ToolCallRequest, ToolResult, text_of


def assemble(items: Iterable[tuple[int, Item]], system: Any = None) -> LoggedRun:
    """The trace of a conversation's items, each with the position of its message.

    Calls start at the position of the message that requests them and end at that of their result,
    so calls requested together cannot use each other's outputs. Calls of one position are one step.

    Args:
        items: with positions, in order.
        system: instructions outside the messages.
    """
    trace = LoggedRun("", [])
    given: list[str] = []
    waiting: list[LoggedCall] = []
    last: Item | None = None
    for position, item in items:
        if isinstance(item, SystemMessage):
            given.append(item.text)
            continue
        if isinstance(item, UserMessage):
            trace.events.append(UserMessage(item.text, isinstance(last, UserMessage), item.at))
        elif isinstance(item, AssistantMessage):
            trace.events.append(item)
        elif isinstance(item, ToolCallRequest):
            if item.tool:
                call = LoggedCall(item.tool, item.arguments, position, id=item.id, step=position)
                trace.events.append(call)
                waiting.append(call)
        elif (answered := _take_waiting(waiting, item)) is not None:
            answered.output, answered.ended = item.output, position
            answered.failed = item.has_failed
        else:
            trace.unmatched += 1
        last = item
    if instructions := text_of(system):
        given.append(instructions)
    trace.given = tuple(given)
    return trace


def positioned(messages: Iterable[Iterable[Item]]) -> Iterator[tuple[int, Item]]:
    """The contents of messages with positions; calls in a row have one position."""
    position, together = 0, False
    for message in messages:
        items = list(message)
        if not items:
            continue  # reasoning between two calls does not separate them
        only_call = len(items) == 1 and isinstance(items[0], ToolCallRequest)
        if not (together and only_call):
            position += 1
        together = only_call
        for item in items:
            yield position, item


def _take_waiting(waiting: list[LoggedCall], answer: ToolResult) -> LoggedCall | None:
    """The call that an answer belongs to, removed from those that wait for one.

    Some servers use names of tools as ids: of equal ids in a message, the first is first.
    """
    found = None
    for index in range(len(waiting) - 1, -1, -1):
        if found is not None and waiting[index].started < waiting[found].started:
            break
        if answer.id and waiting[index].id == answer.id:
            found = index
    if found is not None:
        return waiting.pop(found)
    if answer.id and any(call.id for call in waiting):
        return None
    for index, call in enumerate(waiting):
        if not answer.tool or call.tool == answer.tool:
            return waiting.pop(index)
    return None
