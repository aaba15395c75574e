"""Cuts a conversation into the turns of its user, and numbers the steps of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dtdr.conversation.events import Event, LoggedCall, UserMessage
from dtdr.conversation.injected import INJECTED_TAGS, is_refusal, remove_blocks


@dataclass(slots=True)
class LogTurn:
    """A user's messages, and everything until the next one."""

    texts: list[str]
    events: list[Event]
    at: int = 0

    def calls(self) -> list[LoggedCall]:
        """The calls, in order."""
        return [event for event in self.events if isinstance(event, LoggedCall)]


def number_steps(calls: Sequence[LoggedCall]) -> list[int | None]:
    """Numbers of the calls' steps, from 1; None if unknown.

    If the log does not say which message made a call, a call begins a new step if every earlier
    call had ended.
    """
    by_message = all(call.step is not None for call in calls)
    if not by_message and len(calls) > 1 and len({call.started for call in calls}) == 1:
        return [None] * len(calls)
    steps: list[int | None] = []
    step, ended = 0, float("-inf")
    latest: float | None = None
    for call in calls:
        if by_message:
            is_new = latest is None or (call.step or 0) > latest
            latest = call.step if is_new else latest
        else:
            is_new = latest is None or (call.started > latest and call.started >= ended)
            ended = float("-inf") if is_new else ended
            latest = call.started
            ended = max(ended, call.started if call.ended is None else call.ended)
        step += is_new
        steps.append(step)
    return steps


def turns_of(
    events: Iterable[Event], leave_out: Sequence[str] = INJECTED_TAGS
) -> Iterator[LogTurn]:
    """The turns of a conversation, without calls that were refused, which were never made.

    ``<tag>…</tag>`` blocks of programs, of the tags ``leave_out``, are removed from the user's
    messages. A message that has nothing else begins no turn.
    """
    turn = LogTurn([], [])
    for event in events:
        if not isinstance(event, UserMessage):
            if not (isinstance(event, LoggedCall) and is_refusal(event.tool, event.output)):
                turn.events.append(event)
            continue
        text = remove_blocks(event.text, leave_out)
        if event.text and not text:
            continue
        if event.joins and not turn.events:
            turn.texts.append(text)
            turn.at = turn.at or event.at
        else:
            if turn.texts or turn.events:
                yield turn
            turn = LogTurn([text], [], event.at)
    if turn.texts or turn.events:
        yield turn
