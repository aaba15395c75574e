"""A conversation in an agent's own messages, and the runs that its steps are ranked by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from dtdr.conversation.assembly import assemble, positioned
from dtdr.conversation.events import LoggedCall
from dtdr.conversation.injected import remove_blocks
from dtdr.conversation.items import Item
from dtdr.conversation.turns import number_steps, turns_of
from dtdr.conversation.values import arguments_of
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Message
from dtdr.data.outputs import bound_output, last_words, status_of
from dtdr.data.run import NO_CALLS, Run, read_item
from dtdr.errors import check_lists

_ARGUMENTS_LENGTH = 100_000
"""Characters kept of a call's arguments, as compact JSON."""

Event = Message | ToolCall


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the user, and what the agent said and called until the next.

    Attributes:
        query: the user's message; empty if the agent spoke first.
        events: the agent's texts and calls, oldest first; the calls of one answer share a ``step``.
            Outputs are as in the messages, of any length.
    """

    query: str
    events: tuple[Event, ...] = ()

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, oldest first."""
        return tuple(event for event in self.events if isinstance(event, ToolCall))


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation, cut into the turns of its user; ids of calls are unique in it."""

    turns: tuple[Turn, ...] = ()

    @classmethod
    def of(cls, query: str, history: Iterable[str] = ()) -> Transcript:
        """The transcript of one query and the calls made for it, one after another.

        Blocks that programs put into the query, such as ``<system-reminder>``, are left out.
        """
        check_lists(history=history)
        calls = (ToolCall(str(step), name, step=step) for step, name in enumerate(history, start=1))
        return cls((Turn(remove_blocks(query), tuple(calls)),))

    @property
    def called(self) -> tuple[str, ...]:
        """Every call of the conversation, earlier turns included, oldest first."""
        return tuple(call.tool for turn in self.turns for call in turn.calls)

    def without(self, names: Collection[str]) -> Transcript:
        """The transcript without the calls of some tools, such as a search for tools."""
        return self._change_calls(lambda call: None if call.tool in names else call)

    def by_name(self) -> Transcript:
        """The transcript with only the names of its calls."""
        return self._change_calls(lambda call: ToolCall(call.id, call.tool, step=call.step))

    def _change_calls(self, change: Callable[[ToolCall], ToolCall | None]) -> Transcript:
        def changed(events: tuple[Event, ...]) -> tuple[Event, ...]:
            items = (change(item) if isinstance(item, ToolCall) else item for item in events)
            return tuple(item for item in items if item is not None)

        return Transcript(tuple(replace(turn, events=changed(turn.events)) for turn in self.turns))

    def run(self) -> Run:
        """The run that the next step is ranked by; an empty query without a user's message.

        It has the user's last message, the calls since then, and what came before. Outputs and
        texts are read and cut as in every ``Run``.
        """
        runs = self.runs(last_only=True)
        return runs[-1] if runs else Run("")

    def runs(self, *, last_only: bool = False) -> list[Run]:
        """The run of every step of the conversation so far, the next step's last.

        The end of each turn is a step, too: the agent chose to call nothing more.
        """
        runs: list[Run] = []
        before: list[Event] = []
        for turn in self.turns:
            events = list(map(_read, turn.events))
            calls = [
                item for item in events if isinstance(item, ToolCall) and item.tool not in NO_CALLS
            ]
            run = Run.of_read(turn.query.strip(), before, calls)
            if not last_only:
                # The calls of one answer were asked for together, before any of them was made.
                begins = [
                    index
                    for index, call in enumerate(calls)
                    if index == 0 or call.step is None or call.step != calls[index - 1].step
                ]
                runs += map(run.first, begins)
            if not last_only or turn is self.turns[-1]:
                runs.append(run)
            before += [Message("user", turn.query)] if turn.query else []
            # The text of a call is that of the message before it, which stays.
            before += [replace(e, text=None) if isinstance(e, ToolCall) else e for e in events]
        return runs


def read_items(messages: Iterable[Iterable[Item]]) -> Transcript:
    """The transcript of a conversation, given the items of its messages.

    Every framework's messages become items first; then they are read as in ``dtdr import``, so that
    the model sees an agent's steps as it saw its logs. Blocks of programs in the user's
    messages, and calls that were refused, are left out.
    """
    turns: list[Turn] = []
    count = 0
    for turn in turns_of(assemble(positioned(messages)).events):
        steps = iter(number_steps(turn.calls()))
        events: list[Event] = []
        for event in turn.events:
            if isinstance(event, LoggedCall):
                count += 1
                events.append(read_call(event, str(count), next(steps)))
            else:
                events.append(Message("assistant", event.text))
        turns.append(Turn("\n".join(filter(None, turn.texts)).strip(), tuple(events)))
    return Transcript(tuple(turns))


def read_call(call: LoggedCall, identifier: str, step: int | None) -> ToolCall:
    """A call of a log or a client, with its whole output."""
    # Whether the output is empty is derived when a run reads the call.
    has_ended = call.ended is not None
    status = status_of(None, failed=call.failed, ended=has_ended)
    arguments = arguments_of(call.arguments)
    output = call.output if has_ended else None
    text = last_words(call.text) or None
    return ToolCall(identifier, call.tool, arguments, output, status, step, text=text)


def _read(event: Event) -> Event:
    return read_item(event) if isinstance(event, Message) else bound_call(event)


def bound_call(event: ToolCall) -> ToolCall:
    """A call as a run takes it: long arguments are cut, and the name of its tool is text.

    Half a surrogate pair in it makes an unknown tool.
    """
    # In a list, since arguments may be nested one less deep than an output.
    arguments = bound_output([dict(event.arguments)], _ARGUMENTS_LENGTH)[0][0]
    tool = event.tool.encode("utf-8", "replace").decode()
    return read_item(replace(event, tool=tool, arguments=arguments))
