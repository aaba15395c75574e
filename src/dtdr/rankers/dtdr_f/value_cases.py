"""Cases of values: from a call that returned them until the same tool is called again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.rankers.dtdr_f.observations import NO_OUTCOME, RunReader
from dtdr.rankers.dtdr_f.value_names import ON_QUERY
from dtdr.rankers.dtdr_f.values import NUMERIC, Values, read_query

Floats = npt.NDArray[np.float64]


class ValueSpan(NamedTuple):
    """The steps at which the latest call of a tool is the same.

    Attributes:
        call: its place in ``Conversation.values``.
        first: the first step.
        last: the last step.
    """

    call: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Conversation:
    """The turns of a conversation, one after the other.

    Attributes:
        group: of the runs.
        steps: of each step, the demonstration and how many of its calls were made.
        calls: before the first turn, then those of the turns.
        values: of each call; those of the query of turn n are at -1 - n.
        earlier: how many of the calls are before the first turn.
        spans: by tool; those of a query are the turns.
    """

    group: str
    steps: list[tuple[Demonstration, int]] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    values: list[Values] = field(default_factory=list)
    earlier: int = 0
    spans: dict[str, list[ValueSpan]] = field(default_factory=lambda: defaultdict(list))


class Case(NamedTuple):
    """Values that are known at some steps of a conversation.

    Attributes:
        conversation: the turns.
        calls: places of the values, as ``ValueSpan.call``; one for each tool.
        steps: positions in ``Conversation.steps``.
    """

    conversation: Conversation
    calls: tuple[int, ...]
    steps: range


def read_conversations(demonstrations: Sequence[Demonstration]) -> list[Conversation]:
    """The conversations whose outputs are known; ``dtdr import`` numbers the turns of one."""
    turns: dict[str, list[tuple[int, Demonstration]]] = defaultdict(list)
    for item in demonstrations:
        stem, dash, turn = item.id.rpartition("-")
        is_turn = bool(dash and stem) and turn.isdecimal()
        turns[stem if is_turn else item.id].append((int(turn) if is_turn else 0, item))
    read = (
        _read([item for _, item in sorted(listed, key=lambda pair: pair[0])])
        for listed in turns.values()
    )
    return [conversation for conversation in read if conversation is not None]


def _read(turns: Sequence[Demonstration]) -> Conversation | None:
    reader = RunReader(turns[0].before, turns[0].query)
    earlier = turns[0].plan.earlier
    earlier = earlier[len(earlier) - len(reader.earlier) :]
    talk = Conversation(turns[0].group or turns[0].id, earlier=len(earlier))
    talk.calls.extend(earlier)
    latest = {call.tool: ValueSpan(at, 0, 0) for at, call in enumerate(earlier)}
    values, has_outputs = [*reader.earlier], any(call.output is not None for call in earlier)

    def close(tool: str) -> None:
        if tool in latest and latest[tool].first < len(talk.steps):
            talk.spans[tool].append(latest[tool]._replace(last=len(talk.steps) - 1))

    for number, item in enumerate(turns):
        calls, start = item.plan.calls, len(talk.steps)
        reader = RunReader(item.before, item.query)
        talk.spans[ON_QUERY].append(ValueSpan(-1 - number, start, start + len(calls)))
        returned = 0
        for done in range(len(calls) + 1):
            step = calls[done].step if 0 < done < len(calls) else None
            if done and (step is None or step != calls[done - 1].step):
                # Parallel calls return together; of one tool, the last one counts.
                for at, call in enumerate(calls[returned:done], returned):
                    close(call.tool)
                    latest[call.tool] = ValueSpan(len(talk.calls) + at, start + done, 0)
                returned = done
            talk.steps.append((item, done))
        talk.calls.extend(calls)
        outcomes = [reader.read(call) for call in calls]
        has_outputs |= any(outcome is not NO_OUTCOME for outcome in outcomes)
        values += [outcome.values for outcome in outcomes]
    for tool in latest:
        close(tool)
    talk.values.extend([*values, *(read_query(item.query) for item in reversed(turns))])
    return talk if has_outputs else None


def iter_tools(talks: Sequence[Conversation], least: int) -> Iterator[tuple[str, ...]]:
    """Tools, and pairs of them, with this many calls; the query counts as a tool."""
    counts: dict[str, int] = defaultdict(int)
    for talk in talks:
        for tool, spans in talk.spans.items():
            counts[tool] += len(spans)
    tools = sorted(tool for tool, count in counts.items() if count >= least)
    yield from ((tool,) for tool in tools)
    yield from combinations(tools, 2)


def collect_cases(talks: Sequence[Conversation], tools: tuple[str, ...]) -> list[Case]:
    """The cases of a tool, or those of two tools at the steps where both have returned."""
    cases = []
    for talk in talks:
        for span in talk.spans.get(tools[0], ()):
            if len(tools) == 1:
                cases.append(Case(talk, (span.call,), range(span.first, span.last + 1)))
                continue
            for other in talk.spans.get(tools[1], ()):
                steps = range(max(span.first, other.first), min(span.last, other.last) + 1)
                if steps:
                    cases.append(Case(talk, (span.call, other.call), steps))
    return cases


def read_columns(cases: Sequence[Case], tool: int, least: int) -> Mapping[int, Floats]:
    """By key, the values of all cases; NaN where a number is not known.

    Args:
        cases: of one tool or two.
        tool: which of them.
        least: cases that must have a value.
    """
    known: dict[int, dict[int, float]] = defaultdict(dict)
    for at, (talk, calls, _) in enumerate(cases):
        values = talk.values[calls[tool]]
        for key, value in zip(values.keys.tolist(), values.values.tolist(), strict=True):
            known[key][at] = value
    columns = {}
    for key, read in known.items():
        if len(read) >= least:
            column = np.full(len(cases), np.nan if key < NUMERIC else 0.0)
            column[[*read]] = [*read.values()]
            columns[key] = column
    return columns
