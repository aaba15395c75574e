"""Reads values as an LLM writes them: quoted or bare text, numbers, lists, references."""

from __future__ import annotations

import math
import re
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
"""Nesting that no tool's argument needs; deeper text is an answer gone wrong."""


class Bare(str):
    """Text that stood without quotes; its type follows from the parameter's."""

    __slots__ = ()


def bare_value(text: str) -> Any:
    """The value that a bare word stands for: a constant, a number, or ``Bare`` text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return Bare(text)


def unescaped(text: str) -> str:
    """Text between quotes with its backslash escapes undone; an unknown escape stays as it is."""
    return re.sub(
        r"\\(.)",
        lambda found: _ESCAPES.get(found[1], found[1] if found[1] in "'\"\\" else found[0]),
        text,
        flags=re.DOTALL,
    )


def read_nested(text: str, start: int) -> tuple[Any, int]:
    """The list or object that begins at ``start``, and the position after it.

    What stands in it without quotes is ``Bare``.

    Raises:
        InputError: it does not end, or an object's key has no value.
    """
    return _Reader(text, start).value(0)


class _Reader:
    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position

    def value(self, depth: int) -> tuple[Any, int]:
        if depth > _DEPTH:
            raise InputError("a value is nested too deeply")
        self._skip()
        character = self._peek()
        found: Any
        if character == "[":
            found = self._list(depth)
        elif character == "{":
            found = self._object(depth)
        elif character in ("'", '"'):
            found = self._quoted(character)
        else:
            found = Bare(self._word())
        return found, self.position

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

    def _quoted(self, quote: str) -> str:
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
                return unescaped(self.text[start:position])
            position += 1
        raise InputError("a text has no closing quote")

    def _word(self) -> str:
        found = re.compile(r"[^,\[\]{}:]*(?::[^,\[\]{}]*(?=[,\]]))?").match(
            self.text, self.position
        )
        word = found[0] if found else ""
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
