"""JSON values as they are compared: references resolved, case, spaces and number format ignored."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any

from dtdr.data import json_codec
from dtdr.data.calls import ToolCall, is_reference
from dtdr.data.outputs import READ_LENGTH, iter_leaves, parse_output, resolve_pointer

MAX_LEAVES = 200
"""Parts of one output that may be an argument; longer lists rarely pass on their last items."""
_MAX_DEPTH = 100
_TRUTH = {"true": True, "false": False}
_TYPES = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_NUMBER = re.compile(r"[+-]?(?:\d{1,15}|\d{1,3}(?:,\d{3}){1,4}|(?=\.))(?:\.\d{0,15})?")
"""Longer digits are identifiers, which a float would confuse with their neighbours."""


def canonical(value: Any, depth: int = 0) -> str:  # noqa: PLR0911
    """One text for all values that count as the same argument.

    Case, runs of spaces and the format of numbers do not count: ``"3"``, ``3`` and ``3.0`` agree.
    What is nested more than 100 deep counts as the same.
    """
    if isinstance(value, str):
        text = " ".join(value.split()).casefold()
        return _number(text) if text[:1].isdigit() or text[:1] in ("+", "-", ".") else text
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return repr(float(value)) if abs(value) < 10**15 else hex(value)
    if isinstance(value, float):
        return repr(value)
    if depth >= _MAX_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        members = sorted(f"{key}={canonical(item, depth + 1)}" for key, item in value.items())
        return "{" + "|".join(members) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + "|".join(canonical(item, depth + 1) for item in value) + "]"
    return repr(value)


def short_hash(text: str) -> int:
    """48 bits of a text."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big")


def _number(text: str) -> str:
    if _NUMBER.fullmatch(text) and text.isascii() and any(map(str.isdigit, text)):
        return repr(float(text.replace(",", "")))
    if text.isascii() and text.isdigit():
        return hex(int(text)) if len(text) < 4000 else text  # as a whole number of that many digits
    return text


def type_of(value: Any) -> str:
    """The JSON-schema type of a value; ``date`` for a text that is one."""
    if isinstance(value, str):
        return "date" if _ISO.fullmatch(value) else "string"
    return _TYPES.get(type(value), "null")


def convert(value: Any, kind: str) -> Any:
    """A value as a JSON-schema type wants it; one that cannot be converted stays as it is.

    Texts that say a number or a truth value become one, and numbers become texts: a value changes
    its form, and its canonical form stays.
    """
    if kind in ("integer", "number") and isinstance(value, str):
        text = " ".join(value.split())
        if not text.isascii() or not _NUMBER.fullmatch(text):
            return value
        parsed = float(text.replace(",", ""))
        if parsed.is_integer() and (kind == "integer" or "." not in text):
            return int(parsed)
        return value if kind == "integer" else parsed
    if kind == "boolean" and isinstance(value, str):
        return _TRUTH.get(value.strip().casefold(), value)
    if kind == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value


def fits(value: Any, kind: str) -> bool:
    """Whether a value can be one of a JSON-schema type that demonstrations wrote out.

    A text that says no number is none, and where numbers were written out, a part of an output that
    is not known yet is most likely something else: identifiers are what is referred to.
    """
    if kind not in ("integer", "number", "boolean"):
        return True
    if is_reference(value):
        return "path" not in value
    return not isinstance(value, str) or not isinstance(convert(value, kind), str)


def resolve_references(value: Any, calls: Mapping[str, ToolCall], depth: int = 0) -> Any:
    """The value with every reference into a known output replaced by the value that it points to.

    A reference without a path, or into an output that is not known, stays.
    """
    if depth >= _MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        if is_reference(value):
            call = calls.get(str(value["$ref"]))
            if call is not None and "path" in value and call.output is not None:
                with contextlib.suppress(LookupError):
                    return resolve_pointer(read_output(call.output), value["path"])
            return value
        return {key: resolve_references(item, calls, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve_references(item, calls, depth + 1) for item in value]
    return value


def output_leaves(output: Any) -> Iterator[tuple[str, Any]]:
    """``(pointer, value)`` of the parts of an output that an argument may repeat, bounded."""
    parsed = read_output(output)
    if not isinstance(parsed, (Mapping, list)):
        is_short = isinstance(parsed, str) and len(parsed) <= 200
        if is_short or (isinstance(parsed, (int, float)) and not isinstance(parsed, bool)):
            yield "", parsed
        return
    for pointer, value in islice(iter_leaves(parsed), MAX_LEAVES):
        if value not in (None, "") and not isinstance(value, bool):
            yield pointer, value


_PIECE = re.compile(r"""[][{},]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|["']""", re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_UNREADABLE = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)


def read_output(output: Any) -> Any:
    """An output as ``parse_output`` reads it, or one that a log cut or wrote as Python does."""
    parsed = parse_output(output)
    if isinstance(parsed, str) and parsed.lstrip()[:1] in _CLOSING:
        return _read_whole_parts(parsed.lstrip()[:READ_LENGTH])
    return parsed


@lru_cache(maxsize=256)
def _read_whole_parts(text: str) -> Any:
    """The parts of a list or object that end before the text does; the text if it is neither."""
    closing: list[str] = []
    end, rest = 0, list[str]()
    for match in _PIECE.finditer(text):
        mark = match.group()
        if mark in _CLOSING and len(closing) < _MAX_DEPTH:
            closing.append(_CLOSING[mark])
        elif closing and mark == closing[-1]:
            closing.pop()
        elif mark != ",":
            if len(mark) == 1:
                break  # a quotation that does not end, or a bracket too many
            continue
        end, rest = match.start() if mark == "," else match.end(), closing[::-1]
        if not closing:
            break
    if closing or not text[end:].strip():
        for read in (json_codec.loads, ast.literal_eval):
            with contextlib.suppress(*_UNREADABLE):
                return json_codec.loads(json.dumps(read(text[:end] + "".join(rest)))) or text
    return text


_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOST_TOKENS = 5
_LANGUAGES = ["en", "de", "es", "fr", "it", "nl", "pt"]
"""To try every language that dateparser knows takes a second where a text is no date."""
_WORD = re.compile(r"[^\W\d_]{3,}\.?")
_DAY = re.compile(r"\d{1,2}(?:st|nd|rd|th|\.)?", re.IGNORECASE)
_YEAR = re.compile(r"\d{4}")


@lru_cache(maxsize=1024)
def read_date(text: str) -> str | None:
    """A date with a day, a month as a word, and a year, as ``2024-05-20``.

    None where it is not one, where a part is missing, which would have to be made up, and where
    dateparser is not installed.
    """
    tokens = re.findall(r"[\w.]+", text)
    kinds = (_WORD, _DAY, _YEAR)
    if len(tokens) > _MOST_TOKENS or not all(any(map(kind.fullmatch, tokens)) for kind in kinds):
        return None
    parser = _parser()
    moment = None if parser is None else parser.get_date_data(text).date_obj
    return None if moment is None else str(moment.date())


@cache
def _parser() -> Any:
    try:
        from dateparser.date import DateDataParser
    except ImportError:
        return None
    # No relative dates: when a run was made is not known.
    settings = {"REQUIRE_PARTS": ["day", "month", "year"], "PARSERS": ["absolute-time"]}
    return DateDataParser(languages=_LANGUAGES, settings=settings)


def says(said: str, piece: str) -> bool:
    """Whether a text says a piece in whole words; each says the empty one."""
    at = said.find(piece)
    while piece and at >= 0:
        end = at + len(piece)
        goes_on = said[at - 1 : at].isalnum() and piece[0].isalnum()
        if not goes_on and not (said[end : end + 1].isalnum() and piece[-1].isalnum()):
            break
        at = said.find(piece, at + 1)
    return at >= 0
