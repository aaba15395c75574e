"""The values that are known at the steps of a conversation, and conditions on them in words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.outputs import parse_output
from dtdr.rankers.dtdr_f.observations import RunReader
from dtdr.rankers.dtdr_f.values import (
    ARGUMENTS,
    EQUAL,
    FLAG,
    GREATEST,
    IN_QUERY,
    ITEM,
    LENGTH,
    NUMBER,
    NUMERIC,
    OUTPUT,
    Values,
    hash_member,
    parse_lines,
    read_query,
)

Floats = npt.NDArray[np.float64]

ON_QUERY = ""
"""The tool of values that the query has."""
_BITS = 0xFFFFF
_QUERY_NAMES = {
    NUMBER: "a number of the query",
    GREATEST: "the greatest number of the query",
    LENGTH: "numbers in the query",
}


@dataclass(frozen=True, eq=False)
class Conversation:
    """The turns of a conversation, one after the other.

    Attributes:
        group: of the runs.
        steps: the turn, how many of its calls were made, and by tool the place of its latest call.
        calls: before the first turn, then those of the turns.
        values: of each call; those of the query of turn n are at -1 - n.
        earlier: how many of the calls are before the first turn.
    """

    group: str
    steps: Sequence[tuple[Demonstration, int, Mapping[str, int]]]
    calls: Sequence[ToolCall]
    values: Sequence[Values]
    earlier: int

    @classmethod
    def read(cls, turns: Sequence[Demonstration]) -> Conversation:
        """Read the outputs of some turns, in their order."""
        before = turns[0].plan.earlier
        values = [*RunReader(turns[0].before, turns[0].query).earlier]
        calls = [*before[len(before) - len(values) :]]
        earlier, steps = len(calls), []
        latest = {call.tool: at for at, call in enumerate(calls)}
        for turn, item in enumerate(turns):
            plan, returned = item.plan.calls, 0
            reader = RunReader(item.before, item.query)
            values += [reader.read(call).values for call in plan]
            latest[ON_QUERY] = -1 - turn
            for done in range(len(plan) + 1):
                step = plan[done].step if 0 < done < len(plan) else None
                if step is None or step != plan[done - 1].step:  # parallel calls return together
                    latest |= {plan[at].tool: len(calls) + at for at in range(returned, done)}
                    returned = done
                steps.append((item, done, latest.copy()))
            calls += plan
        values += [read_query(item.query) for item in reversed(turns)]
        return cls(turns[0].group or turns[0].id, steps, calls, values, earlier)


def read_conversations(demonstrations: Iterable[Demonstration]) -> list[Conversation]:
    """The conversations whose outputs are known; ``dtdr import`` numbers the turns of each."""
    turns: dict[str, list[tuple[int, Demonstration]]] = defaultdict(list)
    for item in demonstrations:
        stem, dash, turn = item.id.rpartition("-")
        is_turn = bool(dash and stem) and turn.isdecimal()
        turns[stem if is_turn else item.id].append((int(turn) if is_turn else 0, item))
    listed = (sorted(pairs, key=lambda pair: pair[0]) for pairs in turns.values())
    talks = [Conversation.read([item for _, item in pairs]) for pairs in listed]
    return [talk for talk in talks if any(call.output is not None for call in talk.calls)]


def read_columns(
    cases: Sequence[tuple[Conversation, tuple[int, ...]]], tool: int, least: int
) -> dict[int, Floats]:
    """By key, the values of cases; NaN where a number is not known.

    Args:
        cases: a conversation and the places of its calls.
        tool: which of the calls.
        least: cases that must have a value.
    """
    known: dict[int, dict[int, float]] = defaultdict(dict)
    for at, (talk, calls) in enumerate(cases):
        values = talk.values[calls[tool]]
        for key, value in zip(values.keys.tolist(), values.values.tolist(), strict=True):
            known[key][at] = value
    columns = {}
    for key, read in known.items():
        if len(read) >= least and key < EQUAL:
            column = np.full(len(cases), np.nan if key < NUMERIC else 0.0)
            column[[*read]] = [*read.values()]
            columns[key] = column
    return columns


class Condition(NamedTuple):
    """A value of the latest call of a tool, or the difference of two, compared with a threshold.

    Attributes:
        values: one or two, each a tool and a key; see ``dtdr_f.values``.
        threshold: the values from it on are meant, or those up to it.
        is_above: which of the two.
    """

    values: tuple[tuple[str, int], ...]
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
            for at, ((_, key), index) in enumerate(zip(self.values, places * 2, strict=False)):
                if not names[at] and index >= 0:
                    names[at], samples[at] = name_value(key, calls[index])
            if all(names):
                break
        full = [_full_name(*value, name) for value, name in zip(self.values, names, strict=True)]
        if len(full) == 1:
            return self._describe_value(full[0], samples[0])
        is_above, threshold = self.is_above, self.threshold
        if threshold < 0:
            full, is_above, threshold = full[::-1], not is_above, -threshold
        if self.values[0][0] == self.values[1][0] != ON_QUERY:
            full[1] = full[1].removeprefix(f"{self.values[0][0]} ")
        sign = ">=" if is_above else "<="
        if threshold == 0:
            return f"{full[0]} {sign} {full[1]}"
        unit = " days" if all(map(_is_date, samples)) else ""
        return f"{full[0]} - {full[1]} {sign} {threshold:,.10g}{unit}"

    def _describe_value(self, name: str, sample: Any) -> str:
        kind, threshold = self.values[0][1] & ~_BITS, self.threshold
        if kind == IN_QUERY:
            return f"{name} is {'' if self.is_above else 'not '}in the query"
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


def name_value(key: int, call: ToolCall) -> tuple[str, Any]:
    """The path of the value of a call with this key, such as ``claim.amount``, and the value.

    Returns:
        An empty path where the call has no such value.
    """
    kind, low = key & ~_BITS, key & _BITS
    for path, name, value in _iter_paths(call):
        if kind == FLAG:
            path = hash_member(path, str(value))
        if path & _BITS == low and isinstance(value, (list, tuple)) == (kind == LENGTH):
            return name or "output", value
    return "", None


def _iter_paths(call: ToolCall) -> Iterator[tuple[int, str, Any]]:
    """Hash, path and value of each list and each single value of a call.

    ``ValueReader`` walks the same tree at each step of a run, without names and within limits.
    """
    output = parse_output(call.output)
    if isinstance(output, str):
        output = parse_lines(output)
    pending = [(ARGUMENTS, "", call.arguments), (OUTPUT, "", output)]
    while pending:
        path, name, value = pending.pop()
        if isinstance(value, dict):
            pending += [
                (hash_member(path, str(key)), f"{name}.{key}".strip("."), part)
                for key, part in reversed(value.items())
            ]
            continue
        yield path, name, value
        if isinstance(value, (list, tuple)):
            pending += [(path ^ ITEM, name, part) for part in reversed(value)]


def _full_name(tool: str, key: int, name: str) -> str:
    """How a value is shown: ``get_claim greatest amount``; of the query, its own name."""
    kind = key & ~_BITS
    if tool == ON_QUERY:
        return _QUERY_NAMES.get(kind, "the query")
    part = {GREATEST: "greatest ", LENGTH: "items of "}.get(kind, "")
    return f"{tool} {part}{name}"


def _is_date(sample: Any) -> bool:
    return isinstance(sample, str) and sample[4:5] == "-" and sample[7:8] == "-"
