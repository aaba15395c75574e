"""Reads traces that are recorded as spans: model calls with messages, and tool executions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from dtdr.conversation.assembly import assemble
from dtdr.conversation.events import (
    AssistantMessage,
    Event,
    LoggedCall,
    LoggedRun,
    UserMessage,
    nest,
)
from dtdr.conversation.items import Item, SystemMessage, ToolCallRequest, ToolResult
from dtdr.conversation.messages import items_of
from dtdr.conversation.times import nanoseconds
from dtdr.conversation.values import as_mapping, first_of
from dtdr.data import json_codec
from dtdr.errors import InputError
from dtdr.logs.log_format import LogFormat


class Span(msgspec.Struct):
    """The queries and calls in a span, in any convention.

    Attributes:
        kind: ``llm``, ``tool``, ``agent`` (if it has a name), or empty.
        start: in nanoseconds; 0 if unknown.
        inputs: messages to the model.
        outputs: messages from the model.
        tool: name of the tool or agent.
        text: what an agent or chain was asked, if that is a plain text.
        group: id of the conversation or session.
        offered: names of the tools that a model could call.
    """

    trace: str
    id: str
    parent: str = ""
    kind: str = ""
    start: int = 0
    end: int = 0
    tool: str = ""
    call_id: str = ""
    arguments: Any = None
    output: Any = None
    failed: bool = False
    inputs: list[Any] = []
    outputs: list[Any] = []
    text: str = ""
    group: str = ""
    offered: list[str] = []


_IDS = ("context.span_id", "spanId", "span_id", "id", "run_id")
_TRACES = ("context.trace_id", "traceId", "trace_id")
_PARENTS = """parentSpanId parent_span_id parent_id parent_run_id parentObservationId
    parent_observation_id""".split()  # noqa: SIM905  # as prose
_ERRORS = (2, "2", "STATUS_CODE_ERROR", "ERROR", "StatusCode.ERROR", "error")
_STARTS = ("startTimeUnixNano", "start_time_unix_nano", "start_time_ns", "start_time", "startTime",
           "started_at", "start_timestamp")  # fmt: skip
_ENDS = (
    "endTimeUnixNano",
    "end_time_unix_nano",
    "end_time_ns",
    "end_time",
    "endTime",
    "ended_at",
    "end_timestamp",
)


def span_of(record: Mapping[str, Any]) -> Span:
    """A span from the fields that spans, runs and observations share; ``tool`` is its name."""
    context = as_mapping(record.get("context"))
    record = {**record, **{f"context.{key}": value for key, value in context.items()}}
    status = first_of(record, "status", "status_code", "otel_status_code")
    code = first_of(status, "code", "status_code") if isinstance(status, dict) else status
    has_error = bool(record.get("error") or record.get("is_exception"))
    return Span(
        str(first_of(record, *_TRACES) or ""),
        str(first_of(record, *_IDS) or ""),
        str(first_of(record, *_PARENTS) or ""),
        kind=str(first_of(record, "span_kind", "kind") or ""),
        start=nanoseconds(first_of(record, *_STARTS)),
        end=nanoseconds(first_of(record, *_ENDS)),
        tool=str(record.get("name") or ""),
        failed=code in _ERRORS or record.get("level") == "ERROR" or has_error,
    )


class SpanFormat(LogFormat):
    """Files spans by trace, and reads query and calls from the finished trace.

    Executions of tools are the calls; if a run has none, the calls that the model asked for are.
    What runs inside a tool is a run nested in that call. So is an agent inside another agent, by
    the name ``agent:NAME``. Queries come only from model calls of the conversation that a run
    begins with, since a sub-agent's instructions are not the user's words.
    """

    @abstractmethod
    def spans(self, record: Any) -> Iterator[Span]:
        """The spans of a record; InputError if it is not a record of this format."""

    def add(self, record: Any, raw: bytes, origin: tuple[int, int]) -> None:
        """File the spans of a record; see ``LogFormat.add``."""
        for index, span in enumerate(self.spans(record)):
            if not span.trace:
                raise InputError("a span has no trace id")
            # A span without an id is another than every other one.
            span.id = span.id or f"~{origin[0]}/{origin[1]}/{index}"
            packed = json_codec.dumps(msgspec.structs.astuple(span))
            self.window.append(span.trace, packed, origin)

    def runs(self, payloads: list[bytes], key: str) -> Iterator[LoggedRun]:
        """The run of a group of spans.

        If no span is a tool, spans with the name of a tool that a model asked for are.
        """
        spans = [Span(*json_codec.loads(payload)) for payload in payloads]
        for span in spans:
            span.inputs = [i for message in span.inputs for i in items_of(message, self.unknown)]
            span.outputs = [i for message in span.outputs for i in items_of(message, self.unknown)]
        if not any(span.kind == "tool" for span in spans):
            items = [item for span in spans for item in span.outputs]
            tools = {item.tool for item in items if isinstance(item, ToolCallRequest)}
            for span in spans:
                if not span.kind and span.tool in tools:
                    span.kind = "tool"
        yield _SpanRun(_Tree(spans)).logged()


_DEEPEST = 50
"""Depth of runs within runs; each takes some frames of Python's stack, which has 1,000."""


class _Tree:
    """The spans of a trace by run: the trace itself (``""``), or inside a tool or sub-agent."""

    def __init__(self, spans: list[Span]) -> None:
        # If a span is exported twice, the later one is finished.
        self.by_id = {span.id: span for span in spans}
        self._places = self._find_places()
        self.runs: dict[str, list[Span]] = {}
        for span in sorted(self.by_id.values(), key=attrgetter("start")):
            self.runs.setdefault(self._places[span.id][0], []).append(span)

    def is_sub_agent(self, span: Span) -> bool:
        """Whether an agent ran inside another agent, as one of its calls."""
        return span.kind == "agent" and self._places[span.id][1]

    def _find_places(self) -> dict[str, tuple[str, bool]]:
        """The run of each span, and whether the span is inside an agent of that run."""
        below: dict[str, list[Span]] = {}
        for span in self.by_id.values():
            below.setdefault(span.parent, []).append(span)
        places = dict.fromkeys(self.by_id, ("", False))  # also of spans in a cycle
        tops = [span for span in self.by_id.values() if span.parent not in self.by_id]
        working = self._find_working(tops, below)
        pending = [(span, ("", False)) for span in tops]
        while pending:
            span, run = pending.pop()
            places[span.id] = run
            if span.kind == "tool":
                run = (span.id, False)
            elif span.kind == "agent":
                run = (span.id if run[1] else run[0], run[1] or span.id in working)
            pending += [(child, run) for child in below.get(span.id, ())]
        return places

    def _find_working(self, tops: list[Span], below: dict[str, list[Span]]) -> set[str]:
        """Agents that call a model or a tool themselves; one that does not only wraps another."""
        working: set[str] = set()
        pending = [(span, "") for span in tops]
        while pending:
            span, agent = pending.pop()
            if span.kind in ("llm", "tool"):
                working.add(agent)
            elif span.kind == "agent":
                agent = span.id
            pending += [(child, agent) for child in below.get(span.id, ())]
        return working


class _SpanRun:
    """One run: its spans in the order of their starts, and the span it is nested in."""

    def __init__(self, tree: _Tree, inside: Span | None = None, depth: int = 0) -> None:
        self.tree = tree
        self.inside = inside
        self.depth = depth
        self.spans = tree.runs.get("" if inside is None else inside.id, [])
        self.models = self._main_conversation()

    def logged(self) -> LoggedRun:
        """The run with its events in order, and with the runs inside its calls."""
        calls = self._calls()
        for span in filter(self.tree.is_sub_agent, self.spans):
            arguments = {"input": span.text} if span.text else {}
            call = _executed(f"agent:{span.tool}", arguments, span)
            calls.append(self._with_nested(call, span))
        messages = list(self._iter_messages())
        has_query = any(isinstance(message, UserMessage) for _, message in messages)
        if not has_query and (text := self._root_text()):
            begin = min((int(call.started) for call in calls), default=0)
            messages.insert(0, (begin, UserMessage(text, at=self.spans[0].start)))
        events: list[tuple[int, int, Event]] = [(int(at), 0, message) for at, message in messages]
        events += [(int(call.started), 1, call) for call in calls]
        events.sort(key=itemgetter(0, 1))
        first = self.spans[0] if self.spans else Span("", "")
        top = "" if self.inside is None else self.inside.id
        tops = (s for s in self.spans if s.parent == top or s.parent not in self.tree.by_id)
        before = assemble(enumerate(self._before()))
        return LoggedRun(
            id=first.trace,
            events=[event for _, _, event in events],
            earlier=before.events,
            group=next((span.group for span in self.spans if span.group), ""),
            instructions=before.instructions,
            failed=next((span.failed for span in tops), False),
            at=first.start,
            offered={name for span in self.spans for name in span.offered},
        )

    def _with_nested(self, call: LoggedCall, span: Span) -> LoggedCall:
        """The call with what ran inside it, if that called something."""
        if span.id in self.tree.runs and self.depth < _DEEPEST:
            run = _SpanRun(self.tree, span, self.depth + 1).logged()
            calls = [event for event in run.events if isinstance(event, LoggedCall)]
            # One call of the same tool is one execution, recorded by the agent and by the server.
            if calls and (len(calls) > 1 or calls[0].tool != call.tool):
                nest(call, run, f"{span.trace}/{span.id}")
        return call

    def _main_conversation(self) -> list[Span]:
        """The calls of models of the conversation that the run begins with."""
        main, opening = [], None
        for span in self.spans:
            if span.kind == "llm":
                first = next(iter(_texts(span.inputs)), None)
                opening = first if opening is None else opening
                if first in (None, opening):
                    main.append(span)
        return main

    def _iter_messages(self) -> Iterator[tuple[int, UserMessage | AssistantMessage]]:
        """Messages: the user's at the first model call that has them, the agent's at its end."""
        known, last = 0, None
        for span in self.models:
            texts = _texts(span.inputs)
            if texts and (len(texts) > known or texts[-1] != last):
                new = texts[known:] if known and len(texts) > known else texts[-1:]
                for text in new:
                    yield span.start, UserMessage(text, at=span.start)
                last = texts[-1]
            known = len(texts) or known
            for item in span.outputs:
                if isinstance(item, AssistantMessage):
                    yield max(span.start, span.end), item

    def _before(self) -> list[Item]:
        """The conversation before this trace: all before the user's last message."""
        for span in self.models:
            items = span.inputs
            queries = [i for i, item in enumerate(items) if isinstance(item, UserMessage)]
            if queries:
                rest = [item for item in items[queries[-1] :] if isinstance(item, SystemMessage)]
                return [*items[: queries[-1]], *rest]
        return self.models[0].inputs if self.models else []

    def _calls(self) -> list[LoggedCall]:
        """The calls: executions, with what the messages say of them; else the model's requests."""
        asked, answers = self._read_requests()
        tools = [span for span in self.spans if span.kind == "tool" and span.tool]
        if not tools:
            for call in asked:
                if call.id and call.id in answers:
                    answer, call.ended = answers[call.id]
                    call.output, call.failed = answer.output, answer.has_failed
            first = self.models[0].inputs if self.models else []
            before = {item.id for item in first if isinstance(item, ToolCallRequest)}
            return [call for call in asked if call.id not in before]
        by_id = {call.id: call for call in asked if call.id}
        unmatched = by_id.keys() - {span.call_id for span in tools}
        calls = []
        for span in tools:
            if not span.call_id:
                # An execution without an id is that of the first open request of its tool.
                ids = (c.id for c in asked if c.id in unmatched and c.tool == span.tool)
                span.call_id = next(ids, "")
                unmatched.discard(span.call_id)
            call = _executed(span.tool, span.arguments, span)
            if (request := by_id.get(span.call_id)) is not None:
                call.step, call.text = request.step, request.text
                call.arguments = request.arguments if call.arguments is None else call.arguments
            if span.call_id and span.call_id in answers:
                answer, _ = answers[span.call_id]
                call.failed = call.failed or answer.failed is True
                call.output = answer.output if call.output is None else call.output
            calls.append(self._with_nested(call, span))
        return calls

    def _read_requests(self) -> tuple[list[LoggedCall], dict[str, tuple[ToolResult, int]]]:
        """Calls in the model's messages, and the first answer to each with its time."""
        calls: list[LoggedCall] = []
        answers: dict[str, tuple[ToolResult, int]] = {}
        known: set[str] = set()
        at = step = 0
        for span in self.models:
            ended = max(span.end, span.start)
            for items, started, is_output in (span.inputs, at, False), (span.outputs, ended, True):
                step += 1
                said: list[str] = []
                for item in items:
                    if isinstance(item, AssistantMessage):
                        said.append(item.text)
                    elif isinstance(item, ToolResult):
                        step += 1
                        answers.setdefault(item.id, (item, span.start))
                    elif isinstance(item, ToolCallRequest) and item.tool and item.id not in known:
                        if item.id:
                            known.add(item.id)
                        elif not is_output:
                            continue  # it may have been read among the outputs
                        call = LoggedCall(item.tool, item.arguments, started)
                        call.id, call.step, call.text = item.id, step, "\n".join(said)
                        said.clear()
                        calls.append(call)
            at = ended
        return calls, answers

    def _root_text(self) -> str:
        inside = self.inside
        if inside is not None and inside.kind == "agent" and inside.text.strip():
            return inside.text
        for span in self.spans:
            if span.kind in ("llm", "tool") or self.tree.is_sub_agent(span):
                continue
            if texts := _texts(span.inputs):
                return texts[-1]
            if span.text.strip():
                return span.text
        return ""


def _executed(tool: str, arguments: Any, span: Span) -> LoggedCall:
    ended = span.end or None
    return LoggedCall(tool, arguments, span.start, ended, span.call_id, span.output, span.failed)


def _texts(items: list[Item]) -> list[str]:
    return [item.text for item in items if isinstance(item, UserMessage)]
