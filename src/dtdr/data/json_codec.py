"""JSON in and out: msgspec, and the standard library for what it refuses."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any

import msgspec

from dtdr.errors import InputError

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

_CONTROL_TOKEN = re.compile(
    r"<(?=[|｜]|/?[A-Za-z_][\w-]{0,31}[|]?>)"  # <|im_end|>, <｜end｜>, </s>, <end_of_turn>
    r"|\[(?=/?(?:INST|SYS|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])"
)
_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def loads(data: bytes | str) -> Any:
    """A JSON value, as from ``json.loads``.

    Numbers that JSON does not have become texts (``NaN``, ``1e999``), since numbers would be
    written as null.

    Raises:
        ValueError: it is not JSON, or not UTF-8.
        RecursionError: it is nested too deeply.
    """
    try:
        return _decode(data)
    except ValueError:  # NaN, infinity and half surrogates, which logs have and json reads
        return json.loads(data, parse_constant=str, parse_float=_parse_float)


def _parse_float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


decode_at = json.JSONDecoder(parse_constant=str, parse_float=_parse_float).raw_decode
"""Reads the JSON value at an index of a text; returns it and the index after it."""


def dump_object(value: object) -> Any:
    """The JSON of an object of a provider's package; anything else as it is."""
    if isinstance(value, dict):
        return value
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else value


def finite(value: float) -> float | str:
    """The number; NaN and infinity as texts."""
    return value if math.isfinite(value) else json.dumps(value)


def parse_line(line: bytes) -> Any:
    """The JSON value of a line.

    Raises:
        InputError: it is not JSON, or nested too deeply.
    """
    try:
        return loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not a line of JSON ({explain(error)})") from error


def dumps(value: Any) -> bytes:
    """One line of compact UTF-8, or of ASCII if a text has half a surrogate pair.

    NaN and infinity are written as texts, as ``loads`` reads them.
    """
    try:
        encoded: bytes = _encode(value)
        # msgspec writes NaN as null, which raises here.
        if b"null" in encoded and _decode(encoded) != value:
            json.dumps(value, allow_nan=False)
        return encoded
    except (TypeError, ValueError):  # half surrogates; keys that are neither texts nor numbers
        value = as_json(value)
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def as_json(value: Any) -> Any:
    """The value after writing and reading JSON: tuples become lists, NaN and infinity texts.

    Raises:
        TypeError: it is not JSON, such as a set or bytes, which msgspec would write.
        ValueError: it contains itself.
        RecursionError: it is nested too deeply.
    """
    return json.loads(json.dumps(value), parse_constant=str)


def copy_json(value: Any) -> tuple[Any, bytes] | None:
    """A copy of a value that is JSON, and its JSON; None of a value that ``as_json`` may change."""
    try:
        encoded = _encode(value)
        copy = _decode(encoded)
        # msgspec also writes what is not JSON, such as tuples, sets and dates.
        return (copy, encoded) if copy == value else None
    except (RecursionError, TypeError, ValueError):
        return None


def explain(error: Exception) -> str:
    """Why a text is not JSON, in a few words."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "invalid UTF-8"
    return str(error)


def safe(text: str) -> str:
    """Text on one line without anything that a chat template or tokenizer reads as a control token.

    Line breaks, control characters, directional overrides and lone surrogates become spaces or
    the replacement character. Control tokens get a space after their first character.
    """
    kept: list[str] = []
    for character in text:
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp") or character in _BIDI:
            kept.append(" ")
        elif category == "Cs":
            kept.append("\N{REPLACEMENT CHARACTER}")
        else:
            kept.append(character)
    return _CONTROL_TOKEN.sub(lambda token: f"{token[0]} ", "".join(kept))


def quote_json(text: str) -> str:
    """Text in double quotes, as JSON writes it, made safe."""
    return json.dumps(safe(text), ensure_ascii=False)
