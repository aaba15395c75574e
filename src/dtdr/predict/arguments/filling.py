"""Fills whole calls, slot by slot: each decision sees which records and spans those before took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall, find_references, is_reference
from dtdr.predict.arguments.candidates import (
    AROUND,
    LIST,
    OBJECT,
    OMITTED,
    UNKNOWN,
    CallCandidates,
    Candidates,
)
from dtdr.predict.arguments.constants import MAX_DEPTH, MAX_ITEMS, is_filled_object
from dtdr.predict.arguments.prediction import ValueSource
from dtdr.predict.arguments.state import ITEM
from dtdr.predict.arguments.value_ranker import SlotExample, ValueRanker
from dtdr.predict.arguments.values import canonical, convert, fits, resolve_references

_LEAST_SHARE = 0.05
"""A value less likely than this is not proposed: the slot is unknown. With .1, .558 of the calls
of an inner fold of TinyAgent were exact, not .565, and of TRAJECT-Bench's .625, not .646."""
_AGAINST_NONE = 0.5
"""Odds of an output's part or of leaving out against no right value. On an inner fold of
TRAJECT-Bench .547 of the plans had all dependencies without it, .573 with it, and .580 with 1,
which lost a call of 128 on one of tau_retail."""
_LEAST_PART = 0.5
"""Odds of a further output in a text around some, against the most probable one."""
_NEGLIGIBLE = 5e-3
"""Probability of a candidate that is kept; others with the same value are added up."""


class SlotChoice(NamedTuple):
    """A decision about a slot.

    Attributes:
        form: canonical, or the form of what is not a value.
        probability: among all candidates.
        value: as it is at its source.
        sources: where it comes from; of a text to be written around outputs, these.
        span: of the texts that it takes.
    """

    form: str
    probability: float
    value: Any = None
    sources: tuple[ValueSource, ...] = ()
    span: tuple[int, int] | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether the user or an LLM has to write the value."""
        return self.form == UNKNOWN or self.form.startswith(AROUND)


NOT_KNOWN = SlotChoice(UNKNOWN, 0.0)


def fill_slot(
    ranker: ValueRanker, candidates: CallCandidates, name: str, item_index: int = 0, depth: int = 0
) -> SlotChoice:
    """Decide a slot and its parts; it is unknown where one of its parts is.

    Args:
        ranker: weighs candidates.
        candidates: of the call, with what was decided before.
        name: of the slot.
        item_index: of the item of a list that it is, or is in.
        depth: of objects and lists around it.
    """
    slot_candidates = candidates.find(name, item_index)
    is_first = item_index == 0 and name.endswith(f"/{ITEM}")
    shares = ranker.probabilities(
        slot_candidates.keys, len(slot_candidates), slot_candidates.blocks
    )
    choice = choose(slot_candidates, shares, candidates.spans, is_first=is_first)
    candidates.decide(slot_candidates, choice.form, item_index, choice.span)
    if choice.form not in (LIST, OBJECT):
        return choice._replace(value=convert(choice.value, slot_candidates.type))
    if depth >= MAX_DEPTH:
        return NOT_KNOWN
    if choice.form == LIST:
        parts = _fill_items(ranker, candidates, f"{name}/{ITEM}", depth + 1)
        value: Any = [part.value for part in parts if part.form != OMITTED]
        is_whole = bool(value) and parts[-1].form == OMITTED
    else:
        names = candidates.constants.slot(candidates.tool, name).fields
        parts = [
            fill_slot(ranker, candidates, f"{name}/{part}", item_index, depth + 1) for part in names
        ]
        entries = zip(names, parts, strict=True)
        value = {part: entry.value for part, entry in entries if entry.form != OMITTED}
        is_whole = bool(value) and not any(part.is_unknown for part in parts)
    if not is_whole:
        return NOT_KNOWN
    joint = math.prod((choice.probability, *(part.probability for part in parts)))
    sources = tuple(source for part in parts for source in part.sources)
    return SlotChoice(canonical(value), joint, value, sources)


def _fill_items(
    ranker: ValueRanker, candidates: CallCandidates, name: str, depth: int
) -> list[SlotChoice]:
    """The items of a list; the last one is left out unless they are too many or unknown."""
    items: list[SlotChoice] = []
    for index in range(MAX_ITEMS):
        items.append(fill_slot(ranker, candidates, name, index, depth))
        value = items[-1].value
        is_repeated = any(value == item.value for item in items[:-1])
        if items[-1].form == OMITTED:
            break
        if items[-1].is_unknown or (isinstance(value, Mapping) and is_repeated):
            return [NOT_KNOWN]
    return items


def choose(
    candidates: Candidates,
    probabilities: npt.NDArray[np.float64],
    call_spans: Sequence[tuple[int, int]],
    *,
    is_first: bool = False,
) -> SlotChoice:
    """The most probable value of a slot; candidates of one form count together.

    Args:
        candidates: of the slot.
        probabilities: of each of them.
        call_spans: the spans that the call took already.
        is_first: whether it is the first item of a list, which has at least one.
    """
    totals: dict[str, float] = {}
    place_of: dict[str, int] = {}
    leading = np.flatnonzero(probabilities > _NEGLIGIBLE)
    for position in leading[np.argsort(-probabilities[leading], kind="stable")].tolist():
        option = candidates.read(position)
        is_empty_list = option.form == OMITTED and is_first
        if option.form != UNKNOWN and not is_empty_list and fits(option.value, candidates.type):
            totals[option.form] = totals.get(option.form, 0.0) + float(probabilities[position])
            place_of.setdefault(option.form, position)
    unknown = float(probabilities[candidates.spans])
    around = {form: totals.pop(form) for form in [*totals] if form.startswith(AROUND)}
    written = max(around.values(), default=0.0)
    if written > sum(totals.values()):
        parts = [place_of[form] for form, share in around.items() if share >= _LEAST_PART * written]
        sources = tuple(candidates.read(part).source for part in sorted(parts))
        return SlotChoice(max(around, key=around.__getitem__), written, None, sources)
    if not totals:
        return SlotChoice(UNKNOWN, unknown)
    form = max(totals, key=totals.__getitem__)
    share, position = totals[form], place_of[form]
    value, _, source, *_ = candidates.read(position)
    against = _AGAINST_NONE * unknown if source.kind in ("output", "omitted") else 0.0
    if share < max(_LEAST_SHARE, against):
        return SlotChoice(UNKNOWN, unknown)
    if form.startswith("\x00"):
        return SlotChoice(form, share)
    span: tuple[int, int] | None = None
    if source.kind in ("query", "message"):
        span = candidates.state.texts.span(position)
    elif source.kind != "constant":
        span = candidates.state.locate(form, call_spans)
    return SlotChoice(form, share, value, (source,), span)


def iter_examples(
    candidates: CallCandidates, call: ToolCall, parameters: Sequence[str]
) -> Iterator[SlotExample]:
    """Every decision of a demonstrated call, each with what was decided before it."""
    state = candidates.state

    def learn(name: str, written: Any, item_index: int, depth: int) -> Iterator[SlotExample]:
        slot_candidates = candidates.find(name, item_index)
        value = written if written == OMITTED else resolve_references(written, state.by_id)
        form, forms = _wanted_forms(slot_candidates, written, value)
        yield SlotExample(
            slot_candidates.keys,
            len(slot_candidates),
            slot_candidates.blocks,
            slot_candidates.targets(forms),
        )
        form = next((entry for entry in (LIST, OBJECT) if entry in forms), form)
        span = None if form.startswith("\x00") else state.locate(form, candidates.spans)
        candidates.decide(slot_candidates, form, item_index, span)
        if depth >= MAX_DEPTH:
            return
        if form == LIST:
            for position, item in enumerate([*value, OMITTED]):
                yield from learn(f"{name}/{ITEM}", item, position, depth + 1)
        elif form == OBJECT:
            for part in candidates.constants.slot(call.tool, name).fields:
                yield from learn(f"{name}/{part}", value.get(part, OMITTED), item_index, depth + 1)

    for name in parameters:
        yield from learn(name, call.arguments.get(name, OMITTED), 0, 0)


def _wanted_forms(candidates: Candidates, written: Any, value: Any) -> tuple[str, set[str]]:
    """The canonical form of a demonstrated value, and all forms by which it may be reached."""
    if isinstance(written, str) and written == OMITTED:
        return OMITTED, {OMITTED}
    form, composed = canonical(value), UNKNOWN
    if isinstance(value, list):
        composed = LIST if 0 < len(value) < MAX_ITEMS else UNKNOWN
    elif is_filled_object(value):
        composed = OBJECT
    elif (outputs := find_references(value)) and not is_reference(value):
        around = [AROUND + canonical({"$ref": entry.call}) for entry in outputs]
        return around[0], {*around}
    is_offered = composed != UNKNOWN and candidates.find(composed) is not None
    return form, {form, composed} if is_offered else {form}
