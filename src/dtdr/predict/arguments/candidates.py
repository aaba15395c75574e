"""The values that a slot of a call may take: where each comes from, and its features.

A slot is a parameter, a field of an object in it (``trip/city``) or an item of a list (``ids/*``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.constants import ANY_TOOL, MAX_CONSTANTS, Constants
from dtdr.predict.arguments.features import (
    FLAGS,
    LAST_USED,
    POOLED,
    USAGE,
    constant_features,
    distances,
    part_features,
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
    FORM,
    ITEM,
    WHOLE,
    RunState,
    rank_in_groups,
)
from dtdr.predict.arguments.texts import RunTexts, name_stems, telling_words
from dtdr.predict.arguments.values import read_dates

UNKNOWN, OMITTED, LIST, OBJECT = "\x00unknown", "\x00omitted", "\x00list", "\x00object"
"""Forms of what is not a value: none known, no argument (of a list: no further item), a list and an
object that are put together part by part."""
AROUND = "\x00around"
"""Of a text or object that has to be written around outputs: this, and their references' forms."""
MAX_PARTS = 400
"""Parts of earlier calls that may be an argument, those of the last calls."""
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
        spans: of the texts that these took.
    """

    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, int, str], ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    def add(
        self, candidates: Candidates, form: str, number: int, span: tuple[int, int] | None
    ) -> Decided:
        """One more decision, by the canonical form of the value."""
        is_value = not form.startswith("\x00")
        return Decided(
            (*self.labels, candidates.label(form)),
            (*self.values, (candidates.slot, number, form)) if is_value else self.values,
            self.spans if span is None else (*self.spans, span),
        )


NOTHING_DECIDED = Decided()


@dataclass(slots=True, eq=False)
class Candidates:
    """The c candidates of one slot: m spans of the texts, then others.

    Attributes:
        state: what is known before the call.
        keys: what features are joined with; shape (3,).
        type: JSON-schema type of the values that demonstrations gave; empty where there are none.
        spans: m.
        kind: of each candidate, a position in ``kinds``; shape (c,).
        kinds: names of the kinds of values.
        dates: spans that say a date in words, and the date, where the slot takes dates.
        values, sources, forms: of the others; ``forms`` are canonical.
        blocks: the rows of features of the candidates.
        parts: the first part of an earlier call.
    """

    slot: str
    state: RunState
    keys: Hashes
    type: str
    spans: int
    kind: npt.NDArray[np.int64]
    kinds: list[str]
    dates: Mapping[int, str]
    values: list[Any] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    parts: int = 0

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
            date = self.dates.get(place)
            return date or texts.span_canonical[place], date or texts.span_values[place]
        return self.forms[place - self.spans], self.values[place - self.spans]

    def source(self, place: int) -> Source:
        """Where a candidate comes from."""
        if place >= self.spans:
            return self.sources[place - self.spans]
        return self.state.texts.source(place)

    def label(self, form: str) -> str:
        """A short name of a decision, which later slots of the call see."""
        kind = "span"
        if form in self.forms:
            kind = self.kinds[self.kind[self.spans + self.forms.index(form)]]
        return f"{self.slot}={kind[:40]}"

    def add(
        self,
        values: Sequence[Any],
        forms: Sequence[str],
        sources: Sequence[Source],
        kinds: Sequence[str],
        kind: npt.NDArray[np.int64],
        rows: Rows,
        codes: npt.NDArray[np.int64],
    ) -> None:
        """Further candidates: their kinds as positions in ``kinds``, and the row of each."""
        self.blocks.append(Block(rows, len(self.kind), codes))
        self.kind = np.concatenate([self.kind, kind + len(self.kinds)])
        self.values += values
        self.forms += forms
        self.sources += sources
        self.kinds += kinds

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


class _Known:
    """The n parts of earlier calls, whatever the tool and slot, in their order.

    Attributes:
        values, sources, forms: of the parts.
        form_ids, groups, records: see ``CallParts``; shape (n,).
        calls: the place of the call of each; shape (n,).
        before: the form before each in its list, -1 for the first; shape (n,).
        mentions: a code of how much was said of its record, see ``FLAGS``; shape (n,).
        pooled: the same of all records with a value of the form; shape (n,).
        kind_codes: of the kinds of parts, with their age and use.
        kind_row: of each part, a position there; shape (n,).
    """

    def __init__(self, state: RunState, paths: Mapping[str, Sequence[str]]) -> None:
        room, taken = MAX_PARTS, []
        for past in reversed(state.calls):
            parts, learned = past.parts, paths.get(past.call.tool)
            if past.call.output is None and learned:
                parts = state.read_parts(past.call, past.arguments, learned)
            taken.append((parts, min(room, len(parts.values))))
            room -= taken[-1][1]
            if not room:
                break
        taken.reverse()
        numbers = np.concatenate([parts.numbers[:count] for parts, count in taken])
        ago = np.repeat(np.arange(len(taken), 0, -1), [count for _, count in taken])
        # Of a value that was given several times the last one counts.
        given = np.concatenate([np.arange(count) < parts.given for parts, count in taken])
        places = np.flatnonzero(given)[::-1]
        keep = ~given
        keep[places[np.unique(numbers[places, FORM], return_index=True)[1]]] = True

        def join(name: str) -> list[Any]:
            every = (item for parts, count in taken for item in getattr(parts, name)[:count])
            return list(compress(every, keep.tolist()))

        self.values, self.forms, self.sources = map(join, ("values", "forms", "sources"))
        mentions = np.concatenate([parts.mentions[:count] for parts, count in taken])[keep]
        numbers, ago = numbers[keep], ago[keep]
        self.calls = len(state.calls) - ago
        self.form_ids, kinds, self.groups, self.records, lists = numbers.T
        is_used = np.zeros(len(state.numbers), np.int64)
        for past in state.calls:
            used, whole = past.parts.numbers[:, FORM], past.parts.given
            is_used[used[:whole]] = 1
            is_used[used[whole]] = past.call.id in state.uses
        self.kind_codes, self.kind_row = np.unique(
            10 * kinds + 2 * np.minimum(ago, 4) + is_used[self.form_ids], return_inverse=True
        )
        order = np.argsort(self.groups, kind="stable")
        self.before = np.full(len(order), -1)
        follows = self.groups[order][1:] == self.groups[order][:-1]
        self.before[order[1:][follows]] = self.form_ids[order[:-1][follows]]
        late, every = rank_in_groups(mentions[:, 0], lists), rank_in_groups(mentions[:, 1], lists)
        self.mentions = late + 3 * every
        pooled = np.zeros((2, len(state.numbers)), np.int64)
        np.maximum.at(pooled[0], self.form_ids, late)
        np.maximum.at(pooled[1], self.form_ids, every)
        self.pooled = pooled[0, self.form_ids] + 3 * pooled[1, self.form_ids]


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
            blocks.append(Block(FLAGS, found.parts, self._flags(slot, decided)))
            rows, codes = _relation(self._known, state, decided, number)
            if len(rows.lengths):
                blocks.append(Block(rows, found.parts, codes))
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
        tool, texts, about = self.tool, self.state.texts, self._constants.slot(self.tool, slot)
        spans = len(texts.first) if about.has_texts else 0
        result = Candidates(
            slot,
            self.state,
            parameter_keys(tool, slot),
            about.type,
            spans,
            np.minimum(texts.span_part[:spans], 1),
            ["span", "message span"] if len(texts.parts) > 1 else ["span"],
            _dates_of(texts) if spans and about.type == "date" else {},
        )
        if spans:
            result.blocks += [
                Block(texts.starts, 0, texts.start_row),
                Block(texts.ends, 0, texts.end_row),
                Block(texts.types, 0, texts.span_type),
            ]
        self._add_plain(result)
        self._add_constants(result)
        if self.state.calls:
            self._add_parts(result)
        mentioned = features([f"mentioned {not texts.stem_set.isdisjoint(name_stems(slot))}"])
        return result.with_blocks(
            [], np.concatenate([texts.word_features, self._called, mentioned])
        )

    def _add_plain(self, found: Candidates) -> None:
        """What is no value, and what is put together part by part."""
        about = self._constants.slot(self.tool, found.slot)
        forms = [UNKNOWN, OMITTED, *[LIST] * about.is_list, *[OBJECT] * bool(about.fields)]
        kinds, codes = [form[1:] for form in forms], [*map(_PLAIN.index, forms)]
        nothing, sources = [None] * len(forms), [Source("unknown"), Source("omitted")]
        sources += [Source("unknown")] * (len(forms) - 2)
        found.add(
            nothing, forms, sources, kinds, np.arange(len(forms)), _PLAIN_ROWS, np.array(codes)
        )

    def _add_constants(self, found: Candidates) -> None:
        """The constants of the slot, and those of all slots of its name."""
        own = self._constants.slot(self.tool, found.slot).values
        known = {form for form, _ in own}
        name = found.slot.removesuffix("/*").rpartition("/")[2]
        shared = self._constants.slot(ANY_TOOL, name).values
        items = [*own, *(item for item in shared if item[0] not in known)][:MAX_CONSTANTS]
        if not items:
            return
        given = Counter(self.state.values.get((self.tool, found.slot), ()))
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

    def _add_parts(self, found: Candidates) -> None:
        """Whole outputs, texts to be written around them, and parts of earlier calls."""
        known, kinds = self._known, list(self.state.kinds)
        own = [(kinds[code // 10], code % 10) for code in known.kind_codes.tolist()]
        rows = [
            part_features(kind, code // 2, bool(code % 2), self.tool, found.slot)
            for kind, code in own
        ]
        names = [f"output {kind.tool}" if kind.pattern == WHOLE else "part" for kind, _ in own]
        labels = list(dict.fromkeys(names))
        kind_of = np.array([labels.index(name) for name in names], np.int64)[known.kind_row]
        found.parts = len(found)
        columns = known.values, known.forms, known.sources, labels, kind_of
        found.add(*columns, Rows.of(rows), known.kind_row)
        found.blocks.append(Block(POOLED, found.parts, known.pooled))
        if self._constants.slot(self.tool, found.slot).is_composed:
            is_whole = np.array([kind.pattern == WHOLE for kind, _ in own])[known.kind_row]
            whole = np.flatnonzero(is_whole)
            found.add(
                [None] * len(whole),
                [AROUND + known.forms[place] for place in whole],
                [known.sources[place] for place in whole],
                [f"around {label}" for label in labels],
                kind_of[whole],
                Rows.of([row ^ _AROUND_SALT for row in rows]),
                known.kind_row[whole],
            )

    def _flags(self, slot: str, decided: Decided) -> npt.NDArray[np.int64]:
        """Feature codes of each part of an earlier call, see ``FLAGS``; shape (n,)."""
        known, state = self._known, self.state
        forms = [*state.values.get((self.tool, slot), ())]
        forms += [form for name, _, form in decided.values if name == slot]
        ids = [state.number(form) for form in forms]
        is_form = np.zeros(len(state.numbers), np.int64)
        is_form[ids] = 1
        is_given = is_form[known.form_ids]
        follows = (known.before == ids[-1]) if ids else np.zeros(len(is_given), np.bool_)
        left = np.flatnonzero(is_given == 0)
        first = np.full(len(state.numbers), -1)
        first[known.groups[left[::-1]]] = left[::-1]
        is_first = first[known.groups] == np.arange(len(is_given))
        codes: npt.NDArray[np.int64] = is_given + 2 * is_first + 4 * follows + 8 * known.mentions
        return codes

    @cached_property
    def _known(self) -> _Known:
        memo = self.state.step_memo
        key = (_Known, self._constants)
        if key not in memo:
            memo[key] = _Known(self.state, self._constants.paths)
        known: _Known = memo[key]
        return known

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
    known: _Known, state: RunState, decided: Decided, number: int
) -> tuple[Rows, npt.NDArray[np.int64]]:
    """How parts of earlier calls relate to the records of the values decided last.

    Returns:
        Rows of features, none if nothing that was decided is in an earlier call; and the row of
        each part.
    """
    codes = np.zeros(len(known.values), np.int64)
    names: list[str] = []
    # No two of one name, those decided last first.
    for name, item, form in reversed(decided.values):
        label = name if item == number else f"previous {name}"
        if label in names or len(names) >= _RELATED:
            continue
        same = np.flatnonzero(known.form_ids == state.number(form))
        if not len(same):
            continue
        in_call = np.zeros(len(state.calls), np.int64)
        in_call[known.calls[same]] = 1
        in_record = np.zeros(len(state.numbers), np.int64)
        in_record[known.records[same]] = 1
        codes = 3 * codes + in_call[known.calls] + in_record[known.records]
        names.append(label)
    return relation_rows(tuple(names)), codes
