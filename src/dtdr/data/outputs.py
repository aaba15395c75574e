"""Outputs of calls: parts by JSON Pointer, cutting to a length, and the status they show."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from dtdr.data import json_codec

Status = Literal["ok", "error", "empty", "unknown"]
"""The result of a call."""

OUTPUT_LENGTH = 2000
"""Characters kept of an output: enough for keys, sizes and the identifiers that calls pass on."""

TEXT_LENGTH = 500
"""Characters kept of what an agent wrote before a call: the end says what it does next."""

READ_LENGTH = 8_000
"""Characters that are read of a query, a message or another text, which bounds the cost."""

_MAX_DEPTH = 100
_TRACEBACK = "traceback (most recent call last)"
_ERROR_STARTS = (
    "error:",
    "error executing",
    "error calling",
    "error invoking",
    "exception:",
    _TRACEBACK,
)
_ERROR_LINES = 4
"""A longer text that begins with "Error:" is a log, not an error."""

_ERROR_KEYS = ("error", "errors", "exception")
_ERROR_DETAILS = (
    *("code", "detail", "details", "error_code", "errorCode", "error_type", "message", "ok"),
    *("reason", "request_id", "status", "statusCode", "status_code", "success", "traceback"),
    *("type", "isError", "is_error"),
)
"""Keys that describe an error; an object with other keys is an answer."""

_MARKS = ("is_error", "isError")
_ARRAY_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


def resolve_pointer(value: Any, pointer: str) -> Any:
    """The part of a JSON value at a JSON Pointer (RFC 6901).

    Raises:
        LookupError: there is no such part, or the pointer is not empty and does not begin with
            ``/``.
    """
    if pointer[:1] not in ("", "/"):
        raise LookupError(f"the pointer {pointer!r} must begin with '/'")
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and _ARRAY_INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            raise LookupError(f"there is no {pointer!r} in the value")
    return value


def to_pointer(keys: Sequence[str | int]) -> str:
    """The JSON Pointer for a path of keys and positions."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def iter_leaves(
    value: Any, is_leaf: Callable[[Any], bool] = lambda _: False
) -> Iterator[tuple[str, Any]]:
    """``(pointer, value)`` of every part of a JSON value that is not an object or a list, in order.

    Objects and lists for which ``is_leaf`` is true stay whole.
    """
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        pointer, item = pending.pop()
        if is_leaf(item):
            yield pointer, item
        elif isinstance(item, dict):
            pending += [(pointer + to_pointer([key]), item[key]) for key in reversed(list(item))]
        elif isinstance(item, list):
            pending += [(f"{pointer}/{index}", item[index]) for index in reversed(range(len(item)))]
        else:
            yield pointer, item


def parse_output(output: Any) -> Any:
    """An output as JSON: a text with an object or a list is parsed, anything else stays."""
    if isinstance(output, str) and output.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return json_codec.loads(output)
    return output


def is_empty(output: Any) -> bool:
    """Whether an output says that there is nothing.

    It is null, a blank text, or a list or object of such values; or an object with an empty list
    and otherwise only such values and zeros: ``{"items": [], "total": 0}``.
    """
    if output is None:
        return True
    if isinstance(output, str):
        return not output.strip() or output.strip() in ("null", "None", "[]", "{}")
    if isinstance(output, list):
        return all(map(is_empty, output))
    if isinstance(output, dict):
        has_zero = has_empty_list = False
        for part in output.values():
            if is_empty(part):
                has_empty_list |= isinstance(part, list)
            elif part in (0, False):
                has_zero = True
            else:
                return False
        return has_empty_list or not has_zero
    return False


def looks_failed(output: Any) -> bool:
    """Whether an output that cannot be marked is nothing but an error.

    It is a short text that begins like an error message, a traceback, or an object with an
    ``error`` and its description. A status in a richer object is what a tool reports.
    """
    value = parse_output(output)
    if isinstance(value, str):
        begin = value[:40].lstrip().casefold()
        is_short = value.count("\n") < _ERROR_LINES or begin.startswith(_TRACEBACK)
        return begin.startswith(_ERROR_STARTS) and is_short
    if not isinstance(value, dict) or not any(value.get(key) for key in _ERROR_KEYS):
        return is_marked(value)
    rest = (part for key, part in value.items() if key not in (*_ERROR_KEYS, *_ERROR_DETAILS))
    return all(part is None or part in ("", [], {}) for part in rest) or is_marked(value)


def is_marked(value: Any) -> bool:
    """Whether a message or a result of MCP is marked as a failure."""
    return isinstance(value, dict) and any(value.get(key) is True for key in _MARKS)


def status_of(output: Any, *, failed: bool | None = None, ended: bool = True) -> Status:
    """The status of a call.

    Args:
        output: what it returned, read by ``parse_output``; None if unknown.
        failed: its mark; None if it has none, and the output decides.
        ended: whether the call is over.
    """
    if failed:
        return "error"
    if output is None:
        return "unknown" if failed is None or not ended else "ok"
    try:
        if is_empty(output):
            return "empty"
        return "error" if failed is None and looks_failed(output) else "ok"
    except RecursionError:
        return "ok"


def bound_output(
    output: Any, length: int = OUTPUT_LENGTH, *, whole_length: int | None = None
) -> tuple[Any, int | None]:
    """An output cut to a length, at a whole value.

    A text is cut after a word. A list keeps its first items, an object the members that fit, so
    pointers name the same parts as before. Numbers that JSON does not have become texts.

    Args:
        output: any JSON value, or text.
        length: maximum of characters, as compact JSON or as text.
        whole_length: characters of the output as JSON, if known.

    Returns:
        The output, and the characters of the whole one if it was cut, else None.
    """
    if isinstance(output, str):
        if len(output) <= length:
            return output, None
        return _cut_text(output, length), len(output)
    if whole_length is not None and whole_length <= length:
        return output, None
    cutter = _BoundedCopy(length)
    bounded = cutter.copy(output, -1)
    if not cutter.is_cut:
        return bounded, None
    if whole_length is None:
        try:
            whole_length = len(json_codec.dumps(output))
        except (RecursionError, TypeError, ValueError):
            whole_length = length + 1
    return bounded, max(whole_length, length + 1)


def is_short(encoded: bytes, length: int = OUTPUT_LENGTH) -> bool:
    """Whether ``bound_output`` certainly leaves a value whole, by its JSON: a fast check.

    Against its characters, a list or object counts at most one more, and a number, a flag or null
    two more. Characters inside of texts only make the estimate larger.
    """
    containers = encoded.count(b"{") + encoded.count(b"[")
    texts = (encoded.count(b'"') - encoded.count(b'\\"')) // 2 - encoded.count(b":")
    others = encoded.count(b",") + 1 - texts
    return containers <= _MAX_DEPTH and len(encoded) + containers + 2 * others <= length


def last_words(text: str, length: int = TEXT_LENGTH) -> str:
    """The end of a text, from a whole word on, without blanks around it."""
    text = text.rstrip()
    if len(text) > length:
        begin, end = text[-length - 1 : -length // 2], text[-length // 2 :]
        # Without blanks, half a word is better than nothing.
        text = (begin.partition(" ")[2] if " " in begin else begin[1:]) + end
    return text.lstrip()


def _cut_text(text: str, length: int) -> str:
    start = text[: length + 1]
    # Without words, as in base64, a half one is better than nothing.
    end = max(start.rfind(" "), start.rfind("\n"))
    return start[:end] if end > length // 2 else start[:length]


class _BoundedCopy:
    """Copies a JSON value part by part until the characters are used up."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.is_cut = False

    def _object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        self.room -= 2
        result: dict[str, Any] = {}
        for key, item in value.items():
            key = str(key)
            if self.room < len(key) + 5 and self.room < 8:
                self.is_cut = True
                break
            if self._fits(item, len(key) + 4, depth):
                result[key] = self.copy(item, depth)
        return result

    def _list(self, value: list[Any], depth: int) -> list[Any]:
        self.room -= 2
        result: list[Any] = []
        for item in value:
            if not self._fits(item, 1, depth):
                break
            result.append(self.copy(item, depth))
        return result

    def _fits(self, item: Any, more: int, depth: int) -> bool:
        """Whether there is room for an item and what is around it, which it then takes.

        A list or an object takes the room of its own characters when it is copied.
        """
        if isinstance(item, (dict, list)):
            if depth < _MAX_DEPTH and 2 + more <= self.room:
                self.room -= more
                return True
        elif (size := _leaf_size(item) + more) <= self.room:
            self.room -= size
            return True
        self.is_cut = True
        return False

    def copy(self, item: Any, depth: int) -> Any:
        """A part that fits."""
        if isinstance(item, dict):
            return self._object(item, depth + 1)
        if isinstance(item, list):
            return self._list(item, depth + 1)
        return json_codec.finite(item) if isinstance(item, float) else item


def _leaf_size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, float):
        return len(repr(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return 2 + value.bit_length() * 3 // 10
    return 5
