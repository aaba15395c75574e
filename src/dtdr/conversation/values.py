"""Reads JSON values of logs, which may be written as text."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from dtdr.data import json_codec


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, or a text with one; else an empty object."""
    value = decode_json(value)
    return value if isinstance(value, dict) else {}


def decode_json(value: Any) -> Any:
    """A JSON object or list that may be written as text: ``'{"a": 1}'`` as ``{"a": 1}``."""
    if isinstance(value, str) and value[:1] in "{[" and value[-1:] in "}]":
        with contextlib.suppress(ValueError, RecursionError):
            return json_codec.loads(value)
    return value


def first_of(record: object, *keys: str) -> Any:
    """The first value that an object has under one of these keys; None if there is none."""
    if isinstance(record, dict):
        for key in keys:  # faster than a generator
            if (value := record.get(key)) is not None:
                return value
    return None


def as_text(value: object) -> str:
    """The value if it is a text; else an empty one."""
    return value if isinstance(value, str) else ""


def as_list(value: object) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def arguments_of(value: Any) -> dict[str, Any]:
    """Arguments as an object; anything else becomes ``{"input": value}``."""
    value = decode_json(value.strip() if isinstance(value, str) else value)
    if isinstance(value, dict):
        return dict(value)
    return {} if value is None or value == "" else {"input": value}


def digest(parts: Iterable[object], size: int = 8) -> str:
    """Hexadecimal digest of a sequence of JSON values; ``size`` in bytes."""
    state = hashlib.blake2b(digest_size=size)
    for part in parts:
        state.update(json_codec.dumps(part))
        state.update(b"\0")
    return state.hexdigest()
