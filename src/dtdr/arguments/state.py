"""What is known before a call: texts, earlier calls, and what of them was used already."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtdr.arguments.run_texts import read_texts
from dtdr.arguments.values import canonical, output_leaves, resolve_references
from dtdr.calls import ToolCall, is_reference, iter_references
from dtdr.demonstrations import Message
from dtdr.run import Run

MAX_LEAVES = 400
"""Parts of outputs that may be an argument, those of the last calls."""
ITEM = "*"
"""In place of a field where all objects of a list are meant."""
_MAX_DEPTH = 8
"""Of objects and lists in arguments."""
MAX_USED = 200
"""Spans that were used, the last ones, as far as they are remembered of a parameter."""


def pattern_of(pointer: str) -> str:
    """A JSON Pointer with ``*`` for positions in lists, without the first slash."""
    return "/".join("*" if key.isdigit() else key for key in pointer.split("/")[1:])


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of an output that may be an argument.

    Attributes:
        pointer: JSON Pointer.
        form: the canonical form of the value.
        pattern: the pointer with ``*`` for positions in lists.
        key: the last name or position of the pointer.
        position: the first position in it, at most 4; -1 where it has none.
    """

    pointer: str
    value: Any
    form: str
    pattern: str
    key: str
    position: int

    @classmethod
    def of(cls, pointer: str, value: Any) -> Leaf:
        """A part by its pointer."""
        keys = pointer.split("/")[1:]
        pattern = pattern_of(pointer)
        position = next((min(int(key[:9]), 4) for key in keys if key.isdecimal()), -1)
        return cls(pointer, value, canonical(value), pattern, keys[-1] if keys else "", position)


def _read_leaves(output: Any) -> tuple[Leaf, ...]:
    return tuple(Leaf.of(pointer, value) for pointer, value in output_leaves(output))


@dataclass(frozen=True, slots=True)
class PastCall:
    """An earlier call as later arguments see it.

    Attributes:
        arguments: with references resolved where outputs are known.
        forms: their canonical forms.
        anchor: first and last token of the span that its first argument stands in, or None.
        leaves: parts of its output.
        is_earlier: whether it was made for an earlier query.
    """

    call: ToolCall
    arguments: Mapping[str, Any]
    forms: Mapping[str, str]
    anchor: tuple[int, int] | None
    leaves: tuple[Leaf, ...]
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
        uses: how often an argument referred to each call, by its id.
        uses_by: the calls referred to by tool and parameter.
        spans: spans used by tool and parameter, by parameter under ``("", parameter)``, and all
            under ``("", "")``.
        last_token: the last token of the span used last, -1 where none was.
        memo: what was computed from the texts; shared by all copies.
        step_memo: what was computed for the next call; empty after each call.
    """

    def __init__(self, query: str, before: Sequence[Message | ToolCall] = ()) -> None:
        self.texts = read_texts(query, before)
        self._clear()
        for item in before:
            if isinstance(item, ToolCall):
                self.add(item, is_earlier=True)

    def _clear(self) -> None:
        self.calls: list[PastCall] = []
        self.by_id: dict[str, ToolCall] = {}
        self.uses: dict[str, int] = {}
        self.uses_by: dict[tuple[str, str], frozenset[str]] = {}
        self.spans: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}
        self.last_token = -1
        self.memo: dict[Hashable, Any] = {}
        self.step_memo: dict[Hashable, Any] = {}

    @classmethod
    def from_run(cls, run: Run) -> RunState:
        """The state after the calls of a run."""
        state = cls(run.query, run.before)
        state.add_calls_of(run)
        return state

    def with_names(self, names: Mapping[str, str]) -> RunState:
        """The state in which tools are called by other names; their own where none is given."""
        result = RunState.__new__(RunState)
        result.texts = self.texts
        result._clear()
        result.memo = self.memo
        for past in self.calls:
            call = replace(past.call, tool=names.get(past.call.tool, past.call.tool))
            result.add(call, is_earlier=past.is_earlier)
        return result

    def add_calls_of(self, run: Run) -> None:
        """Take note of the calls of the same run that were made since."""
        known = sum(not past.is_earlier for past in self.calls)
        for call in run.calls[known:]:
            self.add(call)

    def copy(self) -> RunState:
        """The same state, to which other calls may be added."""
        result = RunState.__new__(RunState)
        result.texts = self.texts
        result.calls = self.calls.copy()
        result.by_id = self.by_id.copy()
        result.uses = self.uses.copy()
        result.uses_by = self.uses_by.copy()
        result.spans = self.spans.copy()
        result.last_token = self.last_token
        result.memo = self.memo
        result.step_memo = {}
        return result

    def add(self, call: ToolCall, *, is_earlier: bool = False) -> None:
        """Take note of a call that was made."""
        arguments = resolve_references(call.arguments, self.by_id)
        for parameter, value in call.arguments.items():
            referred = [reference.call for _, reference in iter_references(value)]
            for other in referred:
                self.uses[other] = self.uses.get(other, 0) + 1
            if referred:
                key = (call.tool, parameter)
                self.uses_by[key] = self.uses_by.get(key, frozenset()).union(referred)
        forms = {name: canonical(value) for name, value in arguments.items()}
        anchor = self._note_spans(call.tool, arguments)
        leaves = () if call.output is None else _read_leaves(call.output)
        self.calls.append(PastCall(call, arguments, forms, anchor, leaves, is_earlier))
        self.by_id[call.id] = call
        self.step_memo.clear()

    def with_used(self, tool: str, parts: Mapping[str, Any]) -> RunState:
        """The state in which the spans of a part of the next call count as used."""
        result = self.copy()
        result.step_memo = self.step_memo
        result._note_spans(tool, parts)
        return result

    def _note_spans(self, tool: str, arguments: Mapping[str, Any]) -> tuple[int, int] | None:
        """Take note of the spans that arguments stand in; the first of them."""
        anchor = None
        for parameter, item in _iter_parts(arguments):
            span = self._locate(item)
            if span is not None:
                for key in ((tool, parameter), ("", parameter), ("", "")):
                    self.spans[key] = (*self.spans.get(key, ())[-MAX_USED:], span)
                anchor = anchor or span
        if anchor is not None:
            self.last_token = anchor[1]
        return anchor

    def _locate(self, value: Any) -> tuple[int, int] | None:
        """The span that says a value, one not used yet where there are several."""
        if isinstance(value, (bool, Mapping, list)) or value is None or value == "":
            return None
        texts = self.texts
        used = self.spans.get(("", ""), ())
        places = [
            (int(texts.first[number]), int(texts.last[number]))
            for number in texts.places.get(canonical(value), ())
        ]
        return next((span for span in places if span not in used), places[0] if places else None)


def _iter_parts(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of arguments, and of the objects in them, by parameter and field."""
    pending = [(name, value, 0) for name, value in [*arguments.items()][::-1]]
    while pending:
        name, value, depth = pending.pop()
        if isinstance(value, list) and depth < _MAX_DEPTH:
            inner = [(f"{name}/{ITEM}" if isinstance(one, Mapping) else name, one) for one in value]
            pending += [(*part, depth + 1) for part in reversed(inner)]
        elif isinstance(value, Mapping) and not is_reference(value) and depth < _MAX_DEPTH:
            inner = [(f"{name}/{key}", one) for key, one in value.items()]
            pending += [(*part, depth + 1) for part in reversed(inner)]
        else:
            yield name, value


def is_plain_reference(value: Any) -> bool:
    """Whether a value is a reference to a whole output."""
    return is_reference(value) and "path" not in value
