"""Real runs of agents in OpenAI's chat format: tau-bench's airline and shop, and LiveMCPBench.

One run per line: ``{"messages": [...], "metadata": {"task", "trial", "reward"}}``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdr.data.demonstration_files import convert_records
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords, iter_json_lines, leave_out
from dtdr.data.tools import Tool, unique_tools
from dtdr.errors import InputError
from dtdr.evaluate.datasets.source import Source, member, read_json

if TYPE_CHECKING:
    from dtdr.logs.turns import Cutter

AIRLINE, RETAIL, LIVEMCP = "tau_airline", "tau_retail", "livemcp"


def convert(record: Any, cutter: Cutter) -> list[Demonstration]:
    """Cut one run into turns; keep the turns that called tools, each with what came before.

    The outcome is the benchmark's reward. Failed calls are kept.

    Raises:
        InputError: a key is missing or of another type.
    """
    from dtdr.conversation.assembly import assemble, positioned
    from dtdr.conversation.messages import items_of

    messages = member(record, "messages", kind=list)
    metadata = member(record, "metadata", kind=dict)
    task = member(metadata, "task", kind=(int, str))
    trial = member(metadata, "trial", kind=int)
    reward = member(metadata, "reward", kind=(int, float))
    run = assemble(positioned(map(items_of, messages)))
    run.id, run.group = f"{task}-{trial}", f"task-{task}"
    return [
        replace(turn, outcome="success" if reward >= 1 else "failure") for turn in cutter.cut(run)
    ]


def _turns(path: Path, title: str, bad: BadRecords | None) -> Iterator[tuple[str, Demonstration]]:
    from dtdr.logs.turns import CutOptions, Cutter

    cutter = Cutter(CutOptions(), None, title)
    for line, record in iter_json_lines(path, bad=bad):
        try:
            turns = convert(record, cutter)
        except InputError as error:
            leave_out(f"{path}:{line}: {error}", bad)
            continue
        yield from ((f":{line}", turn) for turn in turns)


def _source(name: str, title: str, file: str, origin: str, licence: str, note: str) -> Source:
    def read(path: Path, bad: BadRecords | None = None) -> Iterator[Demonstration]:
        return convert_records(path, _turns(path, title, bad), lambda turn: turn, bad)

    def read_tools(path: Path) -> tuple[Tool, ...]:
        """The tools of ``tools.json`` in the same folder, if any, and those that a run calls."""
        described: dict[str, Tool] = {}
        listing = path.with_name("tools.json")
        if listing.is_file():
            described = unique_tools(read_json(listing))
        called = {tool for turn in read(path, BadRecords()) for tool in turn.plan.tools}
        names = sorted(called.union(described))
        return tuple(described.get(name, Tool(name)) for name in names)

    return Source(name, title, (f"{name}/{file}",), read, read_tools, origin, licence, note)


SOURCES = (
    _source(
        AIRLINE,
        "tau-bench airline, runs of gpt-4o",
        "gpt-4o.jsonl",
        "https://github.com/sierra-research/tau-bench (historical_trajectories)",
        "MIT",
        "35 tasks, four runs each, which are near-duplicates: split by task (group); the outcome "
        "is the reward",
    ),
    _source(
        RETAIL,
        "tau-bench retail, runs of plain tool-calling agents",
        "tool-calling.jsonl",
        "https://github.com/avaljotsingh/tau-bench (final results)",
        "MIT",
        "70 tasks, two runs each: split by task (group); the outcome is the reward",
    ),
    _source(
        LIVEMCP,
        "LiveMCPBench, annotated runs of Claude Sonnet 4",
        "claude-sonnet-4.jsonl",
        "https://github.com/icip-cas/LiveMCPBench (annotated runs)",
        "Apache-2.0",
        "66 tasks, one run each, over 84 of 510 tools of 70 MCP servers: a third of the calls of "
        "further tasks are of tools that no run here calls",
    ),
)
