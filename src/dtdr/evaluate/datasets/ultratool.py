"""UltraTool (Huang et al., 2024), as GNN4TaskPlan redistributes its tool chains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dtdr.data.calls import ToolCall
from dtdr.data.demonstration_files import convert_records
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords, iter_json_lines
from dtdr.data.plan import Plan
from dtdr.evaluate.datasets.source import Source, member
from dtdr.evaluate.datasets.taskbench import node_links, read_tool_descriptions


def convert(record: Any) -> Demonstration:
    """A demonstration from one record; there are no arguments, so its links are the dependencies.

    Raises:
        InputError: a key is missing or of another type, or a link names no node.
    """
    names = [member(node, "task") for node in member(record, "task_nodes", kind=list)]
    links = node_links(names, member(record, "task_links", kind=list))
    calls = [ToolCall(str(index), name) for index, name in enumerate(names)]
    return Demonstration(
        str(member(record, "id", kind=(str, int))),
        member(record, "user_request").strip(),
        Plan.in_order(calls, [(str(earlier), str(later)) for earlier, later in links]),
        "UltraTool",
    )


def read(path: Path, bad: BadRecords | None = None) -> Iterator[Demonstration]:
    """Stream ``data.json``, one JSON object a line."""
    records = ((f":{line}", record) for line, record in iter_json_lines(path, bad=bad))
    return convert_records(path, records, convert, bad)


SOURCE = Source(
    name="ultratool",
    title="UltraTool tool chains",
    files=("ultratool/data.json",),
    read=read,
    tools=read_tool_descriptions,
    origin="https://github.com/WxxShirley/GNN4TaskPlan (data/ultratool)",
    licence="MIT as redistributed",
    note="no arguments; every plan is recorded as a chain",
)
