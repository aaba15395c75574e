"""tau-bench (Yao et al., 2024): runs of gpt-4o as an airline's agent, with outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdr.datasets.base import Source, member
from dtdr.demonstration_files import convert_records
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.jsonl import BadRecords, iter_json_lines, leave_out
from dtdr.tools import Tool

if TYPE_CHECKING:
    from dtdr.traces.turns import Cutter

NAME = "tau_airline"


def convert(record: Any, cutter: Cutter) -> list[Demonstration]:
    """The turns of one run that called tools, each with what came before it.

    The outcome is the benchmark's reward; calls stand as they were made, failed ones included.

    Raises:
        InputError: a key is missing or of another type.
    """
    from dtdr.traces.messages import read_conversation

    messages = member(record, "messages", kind=list)
    metadata = member(record, "metadata", kind=dict)
    task, trial = (member(metadata, key, kind=int) for key in ("task", "trial"))
    reward = member(metadata, "reward", kind=(int, float))
    trace = read_conversation(messages)
    trace.id, trace.group = f"{task}-{trial}", f"task-{task}"
    return [
        replace(turn, outcome="success" if reward >= 1 else "failure") for turn in cutter.cut(trace)
    ]


def read(path: Path, bad: BadRecords | None = None) -> Iterator[Demonstration]:
    """Stream the runs, one JSON object a line, turn by turn."""
    return convert_records(path, _turns(path, bad), lambda turn: turn, bad)


def _turns(path: Path, bad: BadRecords | None) -> Iterator[tuple[str, Demonstration]]:
    from dtdr.traces.cut_options import CutOptions, Failed
    from dtdr.traces.turns import Cutter

    cutter = Cutter(CutOptions(failed=Failed.KEEP), None, "tau-bench airline, gpt-4o")
    for number, record in iter_json_lines(path, bad=bad):
        try:
            turns = convert(record, cutter)
        except InputError as error:
            leave_out(f"{path}:{number}: {error}", bad)
            continue
        yield from ((f":{number}", turn) for turn in turns)


def read_tools(path: Path) -> tuple[Tool, ...]:
    """The tools that some run calls; the set has no descriptions."""
    names = {tool for turn in read(path, BadRecords()) for tool in turn.plan.tools}
    return tuple(map(Tool, sorted(names)))


SOURCE = Source(
    name=NAME,
    title="tau-bench airline, runs of gpt-4o",
    files=(f"{NAME}/gpt-4o.jsonl",),
    read=read,
    tools=read_tools,
    origin="https://github.com/sierra-research/tau-bench (historical_trajectories)",
    licence="MIT",
    note="35 tasks, four runs each, which are near-duplicates: split by task (group); the outcome "
    "is the reward",
)
