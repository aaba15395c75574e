"""Reads values that an LLM wrote, and converts them to the types of parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from dtdr.errors import InputError

_CONSTANTS = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "none": None,
    "None": None,
    "null": None,
}
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d{1,3})?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_DEPTH = 20
"""Limit of nesting: no argument needs more, so a deeper answer is wrong."""

Resolve = Callable[[str], Any]

_KINDS = {
    "str": "text",
    "string": "text",
    "text": "text",
    "int": "integer",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "double": "number",
    "bool": "boolean",
    "boolean": "boolean",
    "list": "list",
    "array": "list",
    "tuple": "list",
    "dict": "object",
    "object": "object",
}


class Bare(str):
    """Text without quotes; its type follows from the parameter."""

    __slots__ = ()


def bare_value(text: str) -> Any:
    """The value of a bare word: a constant, a number, or ``Bare`` text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(parsed := float(text)):
        return parsed
    return Bare(text)


def unescape(text: str) -> str:
    """Text between quotes without its backslash escapes; unknown escapes stay."""
    return re.sub(
        r"\\(.)",
        lambda escape: _ESCAPES.get(escape[1], escape[1] if escape[1] in "'\"\\" else escape[0]),
        text,
        flags=re.DOTALL,
    )


def read_nested(text: str, start: int) -> tuple[Any, int]:
    """The list or object that begins at ``start``, and the position after it.

    Text in it without quotes is ``Bare``.

    Raises:
        InputError: it does not end, or an object's key has no value.
    """
    return _NestedReader(text, start).value(0)


class _NestedReader:
    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position

    def value(self, depth: int) -> tuple[Any, int]:
        if depth > _DEPTH:
            raise InputError("a value is nested too deeply")
        self._skip()
        character = self._peek()
        value: Any
        if character == "[":
            value = self._list(depth)
        elif character == "{":
            value = self._object(depth)
        elif character in ("'", '"'):
            value = self._read_quoted(character)
        else:
            value = Bare(self._word())
        return value, self.position

    def _list(self, depth: int) -> list[Any]:
        self.position += 1
        items: list[Any] = []
        while True:
            self._skip()
            if self._take("]"):
                return items
            items.append(self.value(depth + 1)[0])
            self._skip()
            if not self._take(",") and self._peek() != "]":
                raise InputError("a list has no closing ']'")

    def _object(self, depth: int) -> Any:
        self.position += 1
        items: dict[str, Any] = {}
        while True:
            self._skip()
            if self._take("}"):
                return items
            key = str(self.value(depth + 1)[0])
            self._skip()
            if not items and self._take("}"):
                return Bare("{" + key + "}")  # a reference in braces, such as {out_1}
            if not self._take(":"):
                raise InputError("an object has a key without a value")
            items[key] = self.value(depth + 1)[0]
            self._skip()
            if not self._take(",") and self._peek() != "}":
                raise InputError("an object has no closing '}'")

    def _read_quoted(self, quote: str) -> str:
        start = self.position + 1
        position = start
        while position < len(self.text):
            if self.text[position] == "\\":
                position += 2
                continue
            # An apostrophe inside a word does not end the text.
            if self.text[position] == quote and re.match(
                r"\s*(?:[,:\]}]|$)", self.text[position + 1 :]
            ):
                self.position = position + 1
                return unescape(self.text[start:position])
            position += 1
        raise InputError("a text has no closing quote")

    def _word(self) -> str:
        match = re.compile(r"[^,\[\]{}:]*(?::[^,\[\]{}]*(?=[,\]]))?").match(
            self.text, self.position
        )
        word = match[0] if match else ""
        if not word.strip():
            raise InputError("a value is missing, or a bracket has no partner")
        self.position += len(word)
        return word.strip()

    def _peek(self) -> str:
        return self.text[self.position] if self.position < len(self.text) else ""

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self.position += 1
        return True

    def _skip(self) -> None:
        while self._peek().isspace():
            self.position += 1


def convert_value(value: Any, declared: str, resolve: Resolve) -> Any:
    """Convert a value to its parameter's type, with references resolved.

    A reference has every type, since nothing is executed and its type is unknown; so has null. An
    unknown type, such as ``image``, takes any value.

    Args:
        value: from the LLM.
        declared: a JSON-schema type, or a Python one such as ``list[str]``.
        resolve: from text to itself or to a reference.

    Raises:
        InputError: the value is of another type, or a reference leads nowhere.
    """
    kind, inner = _kind(declared)
    if isinstance(value, str):
        resolved = resolve(value)
        if not isinstance(resolved, str):
            return resolved
        return _from_text(value, kind, declared)
    if isinstance(value, dict) and any(str(key).startswith("$") for key in value):
        raise InputError("an object has a key that begins with '$'; write references as out_n")
    if kind == "list":
        if not isinstance(value, list):
            raise _mismatch(value, declared)
        return [convert_value(item, inner, resolve) for item in value]
    if isinstance(value, list) and kind == "":
        return [convert_value(item, "", resolve) for item in value]
    if isinstance(value, dict) and kind in ("object", ""):
        return {key: convert_value(item, "", resolve) for key, item in value.items()}
    raise _mismatch(value, declared)


def _from_text(value: str, kind: str, declared: str) -> Any:
    """The value of a text by its parameter's type: 007 may be a text."""
    plain = bare_value(value.strip())
    if plain is None and (isinstance(value, Bare) or kind not in ("text", "")):
        return None
    if kind == "text" or (kind == "" and not isinstance(value, Bare)):
        return str(value)
    if kind == "":
        return str(plain) if isinstance(plain, str) else plain
    if isinstance(plain, bool):
        if kind == "boolean":
            return plain
    elif isinstance(plain, (int, float)):
        if kind == "number":
            return plain
        if kind == "integer" and plain == int(plain):
            return int(plain)
    elif kind == "boolean" and (lowered := value.strip().lower()) in ("true", "yes", "false", "no"):
        return lowered in ("true", "yes")
    raise _mismatch(value, declared)


def kind_of_type(declared: str) -> str:
    """``text``, ``integer``, ``number``, ``boolean``, ``list``, ``object``; empty if unknown.

    Args:
        declared: a JSON-schema type, or a Python one such as ``list[str]``.
    """
    return _kind(declared)[0]


def _kind(declared: str) -> tuple[str, str]:
    """The kind of a type, and the type of a list's items."""
    plain = declared.strip()
    if optional := re.fullmatch(r"(?:typing\.)?Optional\[(.*)\]", plain):
        plain = optional[1]
    plain = re.sub(r"\s*\|\s*None$", "", plain)
    outer = re.fullmatch(r"(?:typing\.)?(\w+)(?:[\[<](.*)[\]>])?", plain)
    if outer is None:
        return "", ""
    return _KINDS.get(outer[1].lower(), ""), outer[2] or ""


def _mismatch(value: object, declared: str) -> InputError:
    return InputError(f"expected a value of type {declared}, found {str(value)[:40]!r}")
