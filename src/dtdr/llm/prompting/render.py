"""Untrusted text made safe for a prompt: names, descriptions, queries, values, plans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dtdr.data.calls import ToolCall, is_reference
from dtdr.data.json_codec import safe
from dtdr.data.tools import Tool

PLAIN_POINTER = re.compile(r"(?:/[A-Za-z0-9_.~-]+)*")
"""A JSON Pointer that needs no quotes in prompts and answers."""


class ShownNames:
    """Tool names as a prompt shows them, and the way back.

    Most names are shown unchanged. A name with line breaks or control tokens is made safe, and
    numbered if it looks like another one then.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._shown: dict[str, str] = {}
        self._name: dict[str, str] = {}
        # Names that need no change come first, so that they are never numbered.
        for name in sorted(dict.fromkeys(names), key=lambda item: safe(item).strip() != item):
            shown = plain = safe(name).strip() or "unnamed"
            count = 1
            while shown in self._name:
                count += 1
                shown = f"{plain} ({count})"
            self._shown[name] = shown
            self._name[shown] = name

    def show(self, name: str) -> str:
        """The name in the prompt; an unknown name is made safe."""
        return self._shown.get(name) or safe(name).strip() or "unnamed"

    def name(self, shown: str) -> str:
        """The tool's name, for a name in the prompt."""
        return self._name.get(shown, shown)


def tool_list(
    tools: Sequence[Tool], names: ShownNames, probabilities: Mapping[str, float] | None = None
) -> str:
    """One JSON object per line, so that no description can end its entry or begin another."""
    lines: list[str] = []
    for tool in tools:
        record: dict[str, Any] = {"function": names.show(tool.name)}
        if tool.description.strip():
            record["description"] = safe(tool.description).strip()
        if probabilities is not None:
            record["probability"] = round(probabilities.get(tool.name, 0.0), 3)
        lines.append(json.dumps(record, ensure_ascii=False))
    return "\n".join(lines)


def value_text(value: Any, outputs: Mapping[str, str]) -> str:
    """A JSON value as a plan shows it.

    References are bare ``out_n``, or ``out_n/rooms/0/id`` for a part of the output; a text around
    references has them in braces: ``'Notes: {out_2}'``. A path with other characters than words
    have is shown as the whole output.

    Args:
        value: any JSON value, references included.
        outputs: output variable of each call id.
    """
    if is_reference(value):
        path = str(value.get("path", ""))
        whole = outputs.get(str(value["$ref"]), "out_unknown")
        return whole + path if PLAIN_POINTER.fullmatch(path) else whole
    if isinstance(value, Mapping) and list(value) == ["$join"]:
        text = "".join(
            part if isinstance(part, str) else "{" + value_text(part, outputs) + "}"
            for part in value["$join"]
        )
        return quote(text)
    if isinstance(value, Mapping):
        items = (f"{quote(str(key))}: {value_text(item, outputs)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(value_text(item, outputs) for item in value) + "]"
    if isinstance(value, str):
        return quote(value)
    return str(value)


def quote(text: str) -> str:
    """Text in single quotes with backslash escapes, made safe."""
    return "'" + safe(text).replace("\\", "\\\\").replace("'", "\\'") + "'"


def output_names(calls: Sequence[ToolCall]) -> dict[str, str]:
    """``out_1``, ``out_2``, … by call id."""
    return {call.id: f"out_{index}" for index, call in enumerate(calls, start=1)}


def plan_lines(calls: Sequence[ToolCall], names: ShownNames) -> str:
    """The plan so far, one ``out_n = tool(name='value')`` a line; ``None`` for an empty plan."""
    outputs = output_names(calls)
    lines = [
        f"{outputs[call.id]} = {names.show(call.tool)}({answer_line(call.arguments, outputs)})"
        for call in calls
    ]
    return "\n".join(lines) or "None"


def answer_line(arguments: Mapping[str, Any], outputs: Mapping[str, str]) -> str:
    """``name='value', other=out_1``: arguments as plans and answers write them."""
    return ", ".join(
        f"{safe(name)}={value_text(value, outputs)}" for name, value in arguments.items()
    )
