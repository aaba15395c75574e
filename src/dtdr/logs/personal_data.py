"""Decides by the words before it, or by the name of its field, what a number is.

A telephone number, an order number and a version look alike. ``personal.toml`` has the words in
twelve languages.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_KNOWN: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("personal.toml").read_text(encoding="utf-8")
)
CANDIDATE: str = _KNOWN["candidate"]["pattern"]
"""Expression (verbose) of a number, identifier or date that a word may explain."""

NUMBERED = "numbered"
"""The number of an order, an article, a version and the like."""

_CONNECTORS = frozenset(_KNOWN["connectors"].split())
_LEADING = frozenset(_KNOWN["leading"].split())
_WINDOW = 60
_MOST_CHARACTERS = 200
_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]")
_BREAK = re.compile(r"[\n;|!?]|(?<=[a-z]{3}[.])\s(?=[^\W\d_])")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def _one_line(text: str) -> str:
    return text.replace("\n", "")


_VALUES = {name: re.compile(_one_line(kind["value"])) for name, kind in _KNOWN["kinds"].items()}
_WORDS = {name: re.compile(_one_line(kind["words"])) for name, kind in _KNOWN["kinds"].items()}
_NUMBERED = re.compile(
    _KNOWN["numbered"].strip().replace("*", r"\w*").replace("\n", "|").replace(" ", "|")
)
_NUMBER_FIELDS = re.compile(_one_line(_KNOWN["number_fields"]["words"]))
_NOT_AFTER = re.compile(_one_line(_KNOWN["kinds"]["address"]["not_after"]))


@dataclass(frozen=True, slots=True)
class NumberContext:
    """The context before a number.

    Attributes:
        kind: of personal data, ``NUMBERED``, ``other``, or empty if nothing says what it is.
        leads: whether the last word is a preposition such as "at".
    """

    kind: str = ""
    leads: bool = False


def context_of(text: str, start: int, field: str = "") -> NumberContext:
    """The kind of a number from the words before it, or from the name of its field."""
    window = text[max(0, start - _WINDOW) : start]
    if breaks := [match.end() for match in _BREAK.finditer(window)]:
        window = window[breaks[-1] :]
    elif start < _WINDOW and field:
        window = f"{field}: {window}"
    return _context(tuple(_WORD.findall(window)[-7:]))


@lru_cache(maxsize=50_000)
def _context(written: tuple[str, ...]) -> NumberContext:
    words = [word.lower() for word in written]
    leads = bool(words) and words[-1] in _LEADING
    for rest in _without_connectors(words, most=4):
        if not rest:
            return NumberContext("", leads)
        if kind := _kind_of(rest):
            return NumberContext(kind, leads)
    # "Order shipped 530-661-7677": what is numbered may be a few words before.
    is_numbered = any(_NUMBERED.fullmatch(word) for word in rest[-3:])
    return NumberContext(NUMBERED if is_numbered else "other", leads)


def _without_connectors(words: list[str], most: int) -> Iterator[list[str]]:
    """The words, and the words without the last one, two, … connectors, such as "is" or "no"."""
    yield words
    for _ in range(most):
        if not words or words[-1] not in _CONNECTORS:
            return
        words = words[:-1]
        yield words


def _kind_of(words: Sequence[str]) -> str:
    last = words[-1]
    if _CJK.search(last):
        if _cjk_kind(last, NUMBERED, _NUMBERED):
            return NUMBERED
        kinds = (name for name, known in _WORDS.items() if _cjk_kind(last, name, known))
        return str(next(kinds, ""))
    for length in (3, 2, 1):
        phrase = " ".join(words[-length:])
        for name, known in _WORDS.items():
            if length <= len(words) and known.fullmatch(phrase):
                is_other = name == "address" and words[-length - 1 : -length]
                if is_other and _NOT_AFTER.fullmatch(words[-length - 1]):
                    return "other"
                return str(name)
    return NUMBERED if _NUMBERED.fullmatch(last) else ""


def _cjk_kind(word: str, name: str, known: re.Pattern[str]) -> bool:
    """Whether a run of letters without spaces has one of the words in it."""
    return any(known.fullmatch(word, at) or known.match(word, at) for at in range(len(word)))


def _words_of_field(name: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(name[-80:])[-7:])


@lru_cache(maxsize=50_000)
def kind_of_field(name: str) -> str:
    """The kind of personal data that a field of this name has; empty for other fields."""
    kind: str = _context(_words_of_field(name)).kind
    return kind if kind in _VALUES else ""


@lru_cache(maxsize=50_000)
def _has_number(field: str) -> bool:
    """Whether the name of a field says that it has a number of a person or an account."""
    words = [word.lower() for word in _words_of_field(field)]
    return any(
        _NUMBER_FIELDS.fullmatch(" ".join(rest[-length:]))
        for rest in _without_connectors(words, most=3)
        for length in (3, 2, 1)
    )


def is_personal(field: str, value: str) -> bool:
    """Whether the value of a field of this name is personal data.

    A field such as ``ssn`` is so with any value that has a digit, except the flags 0 and 1; words
    such as "valid" say something about the number. Other fields need a value that looks so.
    """
    if fits(kind_of_field(field), value):
        return True
    value = value.strip()
    has_value = value not in ("0", "1") and any(map(str.isdigit, value[:_MOST_CHARACTERS]))
    return has_value and _has_number(field)


def fits(kind: str, value: str) -> bool:
    """Whether a value looks like personal data of the kind."""
    pattern = _VALUES.get(kind)
    return (
        pattern is not None
        and len(value) <= _MOST_CHARACTERS
        and pattern.fullmatch(value.strip()) is not None
    )


_CPF = re.compile(r"\d{3}\.\d{3}\.\d{3}-\d{2}")
_SSN = re.compile(r"(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}")
_FISCAL_CODE = re.compile(r"[A-Z]{6}\d{2}[ABCDEHLMPRST]\d{2}[A-Z]\d{3}[A-Z]")


def is_identity(value: str, context: NumberContext) -> bool:
    """Whether a number is one of a person by its form alone."""
    if context.kind == NUMBERED:
        return False
    if _FISCAL_CODE.fullmatch(value):
        return True
    if _CPF.fullmatch(value):
        digits = [int(digit) for digit in value if digit.isdigit()]
        checks = (sum(d * (n - i) for i, d in enumerate(digits[: n - 1])) for n in (10, 11))
        return [check * 10 % 11 % 10 for check in checks] == digits[9:]
    return not context.kind and _SSN.fullmatch(value) is not None
