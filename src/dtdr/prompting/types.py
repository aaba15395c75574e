"""Checks a value against the type that a tool's signature gives, and makes it fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dtdr.errors import InputError
from dtdr.prompting.literals import Bare, bare_value

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


def fitted(value: Any, declared: str, resolve: Resolve) -> Any:
    """The value as its parameter's type has it, with references resolved.

    A reference fits every type, since nothing is executed and its type is not known; so does
    null. A type that is not known, such as ``image``, takes any value.

    Args:
        value: as the LLM wrote it; see ``literals``.
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
        return [fitted(item, inner, resolve) for item in value]
    if isinstance(value, list) and kind == "":
        return [fitted(item, "", resolve) for item in value]
    if isinstance(value, dict) and kind in ("object", ""):
        return {key: fitted(item, "", resolve) for key, item in value.items()}
    raise _mismatch(value, declared)


def _from_text(value: str, kind: str, declared: str) -> Any:
    """The value that a text stands for, if only by its parameter's type: 007 may be a text."""
    found = bare_value(value.strip())
    if found is None and (isinstance(value, Bare) or kind not in ("text", "")):
        return None
    if kind == "text" or (kind == "" and not isinstance(value, Bare)):
        return str(value)
    if kind == "":
        return str(found) if isinstance(found, str) else found
    if isinstance(found, bool):
        if kind == "boolean":
            return found
    elif isinstance(found, (int, float)):
        if kind == "number":
            return found
        if kind == "integer" and found == int(found):
            return int(found)
    elif kind == "boolean" and (lowered := value.strip().lower()) in ("true", "yes", "false", "no"):
        return lowered in ("true", "yes")
    raise _mismatch(value, declared)


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
