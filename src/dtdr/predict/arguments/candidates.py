"""The values that a slot of a call may take: where each comes from, and its features.

A slot is a parameter, a field of an object in it (``trip/city``) or an item of a list (``ids/*``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.constants import ANY_TOOL, MAX_CONSTANTS, Constants
from dtdr.predict.arguments.features import (
    FLAGS,
    TAKEN,
    constant_features,
    part_features,
    relation_rows,
    span_blocks,
)
from dtdr.predict.arguments.prediction import ValueSource
from dtdr.predict.arguments.state import ITEM, WHOLE, RunState, ValuePart
from dtdr.predict.arguments.texts import hash_spans, name_stems, read_dates, telling_words
from dtdr.predict.arguments.value_ranker import (
    KIND_LEVELS,
    CandidateBlock,
    Hashes,
    Rows,
    feature,
    features,
    parameter_keys,
)
from dtdr.predict.arguments.values import canonical

UNKNOWN, OMITTED, LIST, OBJECT = "\x00unknown", "\x00omitted", "\x00list", "\x00object"
"""Forms of what is not a value: none known, no argument (of a list: no further item), a list and an
object that are put together part by part."""
AROUND = "\x00around"
"""Mark of a text or object to be written around outputs, before their references' forms."""
MAX_PARTS = 400
"""Parts of earlier calls that may be an argument, those of the last calls."""
_RELATED = 3
"""Values decided last whose records a part of an output is compared with."""
_AROUND_SALT = np.uint32(feature(AROUND))
_PLAIN = tuple(
    ValuePart(None, form, ValueSource("omitted" if form == OMITTED else "unknown"))
    for form in (UNKNOWN, OMITTED, LIST, OBJECT)
)
_PLAIN_ROWS = Rows.of([features([option.form[1:]]) for option in _PLAIN])


@dataclass(slots=True, eq=False)
class Candidates:
    """The c candidates of one slot: m spans of the texts, then others.

    Attributes:
        state: what is known before the call.
        keys: what features are joined with; shape (3,).
        type: JSON-schema type of the values that demonstrations gave; empty where there are none.
        spans: m.
        dates: spans that say a date in words, and the date, where the slot takes dates.
        context: features that decide between kinds of values, whatever was decided; shape (k,).
        kinds: names of the kinds of values.
        kind: of each candidate, a position there; shape (c,).
        others: the candidates that are no spans; the first says that none is right.
        blocks: the rows of features of the candidates.
        context: features of the run that decide between kinds; shape (k,).
        parts: the first part of an earlier call.
    """

    slot: str
    state: RunState
    keys: Hashes
    type: str
    spans: int
    dates: Mapping[int, str]
    context: Hashes
    kinds: list[str]
    kind: npt.NDArray[np.int64]
    others: list[ValuePart] = field(default_factory=list)
    blocks: list[CandidateBlock] = field(default_factory=list)
    parts: int = 0

    def __len__(self) -> int:
        return len(self.kind)

    def find(self, form: str) -> int | None:
        """The position of the first other candidate of a form."""
        for position, option in enumerate(self.others, self.spans):
            if option.form == form:
                return position
        return None

    def targets(self, forms: Collection[str]) -> npt.NDArray[np.int64]:
        """Positions of the candidates of some forms; of ``unknown`` where there is none."""
        places: list[int] = []
        if self.spans:
            places += [
                position for form in forms for position in self.state.texts.places.get(form, ())
            ]
            places += [position for position, date in self.dates.items() if date in forms]
        others = enumerate(self.others, self.spans)
        places += [position for position, option in others if option.form in forms]
        return np.array(places or [self.spans], np.int64)

    def read(self, place: int) -> ValuePart:
        """The value of a candidate, as the slot takes it, its form, and its source."""
        if place >= self.spans:
            return self.others[place - self.spans]
        texts, date = self.state.texts, self.dates.get(place)
        value, form = (date, date) if date else (texts.values[place], texts.forms[place])
        return ValuePart(value, form, texts.source(place))

    def add(
        self,
        options: Sequence[ValuePart],
        kinds: Sequence[str],
        kind: npt.NDArray[np.int64],
        rows: Rows,
        codes: npt.NDArray[np.int64],
    ) -> None:
        """Further candidates: their kinds as positions in ``kinds``, and the row of each."""
        self.blocks.append(CandidateBlock(rows, len(self.kind), codes))
        self.kind = np.concatenate([self.kind, kind + len(self.kinds)])
        self.others += options
        self.kinds += kinds


class _Known:
    """The n parts of earlier calls, whatever the tool and slot, in their order.

    Attributes:
        parts: n of them.
        calls: the place of the call of each; shape (n,).
        form_ids, groups, records: see ``ValuePart.numbers``; shape (n,).
        before: the form before each in its list, -1 for the first; shape (n,).
        mentions: a code of how much was said of its record, see ``FLAGS``; shape (n,).
        kinds: of parts, each with a code of its age and use.
        kind_row: of each part, a position there; shape (n,).
        labels: what decides between kinds of values tells apart.
        label: of each part, a position there; shape (n,).
        whole: the parts that are whole outputs.
    """

    def __init__(self, state: RunState, constants: Constants) -> None:
        taken: list[tuple[int, ValuePart]] = []
        room, given = MAX_PARTS, set[str]()
        for index, past in reversed([*enumerate(state.calls)]):
            parts, learned = past.parts, constants.slot(past.call.tool, "").fields
            if past.call.output is None and learned:
                parts = state.read_parts(past.call, past.arguments, learned)
            for part in reversed(parts[:room]):
                if part.source.kind == "argument":
                    if part.form in given:
                        continue  # Of a value that was given several times the last one counts.
                    given.add(part.form)
                taken.append((index, part))
            room = max(0, room - len(parts))
        taken.reverse()
        self.parts = [part for _, part in taken]
        self.calls = np.array([index for index, _ in taken])
        numbers = np.array([part.numbers for part in self.parts])
        self.form_ids, kind_ids, self.groups, self.records, lists = numbers.T
        used = given | {canonical({"$ref": call}) for call in state.used}
        is_used = np.array([part.form in used for part in self.parts])
        ago = np.minimum(len(state.calls) - self.calls, 4)
        codes, self.kind_row = np.unique(10 * kind_ids + 2 * ago + is_used, return_inverse=True)
        known = list(state.kinds)
        self.kinds = [(known[code // 10], code % 10) for code in codes.tolist()]
        is_whole = np.array([kind.pattern == WHOLE for kind, _ in self.kinds])
        self.whole = np.flatnonzero(is_whole[self.kind_row])
        names = [
            f"output {kind.tool}" if kind.pattern == WHOLE else "part" for kind, _ in self.kinds
        ]
        self.labels = list(dict.fromkeys(names))
        self.label = np.array([self.labels.index(name) for name in names])[self.kind_row]
        order = np.argsort(self.groups, kind="stable")
        self.before = np.full(len(order), -1)
        follows = self.groups[order][1:] == self.groups[order][:-1]
        self.before[order[1:][follows]] = self.form_ids[order[:-1][follows]]
        mentions = np.array([part.mentions for part in self.parts])
        late, every = (_rank_in_groups(scores, lists) for scores in mentions.T)
        self.mentions = late + 3 * every


def _is_among(
    numbers: npt.NDArray[np.int64], some: npt.NDArray[np.int64] | list[int], count: int
) -> npt.NDArray[np.bool_]:
    """Which of n numbers below a count are among some; shape (n,)."""
    table = np.zeros(count, np.bool_)
    table[some] = True
    return table[numbers]


def _rank_in_groups(
    scores: npt.NDArray[np.float64], groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """2 for the highest score of its group, 1 for a lower one, 0 for none; shape (n,)."""
    highest = np.zeros(int(groups.max()) + 1)
    np.maximum.at(highest, groups, scores)
    return (scores > 0) * 1 + ((scores > 0) & (scores >= highest[groups]))


class CallCandidates:
    """The candidates of the slots of one call, each with what was decided before it.

    Args:
        state: what is known before the call.
        tool: that is called.
        constants: what demonstrations show of its slots.
        group: of the run, if the constants have counted it.

    Attributes:
        spans: of the texts, that decisions took.
    """

    def __init__(
        self, state: RunState, tool: str, constants: Constants, group: int | None = None
    ) -> None:
        self.state = state
        self.tool = tool
        self.spans: list[tuple[int, int]] = []
        self.constants = constants
        self._group = group
        self._labels: list[str] = []
        self._values: list[tuple[str, int, str]] = []

    def decide(
        self, found: Candidates, form: str, number: int, span: tuple[int, int] | None
    ) -> None:
        """Take note of a decision, by the canonical form of the value and the span it took."""
        position = found.find(form)
        kind = "span" if position is None else found.kinds[found.kind[position]]
        self._labels.append(f"{found.slot}={kind[:40]}")
        if not form.startswith("\x00"):
            self._values.append((found.slot, number, form))
        if span is not None:
            self.spans.append(span)

    def find(self, slot: str, number: int = 0) -> Candidates:
        """The candidates of a slot, which may be, or be in, an item of a list of this number."""
        state, texts = self.state, self.state.texts
        key = (self.constants, self.tool, slot)
        if key not in state.step_memo:
            state.step_memo[key] = self._find(slot)
        found: Candidates = state.step_memo[key]
        last = self.spans[-1][1] if self.spans else state.last_token
        blocks: list[CandidateBlock] = []
        if found.spans:
            blocks += span_blocks(state, self.tool, slot, self.spans, last)
        if state.calls:
            blocks.append(CandidateBlock(FLAGS, found.parts, self._flags(slot)))
            blocks += self._relation(number, found.parts)
        more = [f"decided {label}" for label in dict.fromkeys(self._labels)]
        more.append(f"decided last {self._labels[-1] if self._labels else ''}")
        if slot.endswith(ITEM):
            following = texts.lower[last + 1] if number and last >= 0 else ""
            more += [f"items {min(number, 5)}", f"items then {following}"]
        kinds = features([f"kind {name}" for name in found.kinds])
        context = np.concatenate([found.context, features(more)])
        blocks.append(CandidateBlock(Rows.of(kinds[:, None] ^ context, KIND_LEVELS), 0, found.kind))
        return replace(found, blocks=[*found.blocks, *blocks])

    def _find(self, slot: str) -> Candidates:
        """The candidates of a slot, with the features that no decision changes."""
        state, tool, texts = self.state, self.tool, self.state.texts
        about = self.constants.slot(tool, slot)
        spans = len(texts.first) if about.has_texts else 0
        dates = read_dates(texts) if spans and about.type == "date" else {}
        names, kind = ["span", "message span"][: len(texts.parts)], texts.span_part[:spans] > 0
        keys = parameter_keys(tool, slot)
        mentioned = features([f"mentioned {not texts.stems.isdisjoint(name_stems(slot))}"])
        context = np.concatenate([texts.word_features, self._called, mentioned])
        result = Candidates(slot, state, keys, about.type, spans, dates, context, names, kind * 1)
        if spans:
            hashes, name = hash_spans(texts), slot.removesuffix("/*").rpartition("/")[2]
            own = self.constants.is_taken(tool, slot, hashes, self._group)
            shared = self.constants.is_taken(ANY_TOOL, name, hashes, self._group)
            result.blocks += [*texts.blocks, CandidateBlock(TAKEN, 0, 2 * own + shared)]
        # What is no value, and what is put together part by part.
        codes = np.array([0, 1, *[2] * about.is_list, *[3] * bool(about.fields)])
        options = [_PLAIN[code] for code in codes.tolist()]
        plain = [option.form[1:] for option in options]
        result.add(options, plain, np.arange(len(options)), _PLAIN_ROWS, codes)
        self._add_constants(result)
        if state.calls:
            self._add_parts(result)
        return result

    def _add_constants(self, found: Candidates) -> None:
        """The constants of the slot, and those of all slots of its name."""
        own = self.constants.slot(self.tool, found.slot).values
        known = {form for form, _ in own}
        name = found.slot.removesuffix("/*").rpartition("/")[2]
        shared = self.constants.slot(ANY_TOOL, name).values
        items = [*own, *(item for item in shared if item[0] not in known)][:MAX_CONSTANTS]
        given = Counter(self.state.values.get((self.tool, found.slot), ()))
        texts, parts = self.state.texts, []
        for position, (form, _) in enumerate(items):
            is_own = position < len(own)
            rank = min(position if is_own else position - len(own), 4)
            said = "no" if texts.stems.isdisjoint(telling_words(form)) else "part"
            said = "whole" if form in texts.said else said
            parts.append(constant_features(said, rank, is_own, min(given[form], 2)))
        options = [ValuePart(value, form, ValueSource("constant")) for form, value in items]
        kinds, every = [f"constant {form}" for form, _ in items], np.arange(len(items))
        found.add(options, kinds, every, Rows.of(parts), every)

    def _add_parts(self, found: Candidates) -> None:
        """Whole outputs, texts to be written around them, and parts of earlier calls."""
        known = self._known
        rows = [
            part_features(kind, code // 2, bool(code % 2), self.tool, found.slot)
            for kind, code in known.kinds
        ]
        found.parts = len(found)
        found.add(known.parts, known.labels, known.label, Rows.of(rows), known.kind_row)
        if self.constants.slot(self.tool, found.slot).is_composed:
            whole = known.whole
            parts = [known.parts[position] for position in whole.tolist()]
            around = [ValuePart(None, AROUND + part.form, part.source) for part in parts]
            labels = [f"around {label}" for label in known.labels]
            of_around = Rows.of([row ^ _AROUND_SALT for row in rows])
            found.add(around, labels, known.label[whole], of_around, known.kind_row[whole])

    def _flags(self, slot: str) -> npt.NDArray[np.int64]:
        """Feature codes of each part of an earlier call, see ``FLAGS``; shape (n,)."""
        known, state = self._known, self.state
        forms = [*state.values.get((self.tool, slot), ())]
        forms += [form for name, _, form in self._values if name == slot]
        ids = [state.number(form) for form in forms]
        is_given = _is_among(known.form_ids, ids, len(state.numbers))
        follows = known.before == (ids[-1] if ids else -2)
        left = np.flatnonzero(~is_given)[::-1]
        first = np.full(len(state.numbers), -1)
        first[known.groups[left]] = left  # the last one written is the first of its list
        is_first = first[known.groups] == np.arange(len(is_given))
        return np.asarray(is_given + 2 * is_first + 4 * follows + 8 * known.mentions)

    def _relation(self, number: int, first: int) -> list[CandidateBlock]:
        """How parts of earlier calls relate to the records of the values decided last, if any."""
        known = self._known
        codes = np.zeros(len(known.parts), np.int64)
        names: list[str] = []
        # No two of one name, those decided last first.
        for name, item, form in reversed(self._values):
            label = name if item == number else f"previous {name}"
            same = np.flatnonzero(known.form_ids == self.state.number(form))
            if len(same) and label not in names and len(names) < _RELATED:
                codes = 3 * codes + _is_among(known.calls, known.calls[same], len(self.state.calls))
                codes += _is_among(known.records, known.records[same], len(self.state.numbers))
                names.append(label)
        return [CandidateBlock(relation_rows(tuple(names)), first, codes)] if names else []

    @cached_property
    def _known(self) -> _Known:
        memo = self.state.step_memo
        key = (_Known, self.constants)
        if key not in memo:
            memo[key] = _Known(self.state, self.constants)
        known: _Known = memo[key]
        return known

    @cached_property
    def _called(self) -> Hashes:
        """The tools called so far."""
        state, tool = self.state, self.tool
        current = [past.call.tool for past in state.calls if not past.is_earlier]
        called = sorted({past.call.tool for past in state.calls})
        unused = sorted(
            {entry.call.tool for entry in state.calls if entry.call.id not in state.used}
        )
        names = [*(f"called {name}" for name in called), *(f"unused {name}" for name in unused)]
        last, same = current[-1] if current else "^", min(current.count(tool), 4)
        return features(
            [*names, "always", f"last {last}", f"same {same}", f"calls {min(len(current), 8)}"]
        )
