"""Puts the contents of messages together: which result answers which call, and the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dtdr.conversation.events import AssistantMessage, LoggedCall, LoggedRun, UserMessage
from dtdr.conversation.items import Item, SystemMessage, ToolCallRequest, ToolResult, text_of


def assemble(items: Iterable[tuple[int, Item]], system: Any = None) -> LoggedRun:
    """The run of a conversation's items, each with the position of its message.

    Calls start at the position of the message that requests them and end at that of their result,
    so calls requested together cannot use each other's outputs. Calls of one position are one step.

    Args:
        items: with positions, in order.
        system: instructions outside the messages.
    """
    run = LoggedRun("", [])
    instructions: list[str] = []
    waiting: list[LoggedCall] = []
    said: list[str] = []  # since the last call, result or user's message
    last: Item | None = None
    for position, item in items:
        if isinstance(item, SystemMessage):
            instructions.append(item.text)
            continue
        if isinstance(item, AssistantMessage):
            run.events.append(item)
            said.append(item.text)
            last = item
            continue
        if isinstance(item, UserMessage):
            run.events.append(UserMessage(item.text, isinstance(last, UserMessage), item.at))
        elif isinstance(item, ToolCallRequest):
            if item.tool:
                call = LoggedCall(item.tool, item.arguments, position, id=item.id, step=position)
                call.text = "\n".join(said)
                run.events.append(call)
                waiting.append(call)
        elif (answered := _take_waiting(waiting, item)) is not None:
            answered.output, answered.ended = item.output, position
            answered.failed = item.has_failed
        else:
            run.unmatched += 1
        said.clear()
        last = item
    if text := text_of(system):
        instructions.append(text)
    run.instructions = tuple(instructions)
    return run


def positioned(messages: Iterable[Iterable[Item]]) -> Iterator[tuple[int, Item]]:
    """The contents of messages with positions; calls in a row have one position.

    A message that has results, too, is several: calls after a result could use it.
    """
    position, together = 0, False
    for message in messages:
        items = list(message)
        if not items:
            continue  # reasoning between two calls does not separate them
        only_call = len(items) == 1 and isinstance(items[0], ToolCallRequest)
        if not (together and only_call):
            position += 1
        together = only_call
        former: Item | None = None
        for item in items:
            if _divides(former, item):
                position += 1
            yield position, item
            former = item


def _divides(former: Item | None, item: Item) -> bool:
    """Whether a message goes on with results of its calls, or with calls after results."""
    if isinstance(item, ToolResult):
        return isinstance(former, ToolCallRequest)
    return isinstance(former, ToolResult) and isinstance(item, (ToolCallRequest, AssistantMessage))


def _take_waiting(waiting: list[LoggedCall], answer: ToolResult) -> LoggedCall | None:
    """The call that an answer belongs to, removed from those that wait for one.

    Some servers use names of tools as ids: of equal ids in a message, the first is first.
    """
    match = None
    for index in range(len(waiting) - 1, -1, -1):
        if match is not None and waiting[index].started < waiting[match].started:
            break
        if answer.id and waiting[index].id == answer.id:
            match = index
    if match is not None:
        return waiting.pop(match)
    if answer.id and any(call.id for call in waiting):
        return None
    for index, call in enumerate(waiting):
        if not answer.tool or call.tool == answer.tool:
            return waiting.pop(index)
    return None
