"""JSON in and out: msgspec, and the standard library for what it refuses."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from dtdr.errors import InputError

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def loads(data: bytes | str) -> Any:
    """A JSON value, of the same texts and with the same values as ``json.loads``.

    Raises:
        ValueError: it is not JSON, or not UTF-8.
        RecursionError: it is nested too deeply.
    """
    try:
        return _decode(data)
    except ValueError:  # NaN, infinity and half surrogates, which logs have and json reads
        return json.loads(data)


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
    """One line of compact UTF-8; texts with half a surrogate pair are escaped to ASCII."""
    try:
        return _encode(value)
    except (TypeError, ValueError):  # half surrogates; keys that are neither texts nor numbers
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def as_json(value: Any) -> Any:
    """The value as JSON gives it back: tuples become lists, NaN and infinity null.

    Raises:
        TypeError: JSON has no such thing, as sets and bytes, which msgspec would write.
        ValueError: it holds itself.
        RecursionError: it is nested too deeply.
    """
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


def explain(error: Exception) -> str:
    """Why a text is not JSON, in a few words."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "invalid UTF-8"
    return str(error)
