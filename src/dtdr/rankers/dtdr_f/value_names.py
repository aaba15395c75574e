"""The values of calls in words: their paths, and conditions on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple
from zlib import crc32

from dtdr.data.calls import ToolCall
from dtdr.data.outputs import parse_output
from dtdr.rankers.dtdr_f.values import (
    ARGUMENTS,
    EQUAL,
    FLAG,
    GREATEST,
    IN_QUERY,
    ITEM,
    LENGTH,
    NUMBER,
    OUTPUT,
    parse_lines,
)

ON_QUERY = ""
"""The tool of values that the query has."""
_BITS = 0xFFFFF
_QUERY_NAMES = {
    NUMBER: "a number of the query",
    GREATEST: "the greatest number of the query",
    LENGTH: "numbers in the query",
}


class Value(NamedTuple):
    """A value of the latest call of a tool, by its key; see ``values``."""

    tool: str
    key: int

    @property
    def kind(self) -> int:
        """Whether it is a number, a text, or another value."""
        return self.key & ~_BITS


class Condition(NamedTuple):
    """A value, or the difference of two, compared with a threshold.

    Attributes:
        values: one or two.
        threshold: the values from it on are meant, or those up to it.
        is_above: which of the two.
    """

    values: tuple[Value, ...]
    threshold: float
    is_above: bool

    def describe(self, examples: Iterable[tuple[Sequence[ToolCall], tuple[int, ...]]]) -> str:
        """The condition in words, such as ``get_claim amount >= 10,000``.

        Args:
            examples: calls of runs, and the places of the calls that have the values, which are
                looked through for the paths.
        """
        names, samples = [""] * len(self.values), [None] * len(self.values)
        for calls, places in examples:
            # Two values may be of the same call.
            for at, (value, place) in enumerate(zip(self.values, places * 2, strict=False)):
                if not names[at] and place >= 0:
                    call = calls[place]
                    names[at], samples[at] = name_value(value.key, call, calls[:place])
            if all(names):
                break
        full = [_full_name(*pair) for pair in zip(self.values, names, strict=True)]
        if len(full) == 1:
            return self._describe_value(full[0], samples[0])
        is_above, threshold = self.is_above, self.threshold
        if threshold < 0:
            full, is_above, threshold = full[::-1], not is_above, -threshold
        if self.values[0].tool == self.values[1].tool != ON_QUERY:
            full[1] = full[1].removeprefix(f"{self.values[0].tool} ")
        sign = ">=" if is_above else "<="
        if threshold == 0:
            return f"{full[0]} {sign} {full[1]}"
        unit = " days" if all(map(_is_date, samples)) else ""
        return f"{full[0]} - {full[1]} {sign} {threshold:,.10g}{unit}"

    def _describe_value(self, name: str, sample: Any) -> str:
        kind, threshold = self.values[0].kind, self.threshold
        if kind == IN_QUERY:
            return f"{name} is {'' if self.is_above else 'not '}in the query"
        if kind == EQUAL:
            return name if self.is_above else name.replace(" = ", " is not ")
        if kind == FLAG:
            times = f", {threshold:g} times" if self.is_above and threshold > 1 else ""
            return f"{name} {'=' if self.is_above else 'is not'} {sample}{times}"
        limit = f"{threshold:,.10g}"
        if _is_date(sample):
            limit = (date(2000, 1, 1) + timedelta(days=int(threshold))).isoformat()
        return f"{name} {'>=' if self.is_above else '<='} {limit}"


def round_threshold(last: float, beyond: float) -> float:
    """The roundest number that separates two neighbours; it may be ``last``, not ``beyond``.

    >>> round_threshold(10_240.0, 9_870.5), round_threshold(0.71, 0.68)
    (10000.0, 0.7)
    """
    low, high = sorted((last, beyond))
    if low < 0 < high:
        return 0.0
    size = math.floor(math.log10(max(abs(low), abs(high), 1e-9)))
    for digits in range(7):
        scale = 10.0 ** (digits - size)
        rounded = (math.ceil if last < beyond else math.floor)(last * scale) / scale
        if low <= rounded <= high and rounded != beyond:
            return float(rounded)
    return last


def name_value(key: int, call: ToolCall, earlier: Sequence[ToolCall]) -> tuple[str, Any]:
    """The path of the value of a call with this key, such as ``claim.amount``, and the value.

    Of a value that equals one of an earlier call, the tool and the path of that one follow.

    Returns:
        An empty path where the call has no such value.
    """
    kind, low = key & ~_BITS, key & _BITS
    for path, name, value in _iter_paths(call):
        if kind == FLAG:
            if crc32(str(value).encode("utf-8", "replace"), path) & _BITS == low:
                return name or "output", value
        elif kind == EQUAL:
            for other in reversed(earlier):
                for known, other_name, _ in _iter_paths(other):
                    if (known * 31 + path) & _BITS == low:
                        return f"{name or 'output'} = {other.tool} {other_name}".rstrip(), value
        elif path & _BITS == low and isinstance(value, (list, tuple)) == (kind == LENGTH):
            return name or "output", value
    return "", None


def _iter_paths(call: ToolCall) -> Iterator[tuple[int, str, Any]]:
    """Hash, path and value of each list and each single value of a call."""
    output = parse_output(call.output)
    if isinstance(output, str):
        output = parse_lines(output)
    pending = [(ARGUMENTS, "", call.arguments), (OUTPUT, "", output)]
    while pending:
        path, name, value = pending.pop()
        if isinstance(value, dict):
            pending += [
                (crc32(str(key).encode("utf-8", "replace"), path), f"{name}.{key}".strip("."), part)
                for key, part in reversed(value.items())
            ]
            continue
        yield path, name, value
        if isinstance(value, (list, tuple)):
            pending += [(path ^ ITEM, name, part) for part in reversed(value)]


def _full_name(value: Value, name: str) -> str:
    if value.tool == ON_QUERY:
        return _QUERY_NAMES.get(value.kind, "the query")
    part = {GREATEST: "greatest ", LENGTH: "items of "}.get(value.kind, "")
    return f"{value.tool} {part}{name}"


def _is_date(sample: Any) -> bool:
    return isinstance(sample, str) and sample[4:5] == "-" and sample[7:8] == "-"
