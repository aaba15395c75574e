"""Reads JSON values of logs, which may be written as text, also as text inside text."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dtdr.data import json_codec

MAX_LITERAL = 1_000_000
"""Characters of a Python literal that are parsed."""

_NOTHING = ("", "null", "None", "undefined")
_GLUED = re.compile(r"\}\s*\{")


def load_tables(path: Path) -> dict[str, Any]:
    """The tables of words in a TOML file; a text is a list of words."""

    def split(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: split(item) for key, item in value.items()}
        return value.split() if isinstance(value, str) else value

    tables: dict[str, Any] = split(tomllib.loads(path.read_text(encoding="utf-8")))
    return tables


FORMS = load_tables(Path(__file__).with_name("forms.toml"))
"""Words by which messages and their parts are known."""


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


def decode_value(value: Any) -> Any:
    """A value that may be written as JSON, as JSON in a JSON text, or as a Python literal.

    ``"{'a': 1}"`` is ``{"a": 1}``. Other texts stay as they are.
    """
    for _ in range(3):
        if not isinstance(value, str):
            return value
        text = value.strip()
        if text[:1] not in ("{", "[", '"'):
            return value
        try:
            inner = json_codec.loads(text)
        except (ValueError, RecursionError):
            return _read_literal(text, value)
        if isinstance(inner, (dict, list)) or not isinstance(inner, str):
            return inner
        value = inner
    return value


def _read_literal(text: str, otherwise: Any) -> Any:
    if text[:1] in "{[" and text[-1:] in "}]" and len(text) <= MAX_LITERAL:
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return json_codec.as_json(ast.literal_eval(text))
    return otherwise


def arguments_of(value: Any) -> dict[str, Any]:
    """Arguments as an object; null and an empty text are ``{}``, others ``{"input": value}``."""
    if isinstance(value, str):
        value = decode_value(value)
        if isinstance(value, str) and value.strip() in _NOTHING:
            return {}
    if isinstance(value, dict):
        return dict(value)
    return {} if value is None else {"input": value}


def is_glued(value: Any) -> bool:
    """Whether a text may have arguments of several calls, glued together by a stream."""
    if not isinstance(value, str) or value.find("{", 1) < 0:
        return False
    return _GLUED.search(value) is not None


def split_arguments(value: Any) -> list[Any]:
    """The arguments of each call in a text where a stream glued them together: ``{…}{…}``."""
    if not is_glued(value):
        return [value]
    text, parts, start = value.strip(), [], 0
    while start < len(text):
        try:
            part, start = json_codec.decode_at(text, start)
        except (ValueError, RecursionError):
            return [value]
        if not isinstance(part, dict):
            return [value]
        parts.append(part)
        while text[start : start + 1].isspace():
            start += 1
    return parts or [value]


def unflatten(attributes: Mapping[str, Any], prefix: str = "") -> Any:
    """``{"a.0.b": 1}`` as ``{"a": [{"b": 1}]}``; only keys that begin with a prefix, without it."""
    root: dict[str, Any] = {}
    for key, value in attributes.items():
        key = str(key)
        if not key.startswith(prefix):
            continue
        target = root
        *path, last = key[len(prefix) :].split(".")
        for step in path:
            below = target.get(step)
            if not isinstance(below, dict):
                below = target[step] = {}
            target = below
        value, present = _unflatten_inner(value), target.get(last)
        if isinstance(present, dict) and isinstance(value, dict):
            present.update(value)
        else:
            target[last] = value
    return _number_keys(root)


def _unflatten_inner(value: Any) -> Any:
    if isinstance(value, dict):
        return unflatten(value) if any("." in str(key) for key in value) else dict(value)
    return list(map(_unflatten_inner, value)) if isinstance(value, list) else value


def _number_keys(value: Any) -> Any:
    """Objects whose keys are all numbers as lists."""
    if not isinstance(value, dict):
        return value
    if value and all(str(key).isdigit() for key in value):
        return [_number_keys(value[key]) for key in sorted(value, key=int)]
    return {key: _number_keys(item) for key, item in value.items()}


def walk(value: Any, *path: str) -> Any:
    """The value under a path of keys; None if there is none."""
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def each_object(values: object) -> Iterator[dict[str, Any]]:
    """The objects of a list."""
    for value in as_list(values):
        if isinstance(value, dict):
            yield value


def digest(parts: Iterable[object], size: int = 8) -> str:
    """Hexadecimal digest of a sequence of JSON values; ``size`` in bytes."""
    state = hashlib.blake2b(digest_size=size)
    for part in parts:
        state.update(json_codec.dumps(part))
        state.update(b"\0")
    return state.hexdigest()
