"""The values that a slot of a call may take: where each comes from, and what is known of it.

A slot is a parameter, a field of an object in it (``trip/city``), an item of a list (``ids/*``) or
a value in a text of learned words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import iter_references
from dtdr.predict.arguments.constants import ANY_TOOL, MAX_CONSTANTS, Constants
from dtdr.predict.arguments.features import (
    LAST_USED,
    USAGE,
    Mention,
    argument_features,
    constant_features,
    find_mention,
    flag_features,
    last_used,
    leaf_features,
    output_features,
    relation_features,
    span_usage,
    token_columns,
    use_features,
)
from dtdr.predict.arguments.hashing import Hashes, feature, features, parameter_keys
from dtdr.predict.arguments.prediction import Source
from dtdr.predict.arguments.state import ITEM, RunState
from dtdr.predict.arguments.templates import template_form
from dtdr.predict.arguments.texts import NO_SPANS, RunTexts, TextFeatures, name_stems
from dtdr.predict.arguments.values import canonical, read_dates, shape_of

OMITTED, LIST, UNKNOWN = "\x00omitted", "\x00list", "\x00unknown"
"""Forms of what is not a value: no argument (of a list: no further item), a list, none known."""
OBJECT, TEMPLATE = "\x00object", "\x00template "
"""Of what is put together part by part: an object, and a text by its template."""
AROUND = "\x00around"
"""Of a text or object that has to be written around outputs: this, and their references' forms."""
MAX_OUTPUTS = 60
"""Calls whose whole output may be referred to, the last ones."""
MAX_LEAVES = 400
"""Parts of outputs that may be an argument, those of the last calls."""
MAX_ARGUMENTS = 20
"""Earlier arguments that may be repeated, those of the last calls."""
_RELATED = 3
"""Values decided last whose records a part of an output is compared with."""
_MAX_VIEWS = 200
"""Tools as seen from which a run's texts are kept, 10 KB each for a query of 40 words."""
_AROUND_SALT, _PLAIN = np.uint32(feature(AROUND)), np.uint32(0)
_UNKNOWN_SOURCE, _CONSTANT_SOURCE = Source("unknown"), Source("constant")
_PLAIN_ROWS = {
    name: features([name]) for name in ("unknown", "omitted", "list", "object", "template")
}
_JOINING = frozenset(",&\"'“”‘’") | {"and", "or", "the"}
_NO_ROW = -1
_FIRST = np.zeros(1, np.int64)
_NONE = slice(0, 0)


class Decided(NamedTuple):
    """What was decided of a call so far.

    Attributes:
        labels: names of the decisions.
        values: slot, number in its list, and canonical form of each value.
        taken: the calls whose whole outputs these use.
        spans: of the texts that these took.
    """

    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, int, str], ...] = ()
    taken: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    def add(
        self,
        candidates: Candidates,
        form: str,
        number: int,
        used_calls: Sequence[str],
        span: tuple[int, int] | None,
    ) -> Decided:
        """One more decision, by the canonical form of the value."""
        tools = (candidates.state.by_id[one].tool for one in used_calls)
        values = self.values
        if not form.startswith("\x00"):
            values = (*values, (candidates.slot, number, form))
        return Decided(
            (*self.labels, candidates.label(form, tools)),
            values,
            (*self.taken, *used_calls),
            self.spans if span is None else (*self.spans, span),
        )


NOTHING_DECIDED = Decided()


@dataclass(slots=True, eq=False)
class TextView:
    """The texts of a run as seen from a slot of a tool, whatever was called so far.

    Attributes:
        texts: of the run.
        spans: of the texts, those that the slot may take: all of them, or none.
        keys: what features are joined with; shape (3,).
        columns: of tokens that begin a span, positions in ``COLUMNS``; shape (s, 2).
        context: what decides between kinds of values; shape (c,).
        is_mentioned: whether a word of the slot's name stands in the texts.
        scores: what a ranker computed from it; a ranker's own.
    """

    texts: RunTexts
    spans: TextFeatures
    keys: Hashes
    columns: npt.NDArray[np.uint8]
    context: Hashes
    is_mentioned: bool
    scores: Any = None


@dataclass(slots=True, eq=False)
class SlotTable:
    """What is known of the candidates of a slot whatever was decided of the call.

    Attributes:
        kinds: names of the kinds of values.
        context: what decides between kinds, besides the view's; shape (c,).
        parts: features of each row.
        rows: the row of each of m spans and o others, -1 where it has none; shape (m + o,).
        kind: of each candidate, a position in ``kinds``; shape (m + o,).
        values, sources, forms: of the others; ``forms`` are canonical.
        outputs, around, arguments, leaves: where these are among the others.
        scores: what a ranker computed from it; a ranker's own.
    """

    kinds: list[str]
    context: Hashes
    parts: list[Hashes]
    rows: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    values: list[Any]
    sources: list[Source]
    forms: list[str]
    outputs: slice
    around: slice
    arguments: slice
    leaves: slice
    scores: Any = None


@dataclass(slots=True, eq=False)
class Candidates:
    """The candidates of one slot: m spans of the texts, then o others.

    Attributes:
        state: what is known before the call.
        view: what is known of the spans whatever was called.
        table: what is known whatever was decided of this call.
        context: what decides between kinds, besides the view's and the table's; shape (d,).
        parts: features of further rows.
        rows: two further rows of each candidate, -1 where it has fewer; shape (m + o, 2).
        dates: spans that say a date in words, and the date, where the slot takes dates.
        type: JSON-schema type of the values that demonstrations gave; empty where there are none.
    """

    tool: str
    slot: str
    state: RunState
    view: TextView
    table: SlotTable
    context: Hashes
    parts: list[Hashes]
    rows: npt.NDArray[np.int64]
    dates: Mapping[int, str]
    type: str

    @property
    def values(self) -> list[Any]:
        """Of the others."""
        return self.table.values

    @property
    def sources(self) -> list[Source]:
        """Of the others."""
        return self.table.sources

    @property
    def forms(self) -> list[str]:
        """Canonical forms of the others."""
        return self.table.forms

    @property
    def spans(self) -> int:
        """How many spans."""
        return len(self.table.kind) - len(self.forms)

    def targets(self, forms: Collection[str]) -> npt.NDArray[np.int64]:
        """Positions of the candidates of some forms; of ``unknown`` where there is none."""
        spans = self.spans
        places: list[int] = []
        if spans:
            places += [place for form in forms for place in self.view.texts.places.get(form, ())]
            places += [place for place, date in self.dates.items() if date in forms]
        places += [spans + place for place, other in enumerate(self.forms) if other in forms]
        return np.array(places or [spans + self.forms.index(UNKNOWN)], np.int64)

    def has(self, form: str) -> bool:
        """Whether a value stands somewhere in the run, or is a constant."""
        return form in self.view.texts.places or form in self.forms or form in self.dates.values()

    def span_form(self, place: int) -> str:
        """The canonical form of a span's value, as the slot takes it."""
        return self.dates.get(place) or self.view.texts.span_canonical[place]

    def span_source(self, place: int) -> Source:
        """Where a span stands."""
        texts = self.view.texts
        part = int(texts.span_part[place])
        text = texts.parts[part]
        start = text.starts[int(texts.first[place]) - texts.offsets[part]]
        end = text.ends[int(texts.last[place]) - texts.offsets[part]]
        return Source("message" if part else "query", "", "", (start, end))

    def label(self, form: str, tools: Iterator[str] | Sequence[str] = ()) -> str:
        """A short name of a decision, which later slots of the call see."""
        name = self.slot.partition("\x00")[0]
        if form in self.forms:
            kind = self.table.kinds[self.table.kind[self.spans + self.forms.index(form)]]
            return f"{name}={kind[:40]}"
        return f"{name}=span {' '.join(tools)}"


class CandidateFinder:
    """Finds candidates with what was learned from demonstrations.

    Args:
        constants: values of slots.
        without_spans: tools and slots that never take what a text says.
    """

    def __init__(
        self, constants: Constants, without_spans: Collection[tuple[str, str]] = ()
    ) -> None:
        self.constants = constants
        self.without_spans = frozenset(without_spans)

    def call(self, state: RunState, tool: str) -> CallCandidates:
        """The candidates of the slots of a call of a tool."""
        return CallCandidates(state, tool, self)

    def views(self, state: RunState, tool: str) -> dict[str, TextView]:
        """The texts of a run as seen from slots of a tool, as far as they were asked for."""
        memo, key = state.memo, (self, tool)
        if key not in memo:
            for oldest in list(memo)[: len(memo) - _MAX_VIEWS + 1]:
                memo.pop(oldest, None)
            memo[key] = {}
        views: dict[str, TextView] = memo[key]
        return views


@lru_cache(maxsize=64)
def _dates_of(texts: RunTexts) -> Mapping[int, str]:
    return read_dates(texts.span_values, texts.first.tolist(), texts.last.tolist())


class _Collector:
    """Candidates that are no spans, as they are collected."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.values: list[Any] = []
        self.sources: list[Source] = []
        self.forms: list[str] = []
        self.kinds = list(kinds)
        self.parts: list[Hashes] = []
        self.rows: list[npt.NDArray[np.int64]] = []
        self.kind: list[npt.NDArray[np.int64]] = []

    def add(self, value: Any, form: str, source: Source, row: Hashes, kind: str) -> None:
        """One more candidate, of a kind of its own."""
        self.add_many([value], [form], [source], [row], _FIRST, [kind], _FIRST)

    def add_many(
        self,
        values: Sequence[Any],
        forms: Sequence[str],
        sources: Sequence[Source],
        parts: Sequence[Hashes],
        rows: npt.NDArray[np.int64],
        kinds: Sequence[str],
        kind: npt.NDArray[np.int64],
    ) -> slice:
        """Further candidates, with rows as positions in ``parts`` and kinds in ``kinds``."""
        first = len(self.values)
        self.values += values
        self.forms += forms
        self.sources += sources
        self.rows.append(rows + len(self.parts))
        self.kind.append(kind + len(self.kinds))
        self.parts += parts
        self.kinds += kinds
        return slice(first, len(self.values))


class _Earlier:
    """What the calls of a run offer, whatever the tool and slot.

    Attributes:
        values, sources, forms: of the n parts of outputs, those of the last calls first.
        form_ids, records: of each, see ``OutputParts``; shape (n,).
        calls: the place of the call of each; shape (n,).
        mentions: a code of how much was said of its record, see ``flag_features``; shape (n,).
    """

    def __init__(self, state: RunState, paths: Mapping[str, Sequence[str]]) -> None:
        self.values: list[Any] = []
        self.sources: list[Source] = []
        self.forms: list[str] = []
        columns: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(6)]
        calls = state.calls
        mentions = [np.zeros((0, 2))]
        for place in range(len(calls) - 1, -1, -1):
            room = MAX_LEAVES - len(self.values)
            if room <= 0:
                break
            past = calls[place]
            identifier, parts = past.call.id, past.parts
            if parts is None:
                pointers = paths.get(past.call.tool, ())
                found = [(path, {"$ref": identifier, "path": path}) for path in pointers]
                parts = state.read_parts(past.call, found)
            count = min(room, len(parts.values))
            self.values += parts.values[:count]
            self.forms += parts.forms[:count]
            self.sources += parts.sources[:count]
            columns[0].append(parts.form_ids[:count])
            columns[1].append(10 * parts.kinds[:count] + 2 * min(len(calls) - place, 4))
            columns[2].append(parts.patterns[:count] + (place << 32))
            columns[3].append(parts.records[:count] + (place << 32))
            columns[4].append(parts.lists[:count])
            columns[5].append(np.full(count, place))
            mentions.append(parts.mentions[:count])
        none = [np.zeros(0, np.int64)]
        self.form_ids, kinds, patterns, self.records, lists, self.calls = (
            np.concatenate(none + part) for part in columns
        )
        is_used = np.zeros(len(state.numbers) + 1, np.int64)
        for past in calls:
            for form in past.forms.values():
                is_used[state.numbers.get(form, -1)] = 1
        is_used[-1] = 0
        kinds += is_used[self.form_ids]
        self.kind_codes, self.kind_row = np.unique(kinds, return_inverse=True)
        _, lists = np.unique(lists, return_inverse=True)
        _, lists_of_calls = np.unique(1000 * self.calls + lists, return_inverse=True)
        shares = np.concatenate(mentions)
        self.mentions = (
            _rank_in_groups(shares[:, 0], lists)
            + 3 * _rank_in_groups(shares[:, 1], lists)
            + 9 * _rank_in_groups(shares[:, 1], lists_of_calls)
        )
        _, self.groups = np.unique(patterns, return_inverse=True)
        self.place_in_group = _places_in_groups(self.groups)
        self.arguments: list[tuple[str, str, Any, str, str, int, int, str, int]] = []
        self.given_to: dict[int, list[int]] = {}
        self.calls_of: Counter[str] = Counter()
        ranks = []
        for past in calls:
            ranks.append(self.calls_of[past.call.tool])
            self.calls_of[past.call.tool] += 1
        seen: set[str] = set()
        for place in range(len(calls) - 1, -1, -1):
            past = calls[place]
            ago = min(len(calls) - place, 4) + 5 * past.is_earlier
            for name, value in past.arguments.items():
                form = past.forms[name]
                if value is None or value == "" or isinstance(value, bool) or _refers(value):
                    continue
                self.given_to.setdefault(state.number(form), []).append(place)
                if form not in seen and len(self.arguments) < MAX_ARGUMENTS:
                    seen.add(form)
                    told = (past.call.tool, name, value, form, past.call.id)
                    self.arguments.append((*told, ago, ranks[place], shape_of(value), place))


def _places_in_groups(groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The place of each of n among those of its group; shape (n,)."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    is_start = np.ones(len(groups), np.bool_)
    is_start[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(is_start)
    lengths = np.diff(np.append(starts, len(groups)))
    result = np.empty(len(groups), np.int64)
    result[order] = np.arange(len(groups)) - np.repeat(starts, lengths)
    return result


def _rank_in_groups(
    scores: npt.NDArray[np.float64], groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """2 for the highest score of its group, 1 for a lower one, 0 for none; shape (n,)."""
    highest = np.zeros(int(groups.max(initial=-1)) + 1)
    np.maximum.at(highest, groups, scores)
    result: npt.NDArray[np.int64] = (scores > 0) * 1 + ((scores > 0) & (scores >= highest[groups]))
    return result


def _refers(value: Any) -> bool:
    if isinstance(value, Mapping) and "$join" in value:
        return True
    return next(iter_references(value), None) is not None


class CallCandidates:
    """The candidates of the slots of one call; what they share is computed once."""

    def __init__(self, state: RunState, tool: str, finder: CandidateFinder) -> None:
        self.state = state
        self.tool = tool
        self._finder = finder
        self._constants = finder.constants
        self._views = finder.views(state, tool)
        self._mentions: dict[str, Mention] = {}

    def views(self, slots: Sequence[str]) -> list[TextView]:
        """The texts as seen from slots."""
        return list(map(self._slot_view, slots))

    def _slot_view(self, slot: str) -> TextView:
        if slot not in self._views:
            texts, tool = self.state.texts, self.tool
            spans = NO_SPANS if (tool, slot) in self._finder.without_spans else texts
            columns, is_mentioned = token_columns(texts, name_stems(slot.partition("\x00")[0]))
            keys, context = parameter_keys(tool, slot), texts.word_features
            columns = columns[: len(spans.start_tokens)]
            self._views[slot] = TextView(texts, spans, keys, columns, context, is_mentioned)
        return self._views[slot]

    def find(self, slot: str, decided: Decided = NOTHING_DECIDED, number: int = 0) -> Candidates:
        """The candidates of a slot.

        Args:
            slot: to be filled.
            decided: of this call.
            number: of the item of a list that the slot is, or is in.
        """
        state, tool, texts = self.state, self.tool, self.state.texts
        view = self._slot_view(slot)
        table = self._slot_table(slot)
        last_own, last = self._last_tokens(slot, decided)
        spans, first = len(view.spans.first), len(table.parts)
        parts: list[Hashes] = []
        rows = np.full((len(table.kind), 2), _NO_ROW, np.int64)
        has_free_quotation = False
        if spans:
            usage, has_free_quotation = span_usage(state, tool, slot, decided.spans)
            distance = last_used(len(texts.stems), last_own, last)[texts.first]
            coded = ((usage, USAGE), (distance, LAST_USED[:, None]))
            for column, (codes, names) in enumerate(coded):
                is_there = np.bincount(codes, minlength=len(names)) > 0
                rows[:spans, column] = (np.cumsum(is_there) - 1 + first + len(parts))[codes]
                parts += [*names[is_there]]
        others = rows[spans:]
        is_joined = False
        if state.calls:
            calls = [past.call for past in state.calls[-MAX_OUTPUTS:]]
            joined = self._find_joined(decided)
            uses = use_features(state, calls, tool, slot, decided.taken, joined)
            for place, salt in ((table.outputs, _PLAIN), (table.around, _AROUND_SALT)):
                others[place, 0] = np.arange(place.stop - place.start) + first + len(parts)
                if place.stop > place.start:
                    parts += [use ^ salt for use in uses]
            earlier = self._earlier
            if earlier.values:
                flags, flag = np.unique(self._flags(slot, decided), return_inverse=True)
                others[table.leaves, 0] = flag + first + len(parts)
                parts += map(flag_features, flags.tolist())
            relation = _Relation(earlier, state, decided, number) if decided.values else None
            if relation is not None and relation.parts:
                others[table.leaves, 1] = relation.of_leaves + first + len(parts)
                places = [row[-1] for row in earlier.arguments]
                others[table.arguments, 1] = relation.of_calls[places] + first + len(parts)
                parts += relation.parts
            is_joined = not joined.issubset(decided.taken)
        more = [f"decided {label}" for label in dict.fromkeys(decided.labels)]
        more += [
            f"decided last {decided.labels[-1] if decided.labels else ''}",
            f"free quotation {has_free_quotation}",
        ]
        if slot.endswith(ITEM):
            following = texts.neighbour(last, 1) if number and last >= 0 else ""
            more += [f"items {min(number, 5)}", f"items then {following}"]
            more += [f"left {self._count_left(slot, decided)}", f"joined {is_joined}"]
        kind = self._constants.types.get((tool, slot), "")
        dates = _dates_of(texts) if kind == "date" and spans else {}
        return Candidates(tool, slot, state, view, table, features(more), parts, rows, dates, kind)

    def _slot_table(self, slot: str) -> SlotTable:
        memo = self.state.step_memo
        key = (self._finder, self.tool, slot)
        if key not in memo:
            memo[key] = self._find_others(slot)
        table: SlotTable = memo[key]
        return table

    def _find_others(self, slot: str) -> SlotTable:
        """All candidates but the spans."""
        texts, view = self.state.texts, self._slot_view(slot)
        found = _Collector(["span", "message span"] if len(texts.parts) > 1 else ["span"])
        found.add(None, UNKNOWN, _UNKNOWN_SOURCE, _PLAIN_ROWS["unknown"], "unknown")
        found.add(None, OMITTED, Source("omitted"), _PLAIN_ROWS["omitted"], "omitted")
        self._add_composed(found, slot)
        self._add_constants(found, slot)
        outputs = around = arguments = leaves = _NONE
        if self.state.calls:
            outputs, around = self._add_outputs(found, slot)
            arguments = self._add_arguments(found, slot)
            leaves = self._add_leaves(found, slot)
        span_part = view.spans.span_part
        return SlotTable(
            found.kinds,
            np.concatenate([self._called, features([f"mentioned {view.is_mentioned}"])]),
            found.parts,
            np.concatenate([np.full(len(span_part), _NO_ROW), *found.rows]),
            np.concatenate([np.minimum(span_part, 1).astype(np.int64), *found.kind]),
            found.values,
            found.sources,
            found.forms,
            outputs,
            around,
            arguments,
            leaves,
        )

    def _last_tokens(self, slot: str, decided: Decided) -> tuple[int, int]:
        """The last tokens of the spans that the slot, and any slot, took last; -1 without one."""
        state = self.state
        own = state.spans.get((self.tool, slot)) or state.spans.get(("", slot), ())
        last_own = own[-1][1] if own else -1
        last = decided.spans[-1][1] if decided.spans else state.last_token
        if slot.endswith(ITEM) and decided.spans and decided.values[-1][0] == slot:
            last_own = last
        return last_own, last

    def _add_composed(self, table: _Collector, slot: str) -> None:
        """What is put together part by part."""
        constants, key = self._constants, (self.tool, slot)
        if key in constants.lists:
            table.add(None, LIST, _UNKNOWN_SOURCE, _PLAIN_ROWS["list"], "list")
        if key in constants.fields:
            table.add(None, OBJECT, _UNKNOWN_SOURCE, _PLAIN_ROWS["object"], "object")
        for template in constants.templates.get(key, ()):
            form = TEMPLATE + template_form(template)
            table.add(None, form, _UNKNOWN_SOURCE, _PLAIN_ROWS["template"], form)

    def _add_constants(self, table: _Collector, slot: str) -> None:
        """The constants of the slot, and those of all slots of its name."""
        own_values = self._constants.values.get((self.tool, slot), ())
        known = {form for form, _ in own_values}
        named = self._constants.values.get(
            (ANY_TOOL, slot.removesuffix("/*").rpartition("/")[2]), ()
        )
        shared = [item for item in named if item[0] not in known]
        given = Counter(self.state.values.get((self.tool, slot), ()))
        for place, (form, value) in enumerate([*own_values, *shared][:MAX_CONSTANTS]):
            is_own = place < len(own_values)
            rank = min(place if is_own else place - len(own_values), 4)
            row = constant_features(self._mention(form), rank, is_own, min(given[form], 2))
            table.add(value, form, _CONSTANT_SOURCE, row, f"constant {form}")

    def _mention(self, form: str) -> Mention:
        """How the texts say a constant."""
        texts, memo = self.state.texts, self._mentions
        if form not in memo:
            memo[form] = find_mention(texts, form, self._used_tokens)
        return memo[form]

    def _add_outputs(self, table: _Collector, slot: str) -> tuple[slice, slice]:
        """Whole outputs, and texts to be written around them."""
        values, forms, sources, names, kind = self._references
        rows = np.arange(len(values))
        kinds = [f"output {name}" for name in names]
        outputs = table.add_many(values, forms, sources, self._outputs, rows, kinds, kind)
        if (self.tool, slot) not in self._constants.composed:
            return outputs, _NONE
        forms = [AROUND + form for form in forms]
        parts = [row ^ _AROUND_SALT for row in self._outputs]
        kinds = [f"around {name}" for name in names]
        nothing = [None] * len(values)
        return outputs, table.add_many(nothing, forms, sources, parts, rows, kinds, kind)

    def _add_arguments(self, table: _Collector, slot: str) -> slice:
        """What earlier calls were given."""
        earlier, tool = self._earlier, self.tool
        given = Counter(self.state.values.get((tool, slot), ()))
        parts = []
        for name, other, _, form, _, ago, rank, shape, _ in earlier.arguments:
            lag = rank - earlier.calls_of[tool]
            lag = lag if abs(lag) < 4 else 9
            uses = min(given[form], 2)
            parts.append(argument_features(name, other, ago, lag, uses, name == tool, slot, shape))
        return table.add_many(
            [row[2] for row in earlier.arguments],
            [row[3] for row in earlier.arguments],
            [Source("argument", row[4], row[1]) for row in earlier.arguments],
            parts,
            np.arange(len(parts)),
            ["argument"],
            np.zeros(len(parts), np.int64),
        )

    def _add_leaves(self, table: _Collector, slot: str) -> slice:
        """Parts of outputs."""
        earlier, names = self._earlier, list(self.state.kinds)
        parts = [
            leaf_features(names[code // 10], code % 10 // 2, bool(code % 2), slot)
            for code in earlier.kind_codes.tolist()
        ]
        kind = np.zeros(len(earlier.values), np.int64)
        rows = earlier.kind_row
        values, forms, sources = earlier.values, earlier.forms, earlier.sources
        return table.add_many(values, forms, sources, parts, rows, ["leaf"], kind)

    def _flags(self, slot: str, decided: Decided) -> npt.NDArray[np.int64]:
        """Codes of what is known of each part of an output, see ``flag_features``; shape (n,)."""
        earlier, state = self._earlier, self.state
        forms = [*state.values.get((self.tool, slot), ())]
        forms += [form for name, _, form in decided.values if name == slot]
        count = len(earlier.values)
        is_given = np.zeros(count, np.int64)
        follows = np.zeros(count, np.int64)
        for form in dict.fromkeys(forms):
            same = earlier.form_ids == state.number(form)
            is_given |= same
        if forms:
            last = earlier.form_ids == state.number(forms[-1])
            for place in np.flatnonzero(last).tolist():
                follows |= (earlier.groups == earlier.groups[place]) & (
                    earlier.place_in_group == earlier.place_in_group[place] + 1
                )
        left = np.flatnonzero(is_given == 0)
        first = np.full(count + 1, -1)
        first[earlier.groups[left[::-1]]] = left[::-1]
        is_first = first[earlier.groups] == np.arange(count)
        codes: npt.NDArray[np.int64] = is_given + 2 * is_first + 4 * follows + 8 * earlier.mentions
        return codes

    def _find_joined(self, decided: Decided) -> frozenset[str]:
        """The calls whose names follow that of the one taken last after commas and ``and``."""
        anchors = {past.call.id: past.anchor for past in self.state.calls}
        last = anchors.get(decided.taken[-1]) if decided.taken else None
        if last is None:
            return frozenset()
        texts, end = self.state.texts, last[1] + 1
        while end < len(texts.stems) and texts.word_at(end) in _JOINING:
            end += 1
        return frozenset(
            name for name, place in anchors.items() if place and last[1] < place[0] <= end
        )

    def _count_left(self, slot: str, decided: Decided) -> str:
        """How many parts are left of the list that the last item came from."""
        own = [form for name, _, form in decided.values if name.startswith(slot)]
        if not own or not self.state.calls:
            return ""
        earlier = self._earlier
        same = np.flatnonzero(earlier.form_ids == self.state.number(own[-1]))
        if not len(same):
            return "none"
        place = same[0]
        size = int((earlier.groups == earlier.groups[place]).sum())
        return str(min(size - 1 - int(earlier.place_in_group[place]), 3))

    @cached_property
    def _used_tokens(self) -> frozenset[int]:
        """Tokens that arguments took."""
        spans = self.state.spans.get(("", ""), ())
        return frozenset(token for first, last in spans for token in range(first, last + 1))

    @cached_property
    def _earlier(self) -> _Earlier:
        memo = self.state.step_memo
        key = (_Earlier, self._finder)
        if key not in memo:
            memo[key] = _Earlier(self.state, self._constants.paths)
        earlier: _Earlier = memo[key]
        return earlier

    @cached_property
    def _references(
        self,
    ) -> tuple[list[Any], list[str], list[Source], list[str], npt.NDArray[np.int64]]:
        """Whole outputs: values, forms, sources, the names of tools, and of each its name."""
        calls = [past.call for past in self.state.calls[-MAX_OUTPUTS:]]
        values = [{"$ref": call.id} for call in calls]
        names = list(dict.fromkeys(call.tool for call in calls))
        kind = np.array([names.index(call.tool) for call in calls])
        sources = [Source("output", call.id) for call in calls]
        return values, list(map(canonical, values)), sources, names, kind

    @cached_property
    def _outputs(self) -> list[Hashes]:
        return output_features(self.state, MAX_OUTPUTS)

    @cached_property
    def _called(self) -> Hashes:
        """The tools called so far."""
        state, tool = self.state, self.tool
        current = [past.call.tool for past in state.calls if not past.is_earlier]
        called = sorted({past.call.tool for past in state.calls})
        unused = sorted(
            {past.call.tool for past in state.calls if not state.uses.get(past.call.id)}
        )
        return features(
            [
                *(f"called {name}" for name in called),
                *(f"unused {name}" for name in unused),
                "always",
                f"last {current[-1] if current else '^'}",
                f"same {min(current.count(tool), 4)}",
                f"calls {min(len(current), 8)}",
            ]
        )


class _Relation:
    """How parts of outputs and arguments stand to the records of the values decided last.

    Attributes:
        parts: features of the rows; none where nothing that was decided stands in an output.
        of_leaves, of_calls: the row of each part of an output, and of each call's arguments.
    """

    def __init__(self, earlier: _Earlier, state: RunState, decided: Decided, number: int) -> None:
        calls = len(state.calls)
        leaf_codes = np.zeros(len(earlier.values), np.int64)
        call_codes = np.zeros(calls, np.int64)
        names: list[str] = []
        # No two of one name, those decided last first.
        for name, item, form in reversed(decided.values):
            label = name if item == number else f"previous {name}"
            if label in names or len(names) >= _RELATED:
                continue
            form_id = state.number(form)
            same = earlier.form_ids == form_id
            given = earlier.given_to.get(form_id, ())
            if not given and not same.any():
                continue
            in_call = np.zeros(calls, np.int64)
            in_call[earlier.calls[same]] = 1
            in_call[list(given)] = 1
            in_record = np.isin(earlier.records, earlier.records[same])
            leaf_codes = 3 * leaf_codes + in_call[earlier.calls] + in_record
            call_codes = 3 * call_codes + in_call
            names.append(label)
        distinct, place = np.unique(np.r_[leaf_codes, call_codes], return_inverse=True)
        self.of_leaves, self.of_calls = np.split(place, [len(leaf_codes)])
        self.parts: list[Hashes] = []
        if names:
            self.parts = [relation_features(tuple(names), code) for code in distinct.tolist()]
