"""The values that a slot of a call may take: where each comes from, and its features.

A slot is a parameter, a field of an object in it (``trip/city``) or an item of a list (``ids/*``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.constants import ANY_TOOL, MAX_CONSTANTS, Constants
from dtdr.predict.arguments.features import (
    FLAGS,
    LAST_USED,
    USAGE,
    argument_features,
    constant_features,
    distances,
    leaf_features,
    output_features,
    relation_rows,
    span_usage,
)
from dtdr.predict.arguments.hashing import (
    KIND_LEVELS,
    Block,
    Hashes,
    Rows,
    feature,
    features,
    parameter_keys,
)
from dtdr.predict.arguments.prediction import Source
from dtdr.predict.arguments.state import (
    GROUP,
    ITEM,
    KIND,
    MOST_PARTS,
    RECORD,
    RunState,
    rank_in_groups,
)
from dtdr.predict.arguments.texts import RunTexts, name_stems, telling_words
from dtdr.predict.arguments.values import canonical, read_dates

UNKNOWN, OMITTED, LIST, OBJECT = "\x00unknown", "\x00omitted", "\x00list", "\x00object"
"""Forms of what is not a value: none known, no argument (of a list: no further item), a list and an
object that are put together part by part."""
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
_AROUND_SALT = np.uint32(feature(AROUND))
_PLAIN = (UNKNOWN, OMITTED, LIST, OBJECT)
_PLAIN_ROWS = Rows.of_table(features([form[1:].strip() for form in _PLAIN])[:, None])


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
class Candidates:
    """The c candidates of one slot: m spans of the texts, then others.

    Attributes:
        state: what is known before the call.
        keys: what features are joined with; shape (3,).
        spans: m.
        kinds: names of the kinds of values.
        kind: of each candidate, a position in ``kinds``; shape (c,).
        values, sources, forms: of the others; ``forms`` are canonical.
        blocks: the rows of features of the candidates.
        outputs, around, arguments, leaves: where these are among the others.
        type: JSON-schema type of the values that demonstrations gave; empty where there are none.
        dates: spans that say a date in words, and the date, where the slot takes dates.
    """

    tool: str
    slot: str
    state: RunState
    keys: Hashes
    spans: int
    kinds: list[str]
    kind: npt.NDArray[np.int64]
    values: list[Any]
    sources: list[Source]
    forms: list[str]
    blocks: list[Block]
    outputs: slice
    around: slice
    arguments: slice
    leaves: slice
    type: str
    dates: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.kind)

    def targets(self, forms: Collection[str]) -> npt.NDArray[np.int64]:
        """Positions of the candidates of some forms; of ``unknown`` where there is none."""
        places: list[int] = []
        if self.spans:
            places += [place for form in forms for place in self.state.texts.places.get(form, ())]
            places += [place for place, date in self.dates.items() if date in forms]
        places += [self.spans + place for place, other in enumerate(self.forms) if other in forms]
        return np.array(places or [self.unknown], np.int64)

    @property
    def unknown(self) -> int:
        """The position of the candidate that says that none is right."""
        return self.spans + self.forms.index(UNKNOWN)

    def read(self, place: int) -> tuple[str, Any]:
        """The canonical form of a candidate, as the slot takes it, and its value."""
        texts = self.state.texts
        if place < self.spans:
            form = self.dates.get(place) or texts.span_canonical[place]
            return form, texts.span_values[place]
        return self.forms[place - self.spans], self.values[place - self.spans]

    def source(self, place: int) -> Source:
        """Where a candidate comes from."""
        if place >= self.spans:
            return self.sources[place - self.spans]
        texts = self.state.texts
        part = int(texts.span_part[place])
        text = texts.parts[part]
        start = text.starts[int(texts.first[place]) - texts.offsets[part]]
        end = text.ends[int(texts.last[place]) - texts.offsets[part]]
        return Source("message" if part else "query", "", "", (start, end))

    def label(self, form: str, tools: Iterator[str] | Sequence[str] = ()) -> str:
        """A short name of a decision, which later slots of the call see."""
        if form in self.forms:
            kind = self.kinds[self.kind[self.spans + self.forms.index(form)]]
            return f"{self.slot}={kind[:40]}"
        return f"{self.slot}=span {' '.join(tools)}"

    def add(
        self,
        values: Sequence[Any],
        forms: Sequence[str],
        sources: Sequence[Source],
        kinds: Sequence[str],
        kind: npt.NDArray[np.int64],
        rows: Rows | None = None,
        codes: npt.NDArray[np.int64] | None = None,
    ) -> slice:
        """Further candidates: their kinds as positions in ``kinds``, and the row of each."""
        first = len(self.values)
        if rows is not None:
            every = np.arange(len(values)) if codes is None else codes
            self.blocks.append(Block(rows, len(self.kind), every))
        self.kind = np.concatenate([self.kind, kind + len(self.kinds)])
        self.values += values
        self.forms += forms
        self.sources += sources
        self.kinds += kinds
        return slice(first, len(self.values))

    def with_blocks(self, blocks: Sequence[Block], context: Hashes) -> Candidates:
        """These candidates with more rows, and more context, which decides between kinds; (k,)."""
        kinds = features([f"kind {name}" for name in self.kinds])
        crossed = Rows.of_table(kinds[:, None] ^ context, KIND_LEVELS)
        return replace(self, blocks=[*self.blocks, *blocks, Block(crossed, 0, self.kind)])


@lru_cache(maxsize=64)
def _dates_of(texts: RunTexts) -> Mapping[int, str]:
    return read_dates(texts.span_values, texts.first.tolist(), texts.last.tolist())


def _find_mention(texts: RunTexts, form: str) -> str:
    """Whether texts say a constant ``whole``, in ``part``, or ``no``."""
    if form in texts.said:
        return "whole"
    return "no" if texts.stem_set.isdisjoint(telling_words(form)) else "part"


class _GivenValue(NamedTuple):
    """An argument of an earlier call.

    Attributes:
        place: of the call.
        ago: see ``argument_features``.
    """

    place: int
    call: str
    tool: str
    name: str
    value: Any
    form: str
    ago: int


class _Earlier:
    """What the calls of a run offer, whatever the tool and slot.

    Attributes:
        values, sources, forms: of the n parts of outputs, those of the last calls first.
        form_ids: see ``OutputParts``; shape (n,).
        groups, records: the same, separately for each call; shape (n,).
        calls: the place of the call of each; shape (n,).
        mentions: a code of how much was said of its record, see ``FLAGS``; shape (n,).
        kind_codes: of the kinds of parts, with their age and use.
        kind_row: of each part, a position there; shape (n,).
    """

    def __init__(self, state: RunState, paths: Mapping[str, Sequence[str]]) -> None:
        self.values: list[Any] = []
        self.sources: list[Source] = []
        self.forms: list[str] = []
        tables, shares = [np.zeros((0, 6), np.int64)], [np.zeros((0, 2))]
        counts, calls = [], state.calls
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
            self.values += parts.values[:room]
            self.forms += parts.forms[:room]
            self.sources += parts.sources[:room]
            counts.append(min(room, len(parts.values)))
            tables.append(parts.numbers[:room])
            shares.append(parts.mentions[:room])
        ago = np.repeat(np.arange(1, len(counts) + 1), counts)
        self.calls = len(calls) - ago
        numbers, mentions = np.concatenate(tables), np.concatenate(shares)
        # Groups and records of several calls differ, and kinds by their age.
        numbers[:, [GROUP, RECORD]] += MOST_PARTS * self.calls[:, None]
        numbers[:, KIND] = 10 * numbers[:, KIND] + 2 * np.minimum(ago, 4)
        self.form_ids, kinds, self.groups, *rest = numbers.T
        self.place_in_group, self.records, lists = rest
        is_used = np.zeros(len(state.numbers) + 1, np.int64)
        for past in calls:
            for form in past.forms.values():
                is_used[state.numbers.get(form, -1)] = 1
        is_used[-1] = 0
        self.kind_codes, self.kind_row = np.unique(
            kinds + is_used[self.form_ids], return_inverse=True
        )
        late, every = rank_in_groups(mentions[:, 0], lists), rank_in_groups(mentions[:, 1], lists)
        self.mentions = late + 3 * every
        self.arguments: list[_GivenValue] = []
        self.given_to: dict[int, list[int]] = {}
        seen: set[str] = set()
        for place in range(len(calls) - 1, -1, -1):
            past = calls[place]
            call = past.call
            age = min(len(calls) - place, 4) + 5 * past.is_earlier
            for name in past.plain:
                value, form = past.arguments[name], past.forms[name]
                self.given_to.setdefault(state.number(form), []).append(place)
                if form not in seen and len(self.arguments) < MAX_ARGUMENTS:
                    seen.add(form)
                    given = _GivenValue(place, call.id, call.tool, name, value, form, age)
                    self.arguments.append(given)


class CallCandidates:
    """The candidates of the slots of one call; what they share is computed once.

    Args:
        state: what is known before the call.
        tool: that is called.
        constants: what demonstrations show of its slots.
    """

    def __init__(self, state: RunState, tool: str, constants: Constants) -> None:
        self.state = state
        self.tool = tool
        self._constants = constants

    def find(self, slot: str, decided: Decided = NOTHING_DECIDED, number: int = 0) -> Candidates:
        """The candidates of a slot.

        Args:
            slot: to be filled.
            decided: of this call.
            number: of the item of a list that the slot is, or is in.
        """
        state, texts = self.state, self.state.texts
        key = (self._constants, self.tool, slot)
        if key not in state.step_memo:
            state.step_memo[key] = self._find(slot)
        found: Candidates = state.step_memo[key]
        last = decided.spans[-1][1] if decided.spans else state.last_token
        blocks: list[Block] = []
        has_free_quotation = False
        if found.spans:
            usage, has_free_quotation = span_usage(state, self.tool, slot, decided.spans)
            own = state.spans.get((self.tool, slot)) or state.spans.get(("", slot), ())
            origins = own[-1][1] if own else -1, last
            distance = 10 * distances(texts.first, origins[0]) + distances(texts.first, origins[1])
            blocks += [Block(USAGE, 0, usage), Block(LAST_USED, 0, distance)]
        if state.calls:
            blocks += self._relate(found, decided, number)
        more = [f"decided {label}" for label in dict.fromkeys(decided.labels)]
        more += [
            f"decided last {decided.labels[-1] if decided.labels else ''}",
            f"free quotation {has_free_quotation}",
        ]
        if slot.endswith(ITEM):
            following = texts.neighbour(last, 1) if number and last >= 0 else ""
            more += [f"items {min(number, 5)}", f"items then {following}"]
        return found.with_blocks(blocks, features(more))

    def _find(self, slot: str) -> Candidates:
        """The candidates of a slot, with the features that no decision changes."""
        state, tool, texts = self.state, self.tool, self.state.texts
        is_spanless = (tool, slot) in self._constants.without_spans
        is_mentioned = not texts.stem_set.isdisjoint(name_stems(slot))
        mentioned = features([f"mentioned {is_mentioned}"])
        kind = self._constants.types.get((tool, slot), "")
        nothing = slice(0, 0)
        result = Candidates(
            tool,
            slot,
            state,
            parameter_keys(tool, slot),
            0 if is_spanless else len(texts.first),
            ["span", "message span"] if len(texts.parts) > 1 else ["span"],
            np.zeros(0, np.int64) if is_spanless else np.minimum(texts.span_part, 1),
            *([], [], [], []),
            *(nothing, nothing, nothing, nothing),
            kind,
            _dates_of(texts) if kind == "date" and not is_spanless else {},
        )
        if not is_spanless:
            result.blocks += [
                Block(texts.starts, 0, texts.start_row),
                Block(texts.ends, 0, texts.end_row),
                Block(texts.types, 0, texts.span_type),
            ]
        self._add_plain(result)
        self._add_constants(result)
        if state.calls:
            if (tool, slot) not in self._constants.without_outputs:
                self._add_outputs(result)
            self._add_arguments(result)
            self._add_leaves(result)
        context = np.concatenate([texts.word_features, self._called, mentioned])
        return result.with_blocks([], context)

    def _add_plain(self, found: Candidates) -> None:
        """What is no value, and what is put together part by part."""
        constants, key = self._constants, (self.tool, found.slot)
        forms = [UNKNOWN, OMITTED]
        forms += [LIST] * (key in constants.lists) + [OBJECT] * (key in constants.fields)
        kinds, codes = [form[1:] for form in forms], [*map(_PLAIN.index, forms)]
        nothing, sources = [None] * len(forms), [Source("unknown"), Source("omitted")]
        sources += [Source("unknown")] * (len(forms) - 2)
        found.add(
            nothing, forms, sources, kinds, np.arange(len(forms)), _PLAIN_ROWS, np.array(codes)
        )

    def _add_constants(self, found: Candidates) -> None:
        """The constants of the slot, and those of all slots of its name."""
        key = (self.tool, found.slot)
        own = self._constants.values.get(key, ())
        known = {form for form, _ in own}
        name = found.slot.removesuffix("/*").rpartition("/")[2]
        shared = self._constants.values.get((ANY_TOOL, name), ())
        items = [*own, *(item for item in shared if item[0] not in known)][:MAX_CONSTANTS]
        if not items:
            return
        given = Counter(self.state.values.get(key, ()))
        parts = []
        for place, (form, _) in enumerate(items):
            is_own = place < len(own)
            rank = min(place if is_own else place - len(own), 4)
            said = _find_mention(self.state.texts, form)
            parts.append(constant_features(said, rank, is_own, min(given[form], 2)))
        forms, every = [form for form, _ in items], np.arange(len(items))
        values, sources = [value for _, value in items], [Source("constant")] * len(items)
        kinds = [f"constant {form}" for form in forms]
        found.add(values, forms, sources, kinds, every, Rows.of(parts), every)

    def _add_outputs(self, found: Candidates) -> None:
        """Whole outputs, and texts to be written around them."""
        calls = [past.call for past in self.state.calls[-MAX_OUTPUTS:]]
        values = [{"$ref": call.id} for call in calls]
        forms = list(map(canonical, values))
        sources = [Source("output", call.id) for call in calls]
        names = list(dict.fromkeys(call.tool for call in calls))
        kind = np.array([names.index(call.tool) for call in calls])
        found.outputs = found.add(
            values, forms, sources, [f"output {name}" for name in names], kind
        )
        if (self.tool, found.slot) in self._constants.composed:
            forms = [AROUND + form for form in forms]
            kinds = [f"around {name}" for name in names]
            found.around = found.add([None] * len(calls), forms, sources, kinds, kind)

    def _add_arguments(self, found: Candidates) -> None:
        """What earlier calls were given."""
        earlier, tool, slot = self._earlier, self.tool, found.slot
        given = Counter(self.state.values.get((tool, slot), ()))
        parts = []
        for one in earlier.arguments:
            uses, is_same = min(given[one.form], 2), one.tool == tool
            parts.append(argument_features(one.tool, one.name, one.ago, uses, is_same, slot))
        found.arguments = found.add(
            [one.value for one in earlier.arguments],
            [one.form for one in earlier.arguments],
            [Source("argument", one.call, one.name) for one in earlier.arguments],
            ["argument"],
            np.zeros(len(parts), np.int64),
            Rows.of(parts),
            np.arange(len(parts)),
        )

    def _add_leaves(self, found: Candidates) -> None:
        """Parts of outputs."""
        earlier, names = self._earlier, list(self.state.kinds)
        parts = [
            leaf_features(names[code // 10], code % 10 // 2, bool(code % 2), found.slot)
            for code in earlier.kind_codes.tolist()
        ]
        kind = np.zeros(len(earlier.values), np.int64)
        columns = earlier.values, earlier.forms, earlier.sources, ["leaf"]
        found.leaves = found.add(*columns, kind, Rows.of(parts), earlier.kind_row)

    def _relate(self, found: Candidates, decided: Decided, number: int) -> Iterator[Block]:
        """How outputs, their parts and earlier arguments relate to what was decided."""
        state, earlier = self.state, self._earlier
        if found.outputs.stop:
            calls = [past.call for past in state.calls[-MAX_OUTPUTS:]]
            parts = output_features(state, calls, self.tool, found.slot, decided.taken)
            every = np.arange(len(calls))
            yield Block(Rows.of(parts), found.spans + found.outputs.start, every)
            if found.around.stop:
                around = Rows.of([part ^ _AROUND_SALT for part in parts])
                yield Block(around, found.spans + found.around.start, every)
        first = found.spans + found.leaves.start
        if earlier.values:
            yield Block(FLAGS, first, self._flags(found.slot, decided))
        if not decided.values:
            return
        rows, of_leaves, of_calls = _relation(earlier, state, decided, number)
        if len(rows.lengths):
            yield Block(rows, first, of_leaves)
            places = [one.place for one in earlier.arguments]
            yield Block(rows, found.spans + found.arguments.start, of_calls[places])

    def _flags(self, slot: str, decided: Decided) -> npt.NDArray[np.int64]:
        """Feature codes of each part of an output, see ``FLAGS``; shape (n,)."""
        earlier, state = self._earlier, self.state
        forms = [*state.values.get((self.tool, slot), ())]
        forms += [form for name, _, form in decided.values if name == slot]
        count = len(earlier.values)
        is_form = np.zeros(len(state.numbers) + len(forms), np.int64)
        is_form[[state.number(form) for form in forms]] = 1
        is_given = is_form[earlier.form_ids]
        follows = np.zeros(count, np.int64)
        if is_given.any():
            places = MAX_LEAVES * earlier.groups + earlier.place_in_group
            last = earlier.form_ids == state.number(forms[-1])
            follows = np.isin(places, places[last] + 1).astype(np.int64)
        left = np.flatnonzero(is_given == 0)
        first = np.full(MOST_PARTS * len(state.calls), -1)
        first[earlier.groups[left[::-1]]] = left[::-1]
        is_first = first[earlier.groups] == np.arange(count)
        codes: npt.NDArray[np.int64] = is_given + 2 * is_first + 4 * follows + 8 * earlier.mentions
        return codes

    @cached_property
    def _earlier(self) -> _Earlier:
        memo = self.state.step_memo
        key = (_Earlier, self._constants)
        if key not in memo:
            memo[key] = _Earlier(self.state, self._constants.paths)
        earlier: _Earlier = memo[key]
        return earlier

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


def _relation(
    earlier: _Earlier, state: RunState, decided: Decided, number: int
) -> tuple[Rows, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How parts of outputs and arguments relate to the records of the values decided last.

    Returns:
        Rows of features, none if nothing that was decided is in an output; the row of each
        part of an output; and that of each call's arguments.
    """
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
        same = np.flatnonzero(earlier.form_ids == form_id)
        given = earlier.given_to.get(form_id, ())
        if not given and not len(same):
            continue
        in_call = np.zeros(calls, np.int64)
        in_call[earlier.calls[same]] = 1
        in_call[list(given)] = 1
        in_record = np.zeros(MOST_PARTS * calls, np.int64)
        in_record[earlier.records[same]] = 1
        leaf_codes = 3 * leaf_codes + in_call[earlier.calls] + in_record[earlier.records]
        call_codes = 3 * call_codes + in_call
        names.append(label)
    return relation_rows(tuple(names)), leaf_codes, call_codes
