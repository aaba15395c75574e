"""Reads the arguments of a call from an LLM's ``name=value, …`` answer, and checks them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdr.data.calls import ToolCall
from dtdr.data.json_codec import safe
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.llm.prompting.render import PLAIN_POINTER
from dtdr.llm.prompting.values import Bare, convert_value, read_nested, unescape

_NAME = rf"out_\d{{1,4}}{PLAIN_POINTER.pattern}"
_REFERENCE = re.compile(rf"\{{?({_NAME})\}}?")
_INSIDE = re.compile(rf"\{{({_NAME})\}}")


@dataclass(frozen=True, slots=True)
class ReadArguments:
    """Arguments that could be read, and one sentence for each that could not."""

    arguments: Mapping[str, Any]
    problems: tuple[str, ...]


def read_arguments(answer: str, tool: Tool, calls: Sequence[ToolCall]) -> ReadArguments:
    """Read ``name='value', other=out_1``.

    It also reads pairs inside ``tool(…)``, a JSON object, a code fence around either, bare values
    with commas, and lists. A value ``out_n`` is a reference, ``{out_n}`` inside text is a text
    around a reference, and optional parameters may be missing or empty.

    Args:
        answer: what the LLM wrote.
        tool: whose parameters to read.
        calls: the plan so far, for references.
    """
    problems: list[str] = []
    shown = {safe(parameter.name): parameter for parameter in tool.parameters}
    raw: dict[str, Any] = {}
    try:
        pairs = _pairs(_body(answer, tool), list(shown))
    except InputError as error:
        pairs = []
        problems.append(f"the answer cannot be read: {error}")
    for name, value in pairs:
        if name not in shown:
            problems.append(f"{name!r} is not a parameter of this function")
        elif name in raw:
            problems.append(f"{name!r} is given twice")
        else:
            raw[name] = value
    arguments: dict[str, Any] = {}
    for name, parameter in shown.items():
        if name not in raw or (not parameter.required and raw[name] == ""):
            if parameter.required:
                problems.append(f"the parameter {name!r} is missing")
            continue
        try:
            value = convert_value(raw[name], parameter.type, _resolver(calls))
        except InputError as error:
            problems.append(f"{name!r}: {error}")
            continue
        arguments[parameter.name] = value
    return ReadArguments(arguments, tuple(problems))


def _resolver(calls: Sequence[ToolCall]) -> Callable[[str], Any]:
    """From text to itself, to a reference, or to a text around references."""

    def reference(name: str) -> dict[str, str]:
        output, slash, path = name.partition("/")
        position = int(output.removeprefix("out_"))
        if not 1 <= position <= len(calls):
            raise InputError(f"{output} does not exist; there are {len(calls)} outputs so far")
        source = {"$ref": calls[position - 1].id}
        return {**source, "path": slash + path} if slash else source

    def resolve(text: str) -> Any:
        whole = _REFERENCE.fullmatch(text.strip())
        if whole:
            return reference(whole[1])
        parts = _INSIDE.split(text)
        if len(parts) == 1:
            return str(text)
        return {
            "$join": [
                reference(part) if index % 2 else part
                for index, part in enumerate(parts)
                if index % 2 or part
            ]
        }

    return resolve


def _body(answer: str, tool: Tool) -> str:
    """The answer without code fence, cue, and the name of the function around it."""
    text = answer.strip()
    if fence := re.search(r"```[\w-]*\n?(.*?)(?:```|$)", text, re.DOTALL):
        text = fence[1].strip()
    text = re.sub(r"^(?:parameters|arguments|answer)\s*:\s*", "", text, flags=re.IGNORECASE)
    prefix = rf"^(?:out_\d+\s*=\s*)?{re.escape(safe(tool.name))}\s*\("
    if re.match(prefix, text):
        text = re.sub(prefix, "", text, count=1)
        text = text.rstrip().removesuffix(")")
    return text.strip()


def _pairs(text: str, names: Sequence[str]) -> list[tuple[str, Any]]:
    if text in ("", "None", "none"):
        return []
    if text.startswith("{") and not _REFERENCE.match(text):
        value, end = read_nested(text, 0)
        if isinstance(value, dict) and not text[end:].strip():
            return list(value.items())
    # Longer names first, so that a prefix of another name does not win.
    listed = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    name = rf"(?:{listed}|[^\W\d][\w.\-]*)" if listed else r"[^\W\d][\w.\-]*"
    key = re.compile(rf"\s*({name})\s*=(?!=)\s*")
    following = re.compile(rf"\s*(?:,?\s*$|[,;\n]\s*{name}\s*=(?!=))")
    pairs: list[tuple[str, Any]] = []
    position = 0
    while position < len(text) and text[position:].strip():
        begin = key.match(text, position)
        if begin is None:
            raise InputError(f"expected name=value, found {text[position : position + 30]!r}")
        value, position = _value(text, begin.end(), following)
        pairs.append((begin[1], value))
        separator = re.compile(r"\s*[,;]?\s*").match(text, position)
        position = separator.end() if separator else position
    return pairs


def _value(text: str, start: int, following: re.Pattern[str]) -> tuple[Any, int]:
    quote = text[start : start + 1]
    if quote in ("'", '"') and quote:
        position = start + 1
        while position < len(text):
            if text[position] == "\\":
                position += 2
                continue
            if text[position] == quote and following.match(text, position + 1):
                return unescape(text[start + 1 : position]), position + 1
            position += 1
        raise InputError("a text has no closing quote")
    if quote in ("[", "{") and quote and not _INSIDE.match(text, start):
        value, end = read_nested(text, start)
        if following.match(text, end):
            return value, end
    position = start
    while position < len(text) and not following.match(text, position):
        position += 1
    return Bare(text[start:position].strip()), position
