"""Events of a conversation: messages and calls, in order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from dtdr.conversation.values import arguments_of, first_of
from dtdr.data import json_codec
from dtdr.data.demonstrations import Demonstration


@dataclass(slots=True)
class UserMessage:
    """A user's message.

    ``joins`` if the user's message before it got no answer. ``at`` is when it was sent, in
    nanoseconds since 1970; 0 if unknown.
    """

    text: str
    joins: bool = False
    at: int = 0


@dataclass(slots=True)
class AssistantMessage:
    """A text of the model."""

    text: str


@dataclass(slots=True)
class LoggedCall:
    """A call in a log.

    ``started`` and ``ended`` are on one scale within a run (positions of messages, or times): a
    call can only use outputs of calls that had ended when it started. ``step`` numbers the agent's
    messages with calls; None if unknown. ``nested`` is what ran inside the call and called tools.
    ``text`` is what the agent wrote in the message that made the call, on the first call of it.
    """

    tool: str
    arguments: Any
    started: float
    ended: float | None = None
    id: str = ""
    output: Any = None
    failed: bool = False
    step: int | None = None
    nested: tuple[LoggedRun, ...] = ()
    text: str = ""


Event = UserMessage | AssistantMessage | LoggedCall


@dataclass(slots=True)
class LoggedRun:
    """One conversation or agent run.

    Attributes:
        id: the log's identifier; empty if it has none.
        events: messages and calls, in order.
        earlier: the conversation before, which becomes no demonstrations.
        instructions: of the system; a value in them does not come from a tool.
        failed: the run as a whole ended in an error, or was judged a failure.
        unmatched: results of no call, or of a call that has a result already.
        at: when it began, in nanoseconds since 1970; 0 if unknown.
        demonstration: set by formats whose records are demonstrations.
        offered: names of the tools that its requests list.
        replays: it may begin with turns that another run of its group has, too.
        default_query: query if no message is the user's and none is given.
    """

    id: str
    events: list[Event]
    group: str = ""
    earlier: list[Event] = field(default_factory=list)
    instructions: tuple[str, ...] = ()
    failed: bool = False
    salt: str = ""
    unmatched: int = 0
    at: int = 0
    demonstration: Demonstration | None = None
    offered: Collection[str] = ()
    replays: bool = False
    default_query: str = ""


_TASKS = ("prompt", "task", "query", "question", "goal", "input", "instruction", "description")
"""Arguments that contain a sub-agent's task, the most specific first."""


def call_text(call: LoggedCall) -> str:
    """The request of a call, as the query of a nested run: a text, or the whole call."""
    arguments = arguments_of(call.arguments)
    texts = {key: value for key, value in arguments.items() if isinstance(value, str) and value}
    if task := first_of(texts, *_TASKS) or (len(texts) == 1 and next(iter(texts.values()))):
        return str(task)
    return f"{call.tool} {json_codec.dumps(arguments).decode('utf-8', 'replace')}"


def nest(call: LoggedCall, run: LoggedRun, name: str) -> None:
    """Nest a run in the call that it was inside of; ``name`` is unique in the log.

    Without a user's message, its query is what the call asks for.
    """
    run.id = name
    run.failed = run.failed or call.failed
    if not any(isinstance(event, UserMessage) for event in run.events):
        run.events.insert(0, UserMessage(call_text(call)))
    call.nested = (*call.nested, run)
