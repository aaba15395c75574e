"""Fills whole calls: a search over what their slots may take, decision by decision.

Each decision sees the ones before it: which records, outputs and spans these took. The probability
of a call is the product of those of its decisions; the search keeps several calls at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall, find_references, is_reference
from dtdr.predict.arguments.candidates import (
    AROUND,
    LIST,
    NOTHING_DECIDED,
    OBJECT,
    OMITTED,
    UNKNOWN,
    CallCandidates,
    Candidates,
    Decided,
)
from dtdr.predict.arguments.constants import Constants, is_filled_object
from dtdr.predict.arguments.prediction import Source
from dtdr.predict.arguments.ranker import CandidateRanker, Example
from dtdr.predict.arguments.state import ITEM
from dtdr.predict.arguments.values import (
    canonical,
    convert,
    fits,
    resolve_references,
)

MAX_ITEMS = 20
"""Items of a list that is put together; a longer one is unknown."""
_MAX_DEPTH = 4
"""Of objects and lists that are put together."""
_BEAM = 2
"""Calls that the search keeps."""
_BRANCHES = 2
"""Values of one slot that it goes on with."""
_LEAST_BRANCH = 0.2
"""Of a value other than the most probable one."""
_LEAST_SHARE = 0.05
"""A value less likely than this is not proposed: the slot is unknown. With .1, .558 of the calls
of an inner fold of TinyAgent were exact, not .565, and of TRAJECT-Bench's .625, not .646."""
_AGAINST_NONE = 0.5
"""Of a part of an output or of leaving out, against that none is right. On an inner fold of
TRAJECT-Bench .547 of the plans had all dependencies without it, .573 with it, and .580 with 1,
which lost a call of 128 on one of tau_retail."""
_LEAST_PART = 0.5
"""Of a further output in a text that is written around some, against the most probable one."""
_NEGLIGIBLE = 5e-3
"""Of a candidate; the probabilities of others are added up if they have the same value."""


class Slot(NamedTuple):
    """What is to be decided.

    Attributes:
        name: of the slot, as candidates know it.
        path: where the value belongs: the parameter, then fields and positions.
        number: of the item of a list that it is, or is in.
        depth: of objects and lists around it.
    """

    name: str
    path: tuple[str | int, ...]
    number: int = 0
    depth: int = 0


class Choice(NamedTuple):
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
    sources: tuple[Source, ...] = ()
    span: tuple[int, int] | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether somebody else has to write the value."""
        return self.form == UNKNOWN or self.form.startswith(AROUND)


@dataclass(frozen=True, slots=True)
class PartialCall:
    """A call as far as it is decided.

    Attributes:
        score: the logarithm of the product of the probabilities.
        pending: slots to be decided, the next one first.
        decided: what further decisions see.
        choices: by slot, in their order.
    """

    score: float
    pending: tuple[Slot, ...]
    decided: Decided = NOTHING_DECIDED
    choices: tuple[tuple[Slot, Choice], ...] = ()


def following_slots(constants: Constants, tool: str, slot: Slot, form: str) -> list[Slot]:
    """The slots that a decision adds: parts of what is put together, and a list's next item."""
    name, path, number, depth = slot
    inner: list[Slot] = []
    if form == LIST and depth < _MAX_DEPTH:
        inner = [Slot(f"{name}/{ITEM}", (*path, 0), 0, depth + 1)]
    elif form == OBJECT and depth < _MAX_DEPTH:
        inner = [
            Slot(f"{name}/{part}", (*path, part), number, depth + 1)
            for part in constants.slot(tool, name).fields
        ]
    is_item = name.endswith(f"/{ITEM}") and form not in (OMITTED, UNKNOWN)
    if is_item and isinstance(path[-1], int) and path[-1] + 1 < MAX_ITEMS:
        inner.append(Slot(name, (*path[:-1], path[-1] + 1), path[-1] + 1, depth))
    return inner


class CallFiller:
    """Decides the values of a call.

    Args:
        ranker: weighs candidates.
        candidates: finds them.
        constants: fields and types.
    """

    def __init__(
        self, ranker: CandidateRanker, candidates: CallCandidates, constants: Constants
    ) -> None:
        self._ranker, self._candidates, self._constants = ranker, candidates, constants

    def fill(self, parameters: Sequence[str]) -> PartialCall:
        """The most probable call that the search finds."""
        beam = [PartialCall(0.0, tuple(Slot(name, (name,)) for name in parameters))]
        while any(call.pending for call in beam):
            further: list[PartialCall] = []
            for call in beam:
                further += self._decide(call) if call.pending else [call]
            further.sort(key=lambda call: -call.score)
            beam = further[:_BEAM]
        return beam[0]

    def _decide(self, call: PartialCall) -> Iterator[PartialCall]:
        """A call with its next slot decided, in each way that is worth it."""
        slot, *rest = call.pending
        candidates = self._candidates.find(slot.name, call.decided, slot.number)
        shares = self._ranker.probabilities(candidates)
        is_first = slot.path[-1] == 0
        for choice in choose(candidates, shares, call.decided.spans, is_first=is_first):
            inner = following_slots(self._constants, self._candidates.tool, slot, choice.form)
            yield PartialCall(
                call.score + math.log(max(choice.probability, 1e-12)),
                (*inner, *rest),
                call.decided.add(candidates, choice.form, slot.number, choice.span),
                (*call.choices, (slot, choice)),
            )


def choose(
    candidates: Candidates,
    probabilities: npt.NDArray[np.float64],
    call_spans: Sequence[tuple[int, int]],
    *,
    is_first: bool = False,
) -> list[Choice]:
    """The most probable values of a slot, at least one; candidates of one form count together.

    Args:
        candidates: of the slot.
        probabilities: of each of them.
        call_spans: the spans that the call took already.
        is_first: whether it is the first item of a list, which has at least one.
    """
    totals: dict[str, float] = {}
    place_of: dict[str, int] = {}
    leading = np.flatnonzero(probabilities > _NEGLIGIBLE)
    for place in leading[np.argsort(-probabilities[leading], kind="stable")].tolist():
        form, value = candidates.read(place)
        is_empty_list = form == OMITTED and is_first
        if is_empty_list or not fits(value, candidates.type):
            continue
        totals[form] = totals.get(form, 0.0) + float(probabilities[place])
        place_of.setdefault(form, place)
    unknown = float(probabilities[candidates.unknown])
    totals.pop(UNKNOWN, None)
    around = {form: totals.pop(form) for form in [*totals] if form.startswith(AROUND)}
    written = max(around.values(), default=0.0)
    if written > sum(totals.values()):
        parts = [place_of[form] for form, share in around.items() if share >= _LEAST_PART * written]
        sources = tuple(map(candidates.source, sorted(parts)))
        return [Choice(max(around, key=around.__getitem__), written, None, sources)]
    best = sorted(totals, key=lambda form: -totals[form])
    least = max(_LEAST_SHARE, _LEAST_BRANCH * totals[best[0]]) if best else 1.0
    choices = []
    for form in best[:_BRANCHES]:
        share, place = totals[form], place_of[form]
        value, source = candidates.read(place)[1], candidates.source(place)
        against = _AGAINST_NONE * unknown if source.kind in ("output", "omitted") else 0.0
        if share < max(least, against):
            continue
        span: tuple[int, int] | None = None
        if source.kind in ("query", "message"):
            texts = candidates.state.texts
            span = (int(texts.first[place]), int(texts.last[place]))
        elif source.kind != "constant":
            span = candidates.state.locate(form, call_spans)
        is_value = not form.startswith("\x00")
        choices.append(Choice(form, share, value, (source,) if is_value else (), span))
    return choices or [Choice(UNKNOWN, unknown)]


# -- putting values together -------------------------------------------------------------------


def assemble(constants: Constants, tool: str, call: PartialCall) -> Iterator[tuple[str, Choice]]:
    """The value of each parameter of a decided call, put together of its parts.

    A parameter is unknown where one of its parts is.
    """
    parts = {slot.path: (slot, choice) for slot, choice in call.choices}
    for path, (_, first) in parts.items():
        if len(path) > 1:
            continue
        name = str(path[0])
        own = [choice.probability for slot, choice in call.choices if slot.path[0] == name]
        if len(own) == 1:
            yield name, first
            continue
        built = _build(constants, tool, parts, path)
        if built is None:
            yield name, Choice(UNKNOWN, math.prod(own))
        else:
            value, sources = built
            yield name, Choice(canonical(value), math.prod(own), value, tuple(sources))


def _build(
    constants: Constants,
    tool: str,
    parts: Mapping[tuple[str | int, ...], tuple[Slot, Choice]],
    path: tuple[str | int, ...],
) -> tuple[Any, list[Source]] | None:
    """A value and its sources; None where a part is not known."""
    slot, choice = parts[path]
    sources: list[Source] = []
    if choice.form == LIST:
        items: list[Any] = []
        for number in range(MAX_ITEMS):
            if parts[*path, number][1].form == OMITTED:
                return (items, sources) if items else None
            item = _build(constants, tool, parts, (*path, number))
            if item is None or (isinstance(item[0], Mapping) and item[0] in items):
                return None
            items.append(item[0])
            sources += item[1]
        return None
    if choice.form == OBJECT:
        fields: dict[str, Any] = {}
        for name in constants.slot(tool, slot.name).fields:
            if (*path, name) not in parts:
                return None
            if parts[*path, name][1].form != OMITTED:
                part = _build(constants, tool, parts, (*path, name))
                if part is None:
                    return None
                fields[name] = part[0]
                sources += part[1]
        return (fields, sources) if fields else None
    if choice.is_unknown or choice.form == OMITTED:
        return None
    return convert(choice.value, constants.slot(tool, slot.name).type), list(choice.sources)


# -- learning ------------------------------------------------------------------------------------


def iter_examples(
    candidates: CallCandidates, constants: Constants, call: ToolCall, parameters: Sequence[str]
) -> Iterator[Example]:
    """Every decision of a demonstrated call, each with what was decided before it."""
    state = candidates.state
    decided = NOTHING_DECIDED
    given: list[tuple[Slot, Any]] = [
        (Slot(name, (name,)), call.arguments.get(name, OMITTED)) for name in parameters
    ]
    while given:
        slot, written = given.pop(0)
        found = candidates.find(slot.name, decided, slot.number)
        value = written if written == OMITTED else resolve_references(written, state.by_id)
        form, forms = _wanted_forms(found, written, value)
        targets = found.targets(forms)
        yield Example.of(found, targets)
        composed = next((one for one in (LIST, OBJECT) if one in forms), None)
        if composed is not None:
            form = composed
            given = [*_read_parts(constants, call.tool, slot, composed, value), *given]
        span = None if form.startswith("\x00") else state.locate(form, decided.spans)
        decided = decided.add(found, form, slot.number, span)


def _wanted_forms(candidates: Candidates, written: Any, value: Any) -> tuple[str, set[str]]:
    """The canonical form of a demonstrated value, and all forms by which it may be reached."""
    if isinstance(written, str) and written == OMITTED:
        return OMITTED, {OMITTED}
    form = canonical(value)
    forms = {form}
    if isinstance(value, list):
        if 0 < len(value) < MAX_ITEMS and LIST in candidates.forms:
            forms.add(LIST)
        return form, forms
    if is_filled_object(value):
        if OBJECT in candidates.forms:
            forms.add(OBJECT)
        return form, forms
    outputs = [] if is_reference(value) else find_references(value)
    if outputs:
        around = [AROUND + canonical({"$ref": one.call}) for one in outputs]
        return around[0], {*around}
    return form, forms


def _read_parts(
    constants: Constants, tool: str, slot: Slot, composed: str, value: Any
) -> Iterator[tuple[Slot, Any]]:
    """The parts of a demonstrated value, by the slots that its decision adds."""
    for part in following_slots(constants, tool, slot, composed):
        if part.name == slot.name:
            continue  # the next item of a list is there already
        if composed == LIST:
            for number, item in enumerate([*value, OMITTED]):
                yield Slot(part.name, (*slot.path, number), number, part.depth), item
        else:
            yield part, value.get(part.path[-1], OMITTED)
