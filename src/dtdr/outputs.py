"""What a call returned: its parts by JSON Pointer, cut to a length, described, and told empty."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dtdr import json_codec

OUTPUT_LENGTH = 2000
"""Characters kept of an output: enough for keys, sizes and the identifiers that calls pass on."""

_MAX_DEPTH = 100
_ARRAY_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


def resolve_pointer(value: Any, pointer: str) -> Any:
    """The part of a JSON value that a JSON Pointer names (RFC 6901).

    Raises:
        LookupError: there is no such part, or the pointer neither is empty nor begins with ``/``.
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
    """The JSON Pointer of a part that is reached by these keys and positions."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def iter_leaves(
    value: Any, is_leaf: Callable[[Any], bool] = lambda _: False
) -> Iterator[tuple[str, Any]]:
    """``(pointer, value)`` of every part that is neither an object nor a list, in order.

    Args:
        value: JSON.
        is_leaf: says which objects and lists stay whole.
    """
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while pending:
        keys, item = pending.pop()
        if is_leaf(item):
            yield to_pointer(keys), item
        elif isinstance(item, dict):
            pending += [((*keys, key), item[key]) for key in reversed(list(item))]
        elif isinstance(item, list):
            pending += [((*keys, place), item[place]) for place in range(len(item) - 1, -1, -1)]
        else:
            yield to_pointer(keys), item


def parse_output(output: Any) -> Any:
    """An output as JSON: a text that holds an object or a list is read, all else stays."""
    if isinstance(output, str) and output.lstrip()[:1] in ("{", "["):
        try:
            return json_codec.loads(output)
        except (ValueError, RecursionError):
            return output
    return output


def is_empty(output: Any) -> bool:
    """Whether an output says that there is nothing.

    Null, a blank text, a list or object that holds nothing else; or an object with an empty list
    in it, and besides only such values and zeros: ``{"items": [], "total": 0}``.
    """
    if output is None:
        return True
    if isinstance(output, str):
        return not output.strip() or output.strip() in ("null", "None", "[]", "{}")
    if isinstance(output, list):
        return all(map(is_empty, output))
    if isinstance(output, dict):
        parts = output.values()
        if all(map(is_empty, parts)):
            return True
        has_empty_list = any(isinstance(part, list) and is_empty(part) for part in parts)
        return has_empty_list and all(is_empty(part) or part in (0, False) for part in parts)
    return False


def bound_output(
    output: Any, length: int = OUTPUT_LENGTH, *, whole_length: int | None = None
) -> tuple[Any, int | None]:
    """An output cut to a length, at a whole value.

    A text is cut after a word. Of lists the first items stay, of objects the members that fit;
    what does not fit is left out as a whole, so that pointers name the same parts as before.
    Values are made JSON: numbers that JSON does not have become null.

    Args:
        output: any JSON value, or text.
        length: characters at most, as compact JSON; a text as it is.
        whole_length: characters of the output as JSON, where they are known already.

    Returns:
        The output, and the characters of the whole one where something was left out, else None.
    """
    if isinstance(output, str):
        if len(output) <= length:
            return output, None
        return _cut_text(output, length), len(output)
    if whole_length is not None and whole_length <= length:
        return output, None
    cutter = _Cutter(length)
    bounded = cutter.part(output, 0)
    if not cutter.is_cut:
        return bounded, None
    if whole_length is None:
        try:
            whole_length = len(json_codec.dumps(output))
        except (RecursionError, TypeError, ValueError):
            whole_length = length + 1
    return bounded, max(whole_length, length + 1)


def output_shape(output: Any) -> Any:
    """An output with every value replaced by its type, and texts also by their length.

    Keys and the sizes of lists and objects stay: ``{"to": "string(4)", "stops": ["integer"]}``.
    """
    if isinstance(output, dict):
        return {key: output_shape(part) for key, part in output.items()}
    if isinstance(output, list):
        return [output_shape(part) for part in output]
    if isinstance(output, str):
        return f"string({len(output)})"
    if isinstance(output, bool):
        return "boolean"
    if output is None:
        return "null"
    return "integer" if isinstance(output, int) else "number"


def _cut_text(text: str, length: int) -> str:
    start = text[: length + 1]
    # Half a word, of base64 say, is worth more than nothing where there are no words.
    end = max(start.rfind(" "), start.rfind("\n"))
    return start[:end] if end > length // 2 else start[:length]


class _Cutter:
    """Copies a JSON value part by part until the characters are used up."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.is_cut = False

    def part(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list):
            return self._list(value, depth)
        self.room -= len(value) + 2 if isinstance(value, str) else _number_size(value)
        if isinstance(value, float) and (value != value or abs(value) == float("inf")):
            return None
        return value

    def _object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        self.room -= 2
        result: dict[str, Any] = {}
        for key, item in value.items():
            key = str(key)
            if self.room < len(key) + 5 and self.room < 8:
                self.is_cut = True
                break
            if self._fits(item, len(key) + 4, depth):
                self.room -= len(key) + 4
                result[key] = self.part(item, depth + 1)
        return result

    def _list(self, value: list[Any], depth: int) -> list[Any]:
        self.room -= 2
        result: list[Any] = []
        for item in value:
            if not self._fits(item, 1, depth):
                break
            self.room -= 1
            result.append(self.part(item, depth + 1))
        return result

    def _fits(self, item: Any, more: int, depth: int) -> bool:
        if isinstance(item, (dict, list)):
            size = 2
            fits = depth < _MAX_DEPTH
        else:
            size = len(item) + 2 if isinstance(item, str) else _number_size(item)
            fits = True
        if fits and size + more <= self.room:
            return True
        self.is_cut = True
        return False


def _number_size(value: Any) -> int:
    if isinstance(value, float):
        return len(repr(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return 2 + value.bit_length() * 3 // 10
    return 5
