"""The values that calls take and return: numbers, dates, flags, counts, and which are equal.

No text is kept: a value is a hash of its path, and of a flag's text, with a number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from datetime import date
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from types import NoneType
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import is_reference
from dtdr.data.outputs import READ_LENGTH

Keys = npt.NDArray[np.int32]
_Column = tuple[int, list[Any], bool]
"""A path, the values there of one type, and whether they are in a list."""
_SINGLE = (str, int, float, bool, NoneType)
"""Types of values that have no parts."""

# The kind of a value, above the 20 bits of its hash.
NUMBER, GREATEST, LENGTH, IN_QUERY, FLAG, EQUAL = (kind << 20 for kind in range(6))
"""A number, or the least of a list; the greatest of a list; the length of a list; whether a text or
a number is in the query; how many items of a list have a text; whether a value is equal to one of
an earlier step, of its arguments or its output, at another path."""
NUMERIC = FLAG
"""Kinds below this have no value where they were not read; the others are 0 then."""

_BITS = 0xFFFFF
_MOST_VALUES, _MOST_ITEMS, _MOST_PARTS = 128, 64, 512
"""Values of a call, items of a list, and parts of an output that are read, the first ones."""
_LONGEST_FLAG, _SHORTEST_EQUAL, _LONGEST_EQUAL = 24, 3, 60
"""Characters of a text that may be one of few, and of texts that are compared."""
_LARGEST = 1e7
"""Numbers from here on are names: accounts, phones, times in seconds."""
_LEAST_EQUAL = 10
"""Smaller numbers are equal by chance."""
_QUERY_NUMBERS = 4
"""Numbers of a query that are read, the first ones."""
_EPOCH = date(2000, 1, 1).toordinal()
_NUMBER_IN_TEXT = re.compile(r"\d{4}-\d\d-\d\d|(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w-])")
_LINE = re.compile(
    r"^[\s>*+-]{0,8}[\"'*]{0,2}([A-Za-z][\w ./-]{0,39}?)[\"'*]{0,2}\s*[:=]\s*(\S.*)$", re.M
)
_COUNTED = re.compile(r"(?<![\w.,])(\d{1,6}) ([a-z]{3,20})")
_AFFIXES = "$€£% "
_NUMBER_ENDS, _SIGNS = frozenset("%€Z"), frozenset("+-.")
OUTPUT, ARGUMENTS, _QUERY, ITEM = (crc32(name) for name in (b"o", b"a", b"q", b"*"))


class Values(NamedTuple):
    """Values of the output of a call, or of a query.

    Attributes:
        keys: shape (n,), sorted: kind and hash of each value.
        values: shape (n,): numbers with four digits, whole days since 2000, counts, or 1.
    """

    keys: Keys
    values: npt.NDArray[np.float32]


NO_VALUES = Values(np.empty(0, np.int32), np.empty(0, np.float32))


class ValueReader:
    """Reads the values of the calls of one run in their order.

    Args:
        query: values may be in it.
    """

    def __init__(self, query: str = "") -> None:
        self._query = query[:READ_LENGTH].casefold()
        numbers = (value for _, value in _numbers_in(self._query))
        self._numbers = {value for value in numbers if value >= _LEAST_EQUAL}
        self._known: dict[Any, int] = {}
        """The path of each value of earlier steps, the last one."""
        self._latest: dict[Any, int] = {}
        """The same of the last step, the first one in the order of paths."""

    def read(self, arguments: Any, output: Any, *, is_parallel: bool = False) -> Values:
        """The values of the next call.

        Args:
            arguments: by name; None if unknown.
            output: a JSON value, or a text that is not JSON; None if unknown.
            is_parallel: whether the call is of the same step as the one before, whose values its
                own are not compared with: parallel calls have no order.
        """
        if not is_parallel:
            self._known.update(self._latest)
            self._latest = {}
        if isinstance(output, str):
            output = parse_lines(output)
        whole = [(OUTPUT, output), (ARGUMENTS, arguments)]
        values = self._read_columns(whole)
        if values is None:
            values = {}
            for path, value in whole:
                if value is not None:
                    self._walk(path, value, values)
        return _pack(values)

    def copy(self) -> ValueReader:
        """The same reader, to go on from in another way."""
        other = copy(self)
        other._known, other._latest = self._known.copy(), self._latest.copy()
        return other

    def _read_columns(self, whole: Sequence[tuple[int, Any]]) -> dict[int, float] | None:
        """The values as ``_walk`` reads them; None if there are more than it would keep.

        All values of one path are read at once, which is four times as fast.
        """
        values: dict[int, float] = {}
        columns: list[_Column] = []
        for path, value in whole:
            if value is not None and not _split(path, value, values, columns):
                return None
        latest: dict[Any, int] = {}
        # The least path of a value is kept: it comes last.
        columns.sort(key=itemgetter(0), reverse=True)
        known = self._known
        for path, column, is_listed in columns:
            read = self._read_texts if isinstance(column[0], str) else self._read_column
            compared, is_asked = read(path, column, is_listed, values)
            if compared:
                key = IN_QUERY | path & _BITS
                values[key] = max(float(is_asked), values.get(key, 0.0))
                for value in compared:
                    latest[value] = path
                    if (other := known.get(value, path)) != path:
                        values[_equal(other, path)] = 1.0
            if len(values) >= _MOST_VALUES:
                return None
        for value, path in self._latest.items():  # of parallel calls
            latest[value] = min(path, latest.get(value, path))
        self._latest = latest
        return values

    def _read_column(
        self, path: int, column: list[Any], is_listed: bool, values: dict[int, float]
    ) -> tuple[list[Any], bool]:
        """Flags or numbers of a path: those that are compared, and whether one is in the query."""
        if column[0] is None or isinstance(column[0], bool):
            for flag in set(column):
                _count_flag(values, path, str(flag), column.count(flag))
            return [], False
        numbers = [value for value in column if -_LARGEST < value < _LARGEST]
        if numbers:
            _add_number(values, path, _four_digits(min(numbers)), is_listed)
            _add_number(values, path, _four_digits(max(numbers)), is_listed)
        numbers = [value for value in numbers if value >= _LEAST_EQUAL]
        return numbers, not self._numbers.isdisjoint(numbers)

    def _read_texts(
        self, path: int, texts: list[str], is_listed: bool, values: dict[int, float]
    ) -> tuple[list[Any], bool]:
        """Texts of a path, as ``_read_column`` reads numbers."""
        compared, is_asked = [], False
        for text in texts:
            size = len(text)
            if size <= _LONGEST_FLAG:
                value = to_number(text)
                if value is None:
                    key = FLAG | hash_member(path, text) & _BITS
                    values[key] = values.get(key, 0.0) + 1
                else:
                    _add_number(values, path, _rounded(text, value), is_listed)
            if _SHORTEST_EQUAL <= size <= _LONGEST_EQUAL:
                folded = text.casefold()
                compared.append(folded)
                is_asked = is_asked or folded in self._query
        return compared, is_asked

    def _walk(self, path: int, whole: Any, values: dict[int, float]) -> None:
        """Read an output part by part, up to the limits; slower than ``_read_columns``."""
        pending: list[tuple[int, Any, bool]] = [(path, whole, False)]
        parts = 0
        while pending and len(values) < _MOST_VALUES and parts < _MOST_PARTS:
            path, value, is_listed = pending.pop()
            parts += 1
            if isinstance(value, dict):
                if is_reference(value):
                    continue
                members = list(islice(value.items(), _MOST_ITEMS))
                pending += [
                    (hash_member(path, str(name)), part, is_listed)
                    for name, part in reversed(members)
                ]
            elif isinstance(value, (list, tuple)):
                item = path ^ ITEM
                pending += [(item, part, True) for part in reversed(value[:_MOST_ITEMS])]
                if not is_listed:
                    values[LENGTH | path & _BITS] = float(len(value))
            elif isinstance(value, str):
                texts, is_asked = self._read_texts(path, [value], is_listed, values)
                for text in texts:
                    self._compare(path, text, is_asked, values)
            elif value is None or isinstance(value, bool):
                _count_flag(values, path, str(value))
            elif isinstance(value, (int, float)):
                if -_LARGEST < value < _LARGEST:  # not a number is neither
                    _add_number(values, path, _four_digits(value), is_listed)
                if _LEAST_EQUAL <= value < _LARGEST:
                    self._compare(path, value, value in self._numbers, values)

    def _compare(self, path: int, value: Any, is_asked: bool, values: dict[int, float]) -> None:
        key = IN_QUERY | path & _BITS
        values[key] = max(float(is_asked), values.get(key, 0.0))
        other = self._known.get(value, path)
        if other != path:
            values[_equal(other, path)] = 1.0
        self._latest[value] = min(path, self._latest.get(value, path))


def _equal(other: int, path: int) -> int:
    """The key of a value that is equal to one at another path."""
    return EQUAL | (other * 31 + path) & _BITS


@lru_cache(maxsize=1 << 15)
def hash_member(path: int, name: str) -> int:
    """The path of a member of an object, or the key of a text, from the path of what it is in."""
    return crc32(name.encode("utf-8", "replace"), path)


def read_query(query: str) -> Values:
    """The first numbers and dates of a query, and how many there are."""
    read = islice(_numbers_in(query[:READ_LENGTH]), _QUERY_NUMBERS)
    numbers = [_rounded(text, value) for text, value in read]
    if not numbers:
        return NO_VALUES
    values = {NUMBER | (_QUERY + at) & _BITS: value for at, value in enumerate(numbers)}
    values[GREATEST | _QUERY & _BITS] = max(numbers)
    values[LENGTH | _QUERY & _BITS] = float(len(numbers))
    return _pack(values)


def to_number(text: str) -> float | None:
    """A number, a date as days since 2000, or a time of day in hours; None for all else."""
    first, last = text[:1], text[-1:]
    if not (last.isdigit() or last in _NUMBER_ENDS) or first.isalpha():
        return None
    try:
        if _is_date(text):
            days = float(date.fromisoformat(text[:10]).toordinal() - _EPOCH)
            hours = to_number(text[11:16]) if len(text) >= 16 else None
            return days + (hours or 0.0) / 24
        if text[2:3] == ":" and text[:2].isdigit() and text[3:5].isdigit():
            return int(text[:2]) + int(text[3:5]) / 60
        bare = text.strip(_AFFIXES)
        first = bare[:1]
        is_name = first == "0" and len(bare) > 1 and bare.isdigit()  # such as a postcode
        if is_name or not (first.isdigit() or first in _SIGNS):
            return None
        value = float(bare.replace(",", ""))
    except ValueError:
        return None
    return value if abs(value) < _LARGEST else None


def _numbers_in(text: str) -> Iterable[tuple[str, float]]:
    """The numbers and dates of a text, as they are written and as numbers."""
    for match in _NUMBER_IN_TEXT.findall(text):
        value = to_number(match)
        if value is not None:
            yield match, value


def _rounded(text: str, value: float) -> float:
    """The value to keep of a text that ``to_number`` reads: whole days, or four digits."""
    return float(round(value)) if _is_date(text) else _four_digits(value)


def _is_date(text: str) -> bool:
    """Whether a text has the form of a date, or of a date and time."""
    return text[4:5] == "-" and text[7:8] == "-"


def _four_digits(value: float) -> float:
    """A number without what may identify somebody: the first four digits of a longer one."""
    return float(f"{value:.4g}")


def parse_lines(text: str) -> Any:
    """Lines such as ``key: value`` of a text, and what it counts: ``3 results``."""
    lines: dict[str, Any] = {}
    for name, value in islice(_LINE.findall(text), _MOST_ITEMS):
        value = value.strip().strip("\"',*")
        before = lines.get(name)
        if before is None:
            lines[name] = value
        elif isinstance(before, list):
            before.append(value)
        else:
            lines[name] = [before, value]
    for count, word in islice(_COUNTED.findall(text), 16):
        lines.setdefault(f"{word}#", int(count))
    if not lines and text:
        return text
    return lines


def _split(path: int, whole: Any, values: dict[int, float], columns: list[_Column]) -> bool:
    """Split an output into columns, and count its lists; False if it has too many parts."""
    pending: list[_Column] = [(path, [whole], False)]
    parts = 1
    while pending and parts <= _MOST_PARTS:
        path, mixed, is_listed = pending.pop()
        for kind, column in _by_type(mixed).items():
            if issubclass(kind, dict):
                for name, members in reversed(_members(column).items()):
                    parts += len(members)
                    member = hash_member(path, str(name)), members, is_listed
                    # Most members of one object need not be split.
                    is_single = len(members) == 1 and type(members[0]) in _SINGLE
                    (columns if is_single else pending).append(member)
            elif issubclass(kind, (list, tuple)):
                if not is_listed:
                    values[LENGTH | path & _BITS] = float(len(column[0]))
                items = [part for value in column for part in value[:_MOST_ITEMS]]
                if items:
                    parts += len(items)
                    pending.append((path ^ ITEM, items, True))
            elif issubclass(kind, _SINGLE):
                columns.append((path, column, is_listed))
    return parts <= _MOST_PARTS


def _by_type(values: list[Any]) -> dict[type, list[Any]]:
    if len(values) == 1 or len(set(map(type, values))) == 1:
        return {type(values[0]): values}
    by_type: defaultdict[type, list[Any]] = defaultdict(list)
    for value in values:
        by_type[type(value)].append(value)
    return by_type


def _members(objects: list[dict[Any, Any]]) -> dict[Any, list[Any]]:
    """The members of objects that are not references, by their names."""
    first = objects[0]
    if len(first) <= _MOST_ITEMS and "$ref" not in first:
        if len(objects) == 1:
            return {name: [part] for name, part in first.items()}
        # The objects of a list mostly have the same members.
        if all(first.keys() == value.keys() for value in objects):
            return {name: [value[name] for value in objects] for name in first}
    members: defaultdict[Any, list[Any]] = defaultdict(list)
    for value in objects:
        if not is_reference(value):
            for name, part in islice(value.items(), _MOST_ITEMS):
                members[name].append(part)
    return members


def _add_number(values: dict[int, float], path: int, value: float, is_listed: bool) -> None:
    key = path & _BITS
    values[NUMBER | key] = min(value, values.get(NUMBER | key, value))
    if is_listed:
        values[GREATEST | key] = max(value, values.get(GREATEST | key, value))


def _count_flag(values: dict[int, float], path: int, text: str, count: int = 1) -> None:
    key = FLAG | hash_member(path, text) & _BITS
    values[key] = values.get(key, 0.0) + count


def _pack(values: dict[int, float]) -> Values:
    keys = np.fromiter(values, np.int32, len(values))
    numbers = np.fromiter(values.values(), np.float32, len(values))
    order = keys.argsort()
    return Values(keys[order], numbers[order])
