"""TRAJECT-Bench (He et al., 2025): the public sequential set."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtdr.data.calls import Status, ToolCall
from dtdr.data.demonstration_files import convert_records
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords, iter_json_lines
from dtdr.data.outputs import is_empty
from dtdr.data.plan import Plan
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError
from dtdr.evaluate.datasets.source import Source, member

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object"}
_PARAMETERS = {"required parameters": True, "optional parameters": False}

OUTPUTS = "outputs.jsonl"
"""An optional file in the same folder: the outputs of the calls, a line for each record."""

_STATUSES: dict[str, Status] = {"success": "ok", "failed": "error"}


def convert(line: int, record: Any, outputs: Any = None) -> Demonstration:
    """A demonstration from one record; a sequential record is a chain.

    Args:
        line: the record's line, its id, for the set has none.
        record: one object of the file.
        outputs: for each call ``{"status": "success" | "failed", "output": text}``; None where
            they are not known.

    Raises:
        InputError: a key is missing or of another type, or there are not as many outputs as calls.
    """
    calls: list[ToolCall] = []
    for index, item in enumerate(member(record, "tool list", kind=list)):
        arguments = {
            member(parameter, "name"): member(parameter, "value", kind=object)
            for key in _PARAMETERS
            for parameter in member(item, key, kind=list)
        }
        calls.append(ToolCall(str(index), member(item, "tool name"), arguments))
    if outputs is not None:
        if not isinstance(outputs, list) or len(outputs) != len(calls):
            raise InputError(f"{OUTPUTS} has not one output a call for this record")
        calls = [_with_output(*pair) for pair in zip(calls, outputs, strict=True)]
    links = tuple((str(index), str(index + 1)) for index in range(len(calls) - 1))
    domain = record.get("domain", "")
    return Demonstration(
        str(line),
        member(record, "query").strip(),
        Plan(tuple(calls), links),
        f"TRAJECT-Bench {domain}".rstrip(),
        group=member(record, "sequence_name"),
    )


def read(path: Path, bad: BadRecords | None = None) -> Iterator[Demonstration]:
    """Stream the set, one JSON object a line."""
    records = (
        (f":{line}", (line, record, outputs)) for line, record, outputs in _with_outputs(path, bad)
    )
    return convert_records(path, records, lambda item: convert(*item), bad)


def _with_outputs(path: Path, bad: BadRecords | None) -> Iterator[tuple[int, Any, Any]]:
    outputs_file = path.with_name(OUTPUTS)
    rest = iter_json_lines(outputs_file) if outputs_file.is_file() else None
    outputs_line, outputs = 0, None
    for line, record in iter_json_lines(path, bad=bad):
        while rest is not None and outputs_line < line:
            outputs_line, outputs = next(rest, (line, "missing"))
        yield line, record, outputs if rest is not None and outputs_line == line else None


def _with_output(call: ToolCall, result: Any) -> ToolCall:
    """A call with what it returned: Python's notation of a value as that value, else the text."""
    text = member(result, "output")
    output: Any = text
    if text[:1] in ("{", "["):
        try:
            output = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            output = text  # the set cuts outputs at 1,000 characters
    status = _STATUSES.get(member(result, "status"), "unknown")
    if status == "ok" and is_empty(output):
        status = "empty"
    return replace(call, output=output, status=status)


def read_tools(path: Path) -> tuple[Tool, ...]:
    """Tools by name; a name's description is the commonest of those that its records give it.

    Of equally common ones it is the first in alphabetical order. All records count, whatever the
    split: a description is not a demonstration.
    """
    descriptions: dict[str, Counter[str]] = {}
    parameters: dict[str, dict[str, Parameter]] = {}
    for _, record in iter_json_lines(path, bad=BadRecords()):
        try:
            items = member(record, "tool list", kind=list)
            for item in items:
                name = member(item, "tool name")
                descriptions.setdefault(name, Counter())[str(item.get("tool description", ""))] += 1
                known = parameters.setdefault(name, {})
                for key, required in _PARAMETERS.items():
                    for parameter in item.get(key, ()):
                        title = member(parameter, "name")
                        kind = _TYPES.get(type(parameter.get("value")), "")
                        known.setdefault(title, Parameter(title, kind, "", required))
        except InputError:
            continue  # descriptions are optional; a bad record is reported by read()
    return tuple(
        Tool(
            name,
            min(descriptions[name], key=lambda text: (-descriptions[name][text], text)),
            tuple(parameters[name].values()),
        )
        for name in sorted(descriptions)
    )


SOURCE = Source(
    name="traject_bench",
    title="TRAJECT-Bench, sequential",
    files=("traject_bench/sequential.jsonl",),
    read=read,
    tools=read_tools,
    origin="https://github.com/PengfeiHePower/TRAJECT-Bench (public_data)",
    licence="MIT",
    note="five queries share one tool sequence, so a random split leaks; the split by sequence "
    "does not. Of a tool's descriptions the commonest counts",
)
