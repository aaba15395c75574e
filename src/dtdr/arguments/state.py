"""What is known before a call: texts, earlier calls, and what of them was used already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.arguments.folding import FoldedText
from dtdr.arguments.hashing import Hashes, feature, features
from dtdr.arguments.texts import TokenizedText, tokenize
from dtdr.arguments.values import canonical, output_leaves, resolve_references
from dtdr.calls import ToolCall, is_reference, iter_references
from dtdr.demonstrations import Message
from dtdr.run import Run

MAX_MESSAGES = 6
"""Messages before the query whose spans may be arguments, the last ones."""
MAX_EARLIER_SPAN = 4
"""Tokens of a span in an earlier message; names and numbers are short, and there are many."""
MAX_LEAVES = 400
"""Parts of outputs that may be an argument, those of the last calls."""
ITEM = "*"
"""In place of a field where all objects of a list are meant."""
_MAX_DEPTH = 8
"""Of objects and lists in arguments."""
MAX_USED = 200
"""Spans that were used, the last ones, as far as they are remembered of a parameter."""


@dataclass(frozen=True, slots=True, eq=False)
class TextFeatures:
    """What a ranker sees of the texts of a run: n tokens, and m spans of them.

    Attributes:
        start_features, end_features: shape (n, …), with the part's role as a last column.
        first, last: tokens of each span; shape (m,).
        span_type: of each span, its row of ``type_features``; shape (m,).
        type_features: shape (types, 3).
        span_part: the part of each span; shape (m,).
    """

    start_features: Hashes
    end_features: Hashes
    first: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    span_type: npt.NDArray[np.int32]
    type_features: Hashes
    span_part: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class RunTexts(TextFeatures):
    """The query and the messages before it as one table of tokens, the query first.

    Attributes:
        parts: the texts; those of earlier messages are newest first.
        roles: of each part: ``query``, ``user`` or ``assistant``.
        offsets: the first token of each part; shape (parts + 1,).
        places: the spans that say a value, by its canonical form.
        said: who says a value, by its canonical form.
        word_features: the words of the query, each once.
        near_features: each token as a word near another; shape (n,).
        folded: finds what the texts say in another form.
        stem_set: of ``stems``.
    """

    parts: tuple[TokenizedText, ...]
    roles: tuple[str, ...]
    offsets: tuple[int, ...]
    span_values: tuple[str, ...]
    span_canonical: tuple[str, ...]
    stems: tuple[str, ...]
    is_quoted: npt.NDArray[np.bool_]
    stands_out: npt.NDArray[np.bool_]
    places: Mapping[str, Sequence[int]]
    said: Mapping[str, str]
    word_features: Hashes
    near_features: Hashes
    folded: FoldedText
    stem_set: frozenset[str]

    def features(self) -> TextFeatures:
        """The arrays without the texts, which training would keep in memory otherwise."""
        return TextFeatures(
            self.start_features,
            self.end_features,
            self.first,
            self.last,
            self.span_type,
            self.type_features,
            self.span_part,
        )

    @property
    def query(self) -> TokenizedText:
        """The query's own tokens."""
        return self.parts[0]

    def neighbour(self, token: int, distance: int) -> str:
        """The word so many tokens from a token, in its own text."""
        part = 0
        while self.offsets[part + 1] <= token:
            part += 1
        return self.parts[part].word(token - self.offsets[part] + distance)

    def word_at(self, token: int) -> str:
        """A token in lower case."""
        return self.neighbour(token, 0)

    def head(self, token: int) -> str:
        """The verb, or other word that is not a name, before a token."""
        part = 0
        while self.offsets[part + 1] <= token:
            part += 1
        return self.parts[part].heads[token - self.offsets[part]]


def read_texts(query: str, before: Iterable[Message | ToolCall] = ()) -> RunTexts:
    """The texts of a run."""
    messages = [item for item in before if isinstance(item, Message)][-MAX_MESSAGES:]
    return _read_texts(
        (query, *(item.content for item in reversed(messages))),
        ("query", *(item.role for item in reversed(messages))),
    )


@lru_cache(maxsize=64)
def _read_texts(texts: tuple[str, ...], roles: tuple[str, ...]) -> RunTexts:
    parts = tuple(map(tokenize, texts))
    offsets = np.cumsum([0, *(len(part.tokens) for part in parts)])
    columns: list[list[Any]] = [[] for _ in range(8)]
    types = 0
    values: list[str] = []
    compared: list[str] = []
    for number, (part, role) in enumerate(zip(parts, roles, strict=True)):
        name = "query" if number == 0 else f"{role} {min(number, 3)}"
        role_column = np.full((len(part.tokens), 1), feature(f"role {name}"), np.uint32)
        keep = np.ones(len(part.first), np.bool_)
        if number:
            keep = part.last - part.first < MAX_EARLIER_SPAN
        columns[0].append(np.concatenate([part.start_features, role_column], axis=1))
        columns[1].append(np.concatenate([part.end_features, role_column ^ np.uint32(1)], axis=1))
        columns[2].append(part.first[keep] + np.int32(offsets[number]))
        columns[3].append(part.last[keep] + np.int32(offsets[number]))
        columns[4].append(part.span_type[keep] + np.int32(types))
        columns[5].append(part.type_features)
        columns[6].append(np.full(int(keep.sum()), number, np.int32))
        columns[7].append(part.stands_out[keep])
        types += len(part.type_features)
        kept = np.flatnonzero(keep).tolist()
        values += [part.values[index] for index in kept]
        compared += [part.canonical[index] for index in kept]
    start, end, first, last, span_type, type_features, span_part, stands_out = map(
        np.concatenate, columns
    )
    places: dict[str, list[int]] = defaultdict(list)
    said: dict[str, str] = {}
    for place, (form, number) in enumerate(zip(compared, span_part.tolist(), strict=True)):
        places[form].append(place)
        said.setdefault(form, roles[number] if number < 3 else f"{roles[number]} earlier")
    stems = tuple(stem for part in parts for stem in part.stems)
    words = dict.fromkeys(word for word in parts[0].lower if word[0].isalnum())
    return RunTexts(
        start,
        end,
        first,
        last,
        span_type,
        type_features,
        span_part,
        parts,
        roles,
        tuple(offsets.tolist()),
        tuple(values),
        tuple(compared),
        stems,
        np.concatenate([part.is_quoted for part in parts]),
        stands_out,
        dict(places),
        said,
        features([f"w {word}" for word in words]),
        features([f"near {stem}" for stem in stems]),
        FoldedText(token for part in parts for token in part.tokens),
        frozenset(stems),
    )


def forget_texts() -> None:
    """Forget the texts that were read last, so that the next one is read anew."""
    tokenize.cache_clear()
    _read_texts.cache_clear()


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
