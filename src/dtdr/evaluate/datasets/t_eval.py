"""T-Eval (Chen et al., 2024): the plan set, version 1."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dtdr.data.calls import ToolCall
from dtdr.data.demonstration_files import convert_records
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.data.plan import Plan
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError
from dtdr.evaluate.datasets.source import Source, member, object_records

FINISH = "FinishAction"
"""T-Eval's own end-of-plan tool; it is not a call here."""

_KINDS = {"NUMBER": "number", "STRING": "string", "BOOLEAN": "boolean", "ARRAY": "array"}


def convert(key: str, record: Any) -> Demonstration:
    """A demonstration from one record; ``prev`` links are the dependencies.

    Raises:
        InputError: a key is missing or of another type, or ``prev`` names no earlier call.
    """
    nodes = member(record, "ground_truth", kind=list)
    calls, links = [], []
    finished = set()
    for node in nodes:
        identifier = str(member(node, "id", kind=(int, str)))
        name = member(node, "name")
        if name == FINISH:
            finished.add(identifier)
            continue
        calls.append(ToolCall(identifier, name, member(node, "args", kind=dict)))
        links += [(str(earlier), identifier) for earlier in member(node, "prev", kind=list)]
    links = [link for link in links if link[0] not in finished]
    return Demonstration(
        str(key), _message(record, "user").strip(), Plan.in_order(calls, links), "T-Eval"
    )


def convert_tools(record: Any) -> tuple[Tool, ...]:
    """The tools that a record's system message describes.

    Raises:
        InputError: the message has no Python literal of ``[name, {...}]`` pairs.
    """
    text = _message(record, "system")
    start, end = text.find("[["), text.find("]]\n")
    try:
        pairs = ast.literal_eval(text[start : end + 2])
        return tuple(_tool(name, about) for name, about in pairs)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, KeyError) as error:
        raise InputError("the system message has no list of tools") from error


def read(path: Path, bad: BadRecords | None = None) -> Iterator[Demonstration]:
    """Read the plan set, a JSON object id -> record."""
    return convert_records(path, object_records(path), lambda item: convert(*item), bad)


def read_tools(path: Path) -> tuple[Tool, ...]:
    """Every tool that some record describes, by name; records agree on what a tool is."""
    tools: dict[str, Tool] = {}
    for _, (_, record) in object_records(path):
        try:
            described = convert_tools(record)
        except InputError:
            continue  # descriptions are optional; a bad record is reported by read()
        for tool in described:
            tools.setdefault(tool.name, tool)
    return tuple(tools[name] for name in sorted(tools))


def _tool(name: str, about: dict[str, Any]) -> Tool:
    parameters = tuple(
        Parameter(
            item["name"],
            _KINDS.get(item.get("type", ""), str(item.get("type", ""))),
            item.get("description", ""),
            required,
        )
        for key, required in (("required_parameters", True), ("optional_parameters", False))
        for item in about.get(key, [])
    )
    return Tool(name, about.get("description", ""), parameters)


def _message(record: Any, role: str) -> str:
    for message in member(record, "origin_prompt", kind=list):
        if isinstance(message, dict) and message.get("role") == role:
            text: str = member(message, "content")
            return text
    raise InputError(f"'origin_prompt' has no message of the {role}")


SOURCE = Source(
    name="t_eval",
    title="T-Eval plan set v1",
    files=("t_eval/plan_json_v1.json",),
    read=read,
    tools=read_tools,
    origin="https://github.com/open-compass/T-Eval (plan_json_v1.json)",
    licence="Apache-2.0",
    note="dependencies are the set's own prev links",
)
