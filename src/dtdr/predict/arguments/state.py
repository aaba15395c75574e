"""State of a run before a call: texts, earlier calls, records in outputs, and uses."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple

from dtdr.data.calls import ToolCall, find_references, is_reference
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.outputs import iter_leaves
from dtdr.data.run import Run
from dtdr.predict.arguments.prediction import CallPrediction, SourceKind, ValueSource
from dtdr.predict.arguments.run_texts import read_texts
from dtdr.predict.arguments.texts import content_stems
from dtdr.predict.arguments.values import canonical, output_leaves, resolve_references

ITEM = "*"
"""In place of a position in a list, of a key that names one record, and of a list's item."""
_MAX_DEPTH = 8
"""Depth of objects and lists in arguments."""
MAX_USED = 200
"""Spans that were used, the last ones, as far as they are remembered of a parameter."""
_VARIABLE = re.compile(r"\d+|.*\d{3}.*", re.DOTALL)
"""Keys that name one record of many: positions, and identifiers such as ``credit_card_4421486``."""
_PREFIX = re.compile("^(?:given|failed|whole) ")
_LONGEST_TELLING = 60
"""Characters of a value whose words are looked for in the texts."""
WHOLE = "whole "
"""The pattern of a whole output."""
MOST_GIVEN = 60
"""Parts of the arguments of one call."""
_FADING = 0.7
"""Factor by which a word of an earlier message counts less, message by message."""


class PartKind(NamedTuple):
    """The kind of a call's part, as a ranker sees it.

    Attributes:
        tool: that was called.
        pattern: the JSON Pointer into the output, or into the arguments after ``given ``, or after
            ``failed `` if the call did; with ``*`` for positions and keys that name one record.
        key: its last name; empty where that is a variable.
        said: where the value was said: ``query``, a role, a role and ``earlier``, or ``no``.
    """

    tool: str
    pattern: str
    key: str
    said: str


class ValuePart(NamedTuple):
    """A value that may be an argument: mostly a part of an earlier call's arguments or output.

    A record is an object in a list, or one under a key that is an identifier; what is outside
    of such objects, the arguments among it, is one record together.

    Attributes:
        value: as it is written there.
        form: canonical.
        source: where it comes from.
        numbers: of its form, kind, list, record, and list of records; empty for other candidates.
        mentions: how much of the record the query and the last message say, and all texts.
    """

    value: Any
    form: str
    source: ValueSource
    numbers: tuple[int, ...] = ()
    mentions: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class PastCall:
    """An earlier call as later arguments see it.

    Attributes:
        arguments: with references resolved where outputs are known.
        parts: of the arguments, then the whole output and parts of it.
        is_earlier: whether it was made for an earlier query.
    """

    call: ToolCall
    arguments: Mapping[str, Any]
    parts: list[ValuePart]
    is_earlier: bool


class RunState:
    """A run before its next call, kept up to date call by call.

    What follows from the texts alone is computed once for all states of the run: keep one state
    for a run, or copy it where runs branch (``copy`` and ``add`` cost a few microseconds).

    Args:
        query: what the user asked for.
        before: messages and calls before it.

    Attributes:
        texts: the query and messages.
        calls: the calls so far, those of earlier turns first.
        by_id: the calls by their ids.
        used: ids of the calls that an argument referred to.
        spans: spans used by tool and parameter, by parameter under ``("", parameter)``, and all
            under ``("", "")``.
        values: forms that each tool and parameter took, fields of objects and items of lists too.
        last_token: the last token of the span used last, -1 where none was.
        numbers: of forms, patterns and records; shared by all copies.
        kinds: numbers of the kinds of parts of outputs, in their order; shared by all copies.
        step_memo: what was computed for the next call; empty after each call.
    """

    def __init__(self, query: str, before: Sequence[Message | ToolCall] = ()) -> None:
        self.texts = read_texts(query, before)
        self.calls: list[PastCall] = []
        self.by_id: dict[str, ToolCall] = {}
        self.used: set[str] = set()
        self.spans: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}
        self.values: dict[tuple[str, str], tuple[str, ...]] = {}
        self.last_token = -1
        self.numbers: dict[Hashable, int] = {}
        self.kinds: dict[PartKind, int] = {}
        self.step_memo: dict[Hashable, Any] = {}
        for item in before:
            if isinstance(item, ToolCall):
                self.add(item, is_earlier=True)

    @classmethod
    def from_run(cls, run: Run) -> RunState:
        """The state after the calls of a run."""
        state = cls(run.query, run.before)
        state.add_calls_of(run)
        return state

    def with_names(self, names: Mapping[str, str]) -> RunState:
        """The state in which tools are called by other names; their own where none is given."""
        result = RunState("")
        result.texts = self.texts
        for past in self.calls:
            result.add(rename(past.call, names), is_earlier=past.is_earlier)
        return result

    def add_calls_of(self, run: Run) -> None:
        """Take note of the calls of the same run that were made since."""
        known = sum(not past.is_earlier for past in self.calls)
        for call in run.calls[known:]:
            self.add(call)

    def copy(self) -> RunState:
        """The same state, to which other calls may be added."""
        result = copy(self)
        for name in ("calls", "by_id", "used", "spans", "values"):
            setattr(result, name, getattr(self, name).copy())
        result.step_memo = {}
        return result

    def add(self, call: ToolCall, *, is_earlier: bool = False) -> None:
        """Take note of a call that was made."""
        arguments = resolve_references(call.arguments, self.by_id)
        self.used.update(reference.call for reference in find_references(call.arguments))
        self._note_values(call.tool, arguments)
        parts = self.read_parts(call, arguments)
        self.calls.append(PastCall(call, arguments, parts, is_earlier))
        self.by_id[call.id] = call
        self.step_memo.clear()

    def number(self, value: Hashable) -> int:
        """The number of a form, pattern or record, a further one where it has none yet."""
        return self.numbers.setdefault(value, len(self.numbers))

    def locate(self, form: str, used: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
        """The span that says a value, one that is not used yet where there are several."""
        spans = [*map(self.texts.span, self.texts.places.get(form, ()))]
        return next((span for span in spans if span not in used), spans[0] if spans else None)

    def _note_values(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Take note of the values and the spans they are in."""
        for slot, value in iter_parts(arguments):
            form = canonical(value)
            self.values[tool, slot] = (*self.values.get((tool, slot), ())[-MAX_USED:], form)
            if isinstance(value, (bool, Mapping, list)) or value is None or value == "":
                continue
            span = self.locate(form, self.spans.get(("", ""), ()))
            if span is not None:
                for key in ((tool, slot), ("", slot), ("", "")):
                    self.spans[key] = (*self.spans.get(key, ())[-MAX_USED:], span)
                self.last_token = span[1]

    def read_parts(
        self, call: ToolCall, arguments: Mapping[str, Any], paths: Sequence[str] = ()
    ) -> list[ValuePart]:
        """The parts of a call: of its arguments, and of its output, or paths if it is not known."""
        tool, said = call.tool, self.texts.said
        how = "failed" if call.status == "error" else "given"
        leaf_parts: list[tuple[SourceKind, str, str, Any]] = [
            ("argument", f"{how} {path}", path, value) for path, value in _iter_given(arguments)
        ]
        leaf_parts.append(("output", WHOLE, "", {"$ref": call.id}))
        unread = ((path, {"$ref": call.id, "path": path}) for path in paths)
        leaves = unread if call.output is None else output_leaves(call.output)
        leaf_parts += [("output", path[1:], path, value) for path, value in leaves]
        words: dict[str, set[str]] = {}
        parts: list[ValuePart] = []
        records: list[str] = []
        for source, keys, path, value in leaf_parts:
            pattern, key, record = _read_keys(keys)
            form = canonical(value)
            if isinstance(value, (str, int, float)) and len(form) <= _LONGEST_TELLING:
                for entry in _records_around(record):
                    words.setdefault(entry, set()).update(content_stems(value))
            kind = PartKind(tool, pattern, key, said.get(form, "no"))
            numbers = (
                self.number(form),
                self.kinds.setdefault(kind, len(self.kinds)),
                self.number((tool, pattern, call.id if record else "")),
                self.number((call.id, record)),
                self.number(("of", tool, _read_keys(record)[0])),
            )
            parts.append(ValuePart(value, form, ValueSource(source, call.id, path), numbers))
            records.append(record)
        scores = self._score_mentions(words)
        return [
            part._replace(mentions=scores[record]) if record in scores else part
            for part, record in zip(parts, records, strict=True)
        ]

    def _score_mentions(self, words: Mapping[str, set[str]]) -> dict[str, tuple[float, float]]:
        """How much of each record the last texts say, and all of them; rare words count more."""
        lists: dict[str, Counter[str]] = {}
        sizes: Counter[str] = Counter()
        for record, record_words in words.items():
            where = record.rpartition("/")[0]
            lists.setdefault(where, Counter()).update(record_words)
            sizes[where] += 1
        scores = {}
        for record, record_words in words.items():
            where = record.rpartition("/")[0]
            shares = [0.0] * len(self.texts.parts)
            for position, text in enumerate(self.texts.parts):
                for word in record_words & text.words:
                    shares[position] += math.log((sizes[where] + 1) / lists[where][word])
            total = sum(share * _FADING**position for position, share in enumerate(shares))
            scores[record] = (round(sum(shares[:2]), 6), round(total, 6))
        return scores


def is_whole(value: Any) -> bool:
    """Whether a value is a reference or a text around some."""
    return is_reference(value) or (isinstance(value, Mapping) and "$join" in value)


def _iter_given(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """``(path, value)`` of what a later call may repeat of arguments, bounded; nothing empty."""
    parts = [item for item in arguments.items() if isinstance(item[1], (list, Mapping))]
    leaves = ((pointer[1:], value) for pointer, value in iter_leaves(arguments, is_whole))
    for path, value in islice(chain(parts, leaves), MOST_GIVEN):
        if value not in (None, "") and not isinstance(value, bool) and not find_references(value):
            yield path, value


def rename(call: ToolCall, names: Mapping[str, str]) -> ToolCall:
    """A call by another name of its tool; the same where none is given."""
    return replace(call, tool=names.get(call.tool, call.tool))


@lru_cache(maxsize=1 << 14)
def _read_keys(pointer: str) -> tuple[str, str, str]:
    """The pattern of a JSON Pointer without its first slash, its last name, and its record."""
    keys = pointer.split("/")
    variable = [_VARIABLE.fullmatch(key) is not None for key in keys]
    depth = max(
        (position + 1 for position in range(len(keys) - 1) if variable[position]), default=0
    )
    pattern = "/".join(
        ITEM if is_variable else name for name, is_variable in zip(keys, variable, strict=True)
    )
    key = "" if variable[-1] else _PREFIX.sub("", keys[-1])
    return pattern, key, "/".join(keys[:depth])


@lru_cache(maxsize=1 << 12)
def _records_around(record: str) -> tuple[str, ...]:
    """A record, those that it is in, and the outermost one."""
    around = [record]
    while around[-1]:
        around.append(_read_keys(around[-1].rpartition("/")[0] + "/x")[2])
    return tuple(around)


def iter_parts(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of arguments by slot: parameters, fields (``/field``), and items (``/*``)."""
    pending = [(name, value, 0) for name, value in [*arguments.items()][::-1]]
    while pending:
        name, value, depth = pending.pop()
        if isinstance(value, list) and depth < _MAX_DEPTH:
            pending += [(f"{name}/{ITEM}", entry, depth + 1) for entry in reversed(value)]
        elif isinstance(value, Mapping) and not is_reference(value) and depth < _MAX_DEPTH:
            inner = [(f"{name}/{key}", entry) for key, entry in value.items()]
            pending += [(*part, depth + 1) for part in reversed(inner)]
        else:
            yield name, value


def iter_calls(demonstrations: Sequence[Demonstration]) -> Iterator[tuple[RunState, ToolCall]]:
    """Every call with the state before it; the state changes with the next item."""
    for item in demonstrations:
        state = RunState(item.query, item.before)
        for call in item.plan.calls:
            yield state, call
            state.add(call)


def is_exact(prediction: CallPrediction, call: ToolCall, state: RunState) -> bool:
    """Whether every argument of a predicted call is the demonstrated one.

    Case, spaces and the format of numbers do not count, nor the way by which a value is reached:
    a part of a known output may be given by reference or by value.
    """
    if prediction.unknown:
        return False
    predicted = resolve_references(prediction.arguments, state.by_id)
    wanted = resolve_references(call.arguments, state.by_id)
    return canonical(predicted) == canonical(wanted)
