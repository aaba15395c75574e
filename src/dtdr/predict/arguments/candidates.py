"""The values that a slot of a call may take: where each comes from, and its features.

A slot is a parameter, a field of an object in it (``trip/city``) or an item of a list (``ids/*``).
Its candidates are, in this order: spans of the texts (every few words in a row of the query and of
messages), then ``unknown`` and whatever else is not a value, constants, and parts of earlier calls.

Arrays are named by what they index: ``kind_of[i]`` is the kind of candidate i, ``record_of[p]`` the
record that part p of an earlier call is in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.constants import ANY_TOOL, MAX_CONSTANTS, Constants
from dtdr.predict.arguments.earlier_parts import EarlierParts
from dtdr.predict.arguments.features import (
    FLAGS,
    TAKEN,
    constant_features,
    part_features,
    relation_rows,
    span_blocks,
)
from dtdr.predict.arguments.prediction import ValueSource
from dtdr.predict.arguments.run_texts import hash_spans, read_dates
from dtdr.predict.arguments.state import ITEM, RunState, ValuePart
from dtdr.predict.arguments.texts import content_stems, name_stems
from dtdr.predict.arguments.value_ranker import (
    KIND_LEVELS,
    CandidateBlock,
    Hashes,
    Rows,
    feature,
    features,
    parameter_keys,
)

UNKNOWN, OMITTED, LIST, OBJECT = "\x00unknown", "\x00omitted", "\x00list", "\x00object"
"""Forms of what is not a value: none known, no argument (of a list: no further item), a list and an
object that are put together part by part."""
AROUND = "\x00around"
"""Mark of a text or object to be written around outputs, before their references' forms."""
_AROUND_SALT = np.uint32(feature(AROUND))
_PLAIN = tuple(
    ValuePart(None, form, ValueSource("omitted" if form == OMITTED else "unknown"))
    for form in (UNKNOWN, OMITTED, LIST, OBJECT)
)
_PLAIN_ROWS = Rows.of([features([option.form[1:]]) for option in _PLAIN])


@dataclass(slots=True, eq=False)
class Candidates:
    """The c candidates of one slot: spans of the texts, then others.

    Attributes:
        slot: its name.
        state: what is known before the call.
        keys: of the slot, which features are joined with; shape (3,).
        type: JSON-schema type of the values that demonstrations gave; empty where there are none.
        spans: number of the candidates that are spans; these come first.
        dates: by candidate, the date that a span says in words, where the slot takes dates.
        context: features of the run, which say what kind of value the slot takes now; shape (k,).
        kinds: names of the kinds of values, such as ``span``, ``constant red`` or ``omitted``.
        kind_of: the kind of each candidate, a position in ``kinds``; shape (c,).
        others: the candidates after the spans; the first is ``unknown``: no other one is right.
        blocks: the rows of features of the candidates.
        first_part: the first candidate that is a part of an earlier call.
    """

    slot: str
    state: RunState
    keys: Hashes
    type: str
    spans: int
    dates: Mapping[int, str]
    context: Hashes
    kinds: list[str]
    kind_of: npt.NDArray[np.int64]
    others: list[ValuePart] = field(default_factory=list)
    blocks: list[CandidateBlock] = field(default_factory=list)
    first_part: int = 0

    def __len__(self) -> int:
        return len(self.kind_of)

    def find(self, form: str) -> int | None:
        """The position of the first candidate of a form that is not a span."""
        for position, option in enumerate(self.others, self.spans):
            if option.form == form:
                return position
        return None

    def targets(self, forms: Collection[str]) -> npt.NDArray[np.int64]:
        """Positions of the candidates of some forms; of ``unknown`` where there is none."""
        positions: list[int] = []
        if self.spans:
            spans_of = self.state.texts.places
            positions += [span for form in forms for span in spans_of.get(form, ())]
            positions += [span for span, date in self.dates.items() if date in forms]
        others = enumerate(self.others, self.spans)
        positions += [position for position, option in others if option.form in forms]
        return np.array(positions or [self.spans], np.int64)

    def read(self, position: int) -> ValuePart:
        """The value of a candidate, as the slot takes it, its form, and its source."""
        if position >= self.spans:
            return self.others[position - self.spans]
        texts, date = self.state.texts, self.dates.get(position)
        value, form = (date, date) if date else (texts.values[position], texts.forms[position])
        return ValuePart(value, form, texts.source(position))

    def add(
        self,
        options: Sequence[ValuePart],
        kinds: Sequence[str],
        kind_of: npt.NDArray[np.int64],
        rows: Rows,
        row_of: npt.NDArray[np.int64],
    ) -> None:
        """Add n candidates after the others.

        Args:
            options: the candidates.
            kinds: names of their kinds.
            kind_of: the kind of each, a position in ``kinds``; shape (n,).
            rows: of features.
            row_of: the row of each; shape (n,).
        """
        self.blocks.append(CandidateBlock(rows, len(self.kind_of), row_of))
        self.kind_of = np.concatenate([self.kind_of, kind_of + len(self.kinds)])
        self.others += options
        self.kinds += kinds


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
        self, candidates: Candidates, form: str, item_index: int, span: tuple[int, int] | None
    ) -> None:
        """Take note of a decision, by the canonical form of the value and the span it took."""
        position = candidates.find(form)
        kind = "span" if position is None else candidates.kinds[candidates.kind_of[position]]
        self._labels.append(f"{candidates.slot}={kind[:40]}")
        if not form.startswith("\x00"):
            self._values.append((candidates.slot, item_index, form))
        if span is not None:
            self.spans.append(span)

    def find(self, slot: str, item_index: int = 0) -> Candidates:
        """The candidates of a slot, which may be, or be in, an item of a list of this number."""
        state, texts = self.state, self.state.texts
        key = (self.constants, self.tool, slot)
        if key not in state.step_memo:
            state.step_memo[key] = self._find(slot)
        candidates: Candidates = state.step_memo[key]
        last = self.spans[-1][1] if self.spans else state.last_token
        blocks: list[CandidateBlock] = []
        if candidates.spans:
            blocks += span_blocks(state, self.tool, slot, self.spans, last)
        if state.calls:
            parts, first = self._earlier_parts, candidates.first_part
            taken = [*state.values.get((self.tool, slot), ())]
            taken += [form for name, _, form in self._values if name == slot]
            blocks.append(CandidateBlock(FLAGS, first, parts.flags(state, taken)))
            names, codes = parts.relations(state, self._latest_values(item_index))
            if names:
                blocks.append(CandidateBlock(relation_rows(names), first, codes))
        more = [f"decided {label}" for label in dict.fromkeys(self._labels)]
        more.append(f"decided last {self._labels[-1] if self._labels else ''}")
        if slot.endswith(ITEM):
            following = texts.lower[last + 1] if item_index and last >= 0 else ""
            more += [f"items {min(item_index, 5)}", f"items then {following}"]
        kinds = features([f"kind {name}" for name in candidates.kinds])
        context = np.concatenate([candidates.context, features(more)])
        blocks.append(
            CandidateBlock(Rows.of(kinds[:, None] ^ context, KIND_LEVELS), 0, candidates.kind_of)
        )
        return replace(candidates, blocks=[*candidates.blocks, *blocks])

    def _find(self, slot: str) -> Candidates:
        """The candidates of a slot, with the features that no decision changes."""
        state, tool, texts = self.state, self.tool, self.state.texts
        about = self.constants.slot(tool, slot)
        spans = len(texts.first) if about.has_texts else 0
        dates = read_dates(texts) if spans and about.type == "date" else {}
        # Spans of the query, and those of messages.
        kinds, kind_of = ["span", "message span"][: len(texts.parts)], texts.span_part[:spans] > 0
        keys = parameter_keys(tool, slot)
        mentioned = features([f"mentioned {not texts.stems.isdisjoint(name_stems(slot))}"])
        context = np.concatenate([texts.word_features, self._called, mentioned])
        result = Candidates(
            slot, state, keys, about.type, spans, dates, context, kinds, kind_of.astype(np.int64)
        )
        if spans:
            hashes, name = hash_spans(texts), slot.removesuffix("/*").rpartition("/")[2]
            by_slot = self.constants.is_taken(tool, slot, hashes, self._group)
            by_any = self.constants.is_taken(ANY_TOOL, name, hashes, self._group)
            result.blocks += [*texts.blocks, CandidateBlock(TAKEN, 0, 2 * by_slot + by_any)]
        # What is no value, and what is put together part by part.
        codes = np.array([0, 1, *[2] * about.is_list, *[3] * bool(about.fields)])
        options = [_PLAIN[code] for code in codes.tolist()]
        plain = [option.form[1:] for option in options]
        result.add(options, plain, np.arange(len(options)), _PLAIN_ROWS, codes)
        self._add_constants(result)
        if state.calls:
            self._add_parts(result)
        return result

    def _add_constants(self, candidates: Candidates) -> None:
        """The constants of the slot, and those of all slots of its name."""
        of_slot = self.constants.slot(self.tool, candidates.slot).values
        known = {form for form, _ in of_slot}
        name = candidates.slot.removesuffix("/*").rpartition("/")[2]
        shared = self.constants.slot(ANY_TOOL, name).values
        items = [*of_slot, *(item for item in shared if item[0] not in known)][:MAX_CONSTANTS]
        taken = Counter(self.state.values.get((self.tool, candidates.slot), ()))
        texts, parts = self.state.texts, []
        for position, (form, _) in enumerate(items):
            is_own = position < len(of_slot)
            rank = min(position if is_own else position - len(of_slot), 4)
            said = "no" if texts.stems.isdisjoint(content_stems(form)) else "part"
            said = "whole" if form in texts.said else said
            parts.append(constant_features(said, rank, is_own, min(taken[form], 2)))
        options = [ValuePart(value, form, ValueSource("constant")) for form, value in items]
        kinds, rows = [f"constant {form}" for form, _ in items], np.arange(len(items))
        candidates.add(options, kinds, rows, Rows.of(parts), rows)

    def _add_parts(self, candidates: Candidates) -> None:
        """Whole outputs, texts to be written around them, and parts of earlier calls."""
        earlier = self._earlier_parts
        rows = [
            part_features(kind, code // 2, bool(code % 2), self.tool, candidates.slot)
            for kind, code in earlier.kinds
        ]
        candidates.first_part = len(candidates)
        candidates.add(
            earlier.parts, earlier.labels, earlier.label_of, Rows.of(rows), earlier.kind_of
        )
        if self.constants.slot(self.tool, candidates.slot).is_composed:
            whole = earlier.whole
            outputs = [earlier.parts[position] for position in whole.tolist()]
            around = [ValuePart(None, AROUND + part.form, part.source) for part in outputs]
            labels = [f"around {label}" for label in earlier.labels]
            salted = Rows.of([row ^ _AROUND_SALT for row in rows])
            candidates.add(around, labels, earlier.label_of[whole], salted, earlier.kind_of[whole])

    def _latest_values(self, item_index: int) -> Iterator[tuple[str, str]]:
        """Slots and the forms that they took in this call, those decided last first.

        A slot of another item of a list than this one is called previous.
        """
        for name, item, form in reversed(self._values):
            yield name if item == item_index else f"previous {name}", form

    @cached_property
    def _earlier_parts(self) -> EarlierParts:
        memo = self.state.step_memo
        key = (EarlierParts, self.constants)
        if key not in memo:
            memo[key] = EarlierParts(self.state, self.constants)
        parts: EarlierParts = memo[key]
        return parts

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
