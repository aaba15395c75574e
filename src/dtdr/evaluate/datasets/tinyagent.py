"""TinyAgent (Erdogan et al., 2024): the example bank of its ToolRAG, and the set on the hub."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dtdr.data.calls import ToolCall
from dtdr.data.demonstration_files import convert_records, read_tools
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.evaluate.datasets.source import (
    Hub,
    Published,
    Read,
    Source,
    map_leaves,
    mark_references,
    member,
    object_records,
)

JOIN = "join"
"""TinyAgent's own end-of-plan tool; it is not a call here."""

_LINE = re.compile(r"^\s*(\d+)\.\s*(\w+)\((.*)$")
_REFERENCE = re.compile(r"\$\{?(\d+)\}?")
_QUESTION = "Question:"
_END_MARK = "<END_OF_PLAN>"

ParameterNames = Mapping[str, Sequence[str]]


def convert(
    key: str, record: Any, parameters: ParameterNames | None = None, source: str = ""
) -> Demonstration:
    """A demonstration from one record of either format.

    Args:
        key: the record's id.
        record: ``{"tools", "text"}`` (example bank) or ``{"input", "output"}`` (hub).
        parameters: tool name to parameter names in positional order; tools that are not in it
            get ``arg0``, ``arg1``, ….
        source: where the demonstration comes from.

    The plan counts, not the record's list of tools. Every ``join`` is left out.
    ``$n`` refers to call n; inside a longer text it does so only where n is an earlier call, for
    a text may also mention $20.

    Raises:
        InputError: the record or its plan is of another form.
    """
    if isinstance(record, dict) and "output" in record:
        query, lines = _from_hub(record)
    else:
        query, lines = _from_bank(record)
    names = parameters or {}
    known: set[str] = set()
    calls = []
    for identifier, tool, values in lines:
        if tool == JOIN:
            continue
        arguments = map_leaves(values, partial(_read_leaf, known=known))
        keys = names.get(tool, ())
        keys = [*keys, *(f"arg{position}" for position in range(len(keys), len(values)))]
        calls.append(ToolCall(identifier, tool, dict(zip(keys, arguments, strict=False))))
        known.add(identifier)
    return Demonstration(str(key), query, Plan(tuple(calls)), source)


def read_parameters(path: Path) -> dict[str, tuple[str, ...]]:
    """Parameter names by tool, as ``tools`` of the set has them."""
    return {tool.name: tuple(p.name for p in tool.parameters) for tool in _tools(path)}


def _reader(source: str) -> Read:
    def read(path: Path, bad: Any) -> Any:
        convert_record = partial(convert, parameters=read_parameters(path), source=source)
        return convert_records(path, object_records(path), lambda item: convert_record(*item), bad)

    return read


def _tools(path: Path) -> tuple[Tool, ...]:
    """Those of ``tools.json`` in the same folder; else the signatures that come with dtdr.

    The files on the hub have neither: names and parameters are TinyAgent's, in positional order,
    their descriptions were written for dtdr.
    """
    tools_file = path.with_name("tools.json")
    if not tools_file.is_file():
        tools_file = Path(__file__).with_name("tinyagent_tools.json")
    return tuple(tool for tool in read_tools(tools_file) if tool.name != JOIN)


def _from_bank(record: Any) -> tuple[str, list[tuple[str, str, list[Any]]]]:
    text = member(record, "text").replace(_END_MARK, "\n")
    lines = text.splitlines()
    first = next((index for index, line in enumerate(lines) if _LINE.match(line)), len(lines))
    query = "\n".join(lines[:first]).strip().removeprefix(_QUESTION).strip()
    calls = []
    for line in lines[first:]:
        if match := _LINE.match(line):
            identifier, tool, _ = match.groups()
            calls.append(
                (identifier, tool, _arguments(line.strip()[len(identifier) + 1 :].strip()))
            )
        elif line.strip() and not line.lstrip().startswith("Thought:"):
            raise InputError(f"{line.strip()!r} is not a line of a plan, such as '1. tool(\"x\")'")
    if not calls:
        raise InputError("the text has no plan; its lines must look like '1. tool(\"x\")'")
    return query, calls


def _arguments(call: str) -> list[Any]:
    # A comment may follow the call; parsed as source, it falls away.
    try:
        node = ast.parse(call, mode="eval").body
        if not isinstance(node, ast.Call) or node.keywords:
            raise ValueError
        return [ast.literal_eval(argument) for argument in node.args]
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise InputError(f"the arguments of {call!r} are not positional Python literals") from error


def _from_hub(record: Any) -> tuple[str, list[tuple[str, str, list[Any]]]]:
    query = member(record, "input")
    outputs = member(record, "output", kind=list)
    plan = next((o for o in outputs if isinstance(o, dict) and o.get("type") == "plan"), None)
    if plan is None:
        raise InputError("no 'output' is of type 'plan'")
    calls = []
    for index, item in enumerate(member(plan, "parsed_output", kind=list), start=1):
        arguments = member(item, "tool_args", kind=(list, tuple))
        calls.append((str(index), member(item, "tool_name"), list(arguments)))
    return query.strip().removeprefix(_QUESTION).strip(), calls


def _read_leaf(value: Any, known: Collection[str]) -> Any:
    """A part of an argument as JSON, with its references; a Python literal may be more."""
    if isinstance(value, (set, frozenset)):
        return sorted(map_leaves(list(value), partial(_read_leaf, known=known)), key=repr)
    if isinstance(value, (bytes, complex)) or value is Ellipsis:
        return str(value)
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value.strip())
    if whole and (whole[1] in known or len(whole[1]) == 1):
        # One digit and no earlier call: a wrong reference, which Plan reports; "$500" is a price.
        return {"$ref": whole[1]}
    return mark_references(value, _REFERENCE, lambda match: match[1] if match[1] in known else None)


SOURCE = Source(
    name="tinyagent",
    title="TinyAgent",
    files=("tinyagent/training_data.json", "tinyagent/examples.json"),
    read=_reader("TinyAgent"),
    tools=_tools,
    origin="https://github.com/SqueezeAILab/TinyAgent or huggingface.co/datasets/"
    "squeeze-ai-lab/TinyAgent-dataset",
    licence="MIT",
    note="the set on the hub has no descriptions of its tools; those read here were written for "
    "dtdr",
    variants={
        "examples.json": (
            "TinyAgent example bank",
            "the bank of about one example per tool combination, not the 39,874 plans of the paper",
        )
    },
    test_file={"training_data.json": "testing_data.json"},
    hub=Hub(
        "squeeze-ai-lab/TinyAgent-dataset",
        {file: f"tinyagent/{file}" for file in ("training_data.json", "testing_data.json")},
    ),
    published=Published(39874, 17, (4.5, 1.9), (1.9, 1.8)),
)
