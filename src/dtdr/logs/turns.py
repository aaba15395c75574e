"""Cuts logged runs into demonstrations: query, plan and what came before, per turn of the user."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dtdr.conversation.events import LoggedCall, LoggedRun
from dtdr.conversation.injected import INJECTED_TAGS
from dtdr.conversation.times import as_moment
from dtdr.conversation.turns import LogTurn, number_steps, turns_of
from dtdr.conversation.values import arguments_of, decode_json, digest
from dtdr.data import json_codec
from dtdr.data.calls import END, ToolCall, check_text, without_references
from dtdr.data.demonstrations import Demonstration, Message, Parent, read_offered
from dtdr.data.outputs import OUTPUT_LENGTH, last_words, status_of
from dtdr.data.plan import Plan
from dtdr.errors import check_lists
from dtdr.logs.log_format import DEFAULT_BYTES
from dtdr.logs.redaction import Redactor
from dtdr.logs.references import ReferenceFinder, escape
from dtdr.logs.scrubbing import AHEAD, Scrubber

MAX_DECODED = 8_000_000
"""Longer outputs stay texts, even if they are JSON."""

OUTPUTS_BEFORE = 20
"""The latest calls before a query keep their outputs. Each turn repeats what came before, and
older outputs are in the demonstration of their own turn."""


@dataclass(frozen=True, slots=True)
class CutOptions:
    """Choices made when a run becomes demonstrations.

    Attributes:
        empty: keep turns that needed no tool, as plans without calls.
        query: query of runs whose log has none; if empty, such runs are dropped.
        references: whether arguments that were outputs of earlier calls become references.
        output_length: characters kept of an output, and of a message before the query. With 0,
            a call has only its status, and messages have the default length.
        leave_out: injected tags to strip from user messages.
        group_by: key that names the group, such as a user's id; by default, the conversation's.
        window_bytes: memory for records of conversations and runs that may continue.
    """

    empty: bool = False
    query: str = ""
    references: bool = True
    output_length: int = OUTPUT_LENGTH
    leave_out: tuple[str, ...] = INJECTED_TAGS
    group_by: str = ""
    window_bytes: int = DEFAULT_BYTES

    def __post_init__(self) -> None:
        check_lists(leave_out=self.leave_out)


class Cutter:
    """Turns runs into demonstrations; counts what it keeps, and what is ``dropped`` by reason."""

    def __init__(self, options: CutOptions, redactor: Redactor | None, source: str) -> None:
        self.options = options
        self.source = source
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.scrubber = Scrubber(options.output_length, redactor, self.counts)
        self.is_new: Callable[[str], bool] = lambda mark: True
        """Whether a turn of a run that ``replays`` was not read before, by its mark."""

    def cut(self, run: LoggedRun, parent: Parent | None = None) -> Iterator[Demonstration]:
        """The demonstrations of a run, which may be nested in the call ``parent``.

        What ran inside a call comes after the demonstration that made the call, in the same group.
        """
        self.counts["unmatched results"] += run.unmatched
        if run.demonstration is not None:
            self.counts["runs"] += 1
            yield self.scrubber.demonstration(run.demonstration)
            return
        if not run.group and any(e.nested for e in run.events if isinstance(e, LoggedCall)):
            run.group = run.id
        tags = self.options.leave_out
        conversation = _TurnWriter(self, run)
        for turn in turns_of(run.earlier, tags):
            conversation.add(turn)
        turn_number, mark = 0, run.group
        for turn in turns_of(run.events, tags):
            conversation.add(turn)
            if turn.texts or turn.calls():  # else the agent spoke first
                turn_number += 1
                if run.replays:
                    mark = digest([mark, turn.texts, [[c.tool, c.id] for c in turn.calls()]])
                    if not self.is_new(mark):
                        self.counts["replayed turns"] += 1
                        continue
                self.counts["runs"] += 1
                demonstration = self._demonstration(conversation, turn_number, parent)
                if demonstration is not None:
                    yield demonstration
                yield from self._cut_nested(conversation, demonstration)

    def _cut_nested(
        self, conversation: _TurnWriter, demonstration: Demonstration | None
    ) -> Iterator[Demonstration]:
        """Demonstrations of the runs inside a turn's calls."""
        for call in conversation.turn.calls():
            identifier = conversation.calls[id(call)].id
            parent = None if demonstration is None else Parent(demonstration.id, identifier)
            for nested in call.nested:
                nested.group = conversation.run.group
                yield from self.cut(nested, parent)

    def _demonstration(
        self, conversation: _TurnWriter, turn_number: int, parent: Parent | None
    ) -> Demonstration | None:
        """The demonstration of the latest turn; None if it is dropped."""
        run, turn, options = conversation.run, conversation.turn, self.options
        query = "\n".join(turn.texts).strip() or options.query or run.default_query
        calls = turn.calls()
        if query:
            self.counts["failed calls"] += sum(call.failed for call in calls)
        if reason := self._reason_to_drop(query, calls):
            self.dropped[reason] += 1
            return None
        plan_calls = tuple(
            replace(conversation.calls[id(call)], step=step)
            for call, step in zip(calls, number_steps(calls), strict=True)
        )
        query = self.scrubber.text(query)
        written = [[call.tool, without_references(call.arguments)] for call in plan_calls]
        mark = digest([run.salt, query, written, [call.id for call in calls]])
        before = conversation.before()
        called = {call.tool for call in plan_calls}
        return Demonstration(
            id=self.scrubber.identifier(run.id, turn_number, mark),
            query=query,
            plan=Plan(plan_calls, (), tuple(i for i in before if isinstance(i, ToolCall))),
            source=self.source,
            outcome="failure" if run.failed else "success",
            group=self.scrubber.identifier(run.group),
            before=before,
            parent=parent,
            time=as_moment(turn.at or run.at),
            offered=read_offered(called.union(run.offered)) if run.offered else None,
        )

    def _reason_to_drop(self, query: str, calls: Sequence[LoggedCall]) -> str:
        if not query:
            return "no query in the log"
        if not calls and not self.options.empty:
            return "no tool was called"
        is_reserved = any(call.tool == END for call in calls)
        return f"a tool is named {END!r}, which is reserved" if is_reserved else ""


class _TurnWriter:
    """The texts and calls so far, as demonstrations have them."""

    def __init__(self, cutter: Cutter, run: LoggedRun) -> None:
        self.scrubber = cutter.scrubber
        self.finder = ReferenceFinder(cutter.options.references, self.scrubber)
        for text in run.instructions:
            self.finder.give(text)
        self.calls: dict[int, ToolCall] = {}
        self._count = 0
        self.run = run
        self.turn = LogTurn([], [])
        self._before: list[Message | ToolCall] = []
        self._with_output: deque[int] = deque()
        self._pending: list[Message | ToolCall] = []

    def add(self, turn: LogTurn) -> None:
        """Begin a turn; the former one becomes part of what came before. Ids stay unique."""
        self._pending += [Message("user", text) for text in self.turn.texts]
        self._pending += [
            replace(self.calls[id(event)], text=None)  # the message is kept, too
            if isinstance(event, LoggedCall)
            else Message("assistant", event.text)
            for event in self.turn.events
        ]
        self.turn = turn
        for text in turn.texts:
            self.finder.give(text)
        self.calls.clear()
        for call in turn.calls():
            self._count += 1
            self.calls[id(call)] = self._call(call, str(self._count))

    def before(self) -> tuple[Message | ToolCall, ...]:
        """Messages and calls before the latest turn."""
        for item in self._pending:
            if isinstance(item, Message):
                item = self.scrubber.message(item)
            elif item.output is not None:
                self._with_output.append(len(self._before))
            self._before.append(item)
        self._pending.clear()
        while len(self._with_output) > OUTPUTS_BEFORE:
            index = self._with_output.popleft()
            self._before[index] = _without_output(self._before[index])
        return tuple(self._before)

    def _call(self, call: LoggedCall, identifier: str) -> ToolCall:
        check_text(call.tool, "the tool name")
        if isinstance(call.output, str) and len(call.output) <= MAX_DECODED:
            call.output = decode_json(call.output.strip())
        arguments = self.finder.resolve(call, escape(arguments_of(call.arguments)))
        self.finder.add_output(call, identifier)
        status = status_of(call.output, failed=call.failed, ended=call.ended is not None)
        output, length = self.scrubber.output(call.output)
        text = last_words(self.scrubber.text(call.text[-AHEAD:])) if call.text else None
        return ToolCall(
            identifier,
            call.tool,
            arguments,
            output,
            status,
            output_length=length,
            text=text or None,
        )


def _without_output(call: Message | ToolCall) -> Message | ToolCall:
    """A call with only the length of its output."""
    if not isinstance(call, ToolCall):
        return call
    length = call.output_length
    if length is None:
        text = isinstance(call.output, str)
        length = len(call.output if text else json_codec.dumps(call.output))
    return replace(call, output=None, output_length=length)
