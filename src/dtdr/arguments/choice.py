"""Decides what value a parameter takes, from the probabilities of its candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.arguments.candidates import (
    AROUND,
    LIST,
    OBJECT,
    TEMPLATE,
    UNKNOWN,
    Candidates,
    span_source,
)
from dtdr.arguments.lists import ListMembers, most_probable_members
from dtdr.arguments.ranker import CandidateRanker
from dtdr.arguments.sources import Source
from dtdr.arguments.state import RunState
from dtdr.arguments.values import canonical

EMPTY_LIST = canonical([])
_LEAST_SHARE = 0.05
"""A value less likely than this is not proposed: the parameter is unknown. With .1, .558 of the
calls of an inner fold of TinyAgent were exact, not .565, and of TRAJECT-Bench's .625, not .646."""
_LEAST_PLAIN = 0.5
_LEAST_PART = 0.5
_LEAST_COMPOSED = 0.1
"""Of a kind of value that is put together; parts of a less probable one are not looked for."""
_LEAST_TEXT = 0.3
"""Of a text of learned words around values; a less probable one is not proposed."""
_LEADING_SPANS = 8
_LEADING_OTHERS = 24
"""Candidates whose probabilities are added up where they hold the same value."""


class Choice(NamedTuple):
    """A decision about a parameter.

    Attributes:
        form: the canonical form of the value, or ``LIST``, ``OMITTED`` or ``UNKNOWN``.
        probability: among all candidates.
        value: as it stands at its source.
        sources: one, or one an item of a list that was put together.
    """

    form: str
    probability: float
    value: Any = None
    sources: tuple[Source, ...] = ()

    @property
    def used_calls(self) -> frozenset[str]:
        """The calls whose whole output the value is, or has in it."""
        return frozenset(one.call for one in self.sources if one.kind == "output" and not one.path)


def choose_value(
    ranker: CandidateRanker,
    candidates: Candidates,
    state: RunState,
    compose: Callable[[str], Choice | None],
) -> Choice:
    """The most probable value of a parameter.

    Candidates that hold the same value count together; a list is put together from its members.

    Args:
        ranker: weighs the candidates.
        candidates: of the parameter.
        state: what is known before the call.
        compose: puts a value of one of the forms ``OBJECT``, ``OBJECTS`` and ``TEMPLATE`` together.
    """
    probabilities = ranker.probabilities(candidates.features)
    spans = len(candidates.texts.first)
    totals: dict[str, float] = {}
    for place in _largest(probabilities[spans:], _LEADING_OTHERS):
        form = candidates.forms[place]
        totals[form] = totals.get(form, 0.0) + float(probabilities[spans + place])
    leading = _largest(probabilities[:spans], _LEADING_SPANS)
    for place in leading:
        form = candidates.span_form(place)
        totals[form] = totals.get(form, 0.0) + float(probabilities[place])
    unknown = float(probabilities[spans])
    totals.pop(UNKNOWN, None)
    around = {form: totals.pop(form) for form in [*totals] if form.startswith(AROUND)}
    composed: dict[str, Choice] = {}
    for form in [one for one in totals if one.startswith((OBJECT, TEMPLATE))]:
        share = totals.pop(form)
        least = _LEAST_TEXT if form.startswith(TEMPLATE) else _LEAST_COMPOSED
        made = compose(form) if share >= least else None
        if made is not None:
            share *= made.probability
            if share >= _LEAST_TEXT or not form.startswith(TEMPLATE):
                totals[form] = share
                composed[form] = made._replace(form=form, probability=share)
    if not totals:
        return Choice(UNKNOWN, unknown)
    form = max(totals, key=totals.__getitem__)
    share = totals[form]
    used = _find_used_output(candidates, totals, around)
    if used is not None:
        written = around.get(AROUND + used, 0.0)
        if totals.get(used, 0.0) < _LEAST_PLAIN * written:
            parts = [one for one, part in around.items() if part >= _LEAST_PART * written]
            places = sorted(map(candidates.forms.index, parts))
            return Choice(
                AROUND + used, written, None, tuple(candidates.sources[place] for place in places)
            )
        form, share = used, totals[used]
    if form in (LIST, EMPTY_LIST) and LIST in totals:
        members = ListMembers.find(candidates, state)
        no, yes = ranker.member_probabilities(members.rows)
        chosen, share, nothing = most_probable_members(no, yes, members.is_joined)
        listed, empty = totals[LIST], totals.get(EMPTY_LIST, 0.0)
        if chosen and listed * (1 - nothing) > empty * nothing:
            chosen.sort(key=members.order.__getitem__)
            return Choice(
                LIST,
                (listed + empty) * share,
                [members.values[place] for place in chosen],
                tuple(members.sources[place] for place in chosen),
            )
        if EMPTY_LIST not in totals:
            return Choice(UNKNOWN, unknown)
        form, share = EMPTY_LIST, (listed + empty) * nothing
    if share < _LEAST_SHARE:
        return Choice(UNKNOWN, unknown)
    if form in composed:
        return composed[form]
    if form in candidates.forms:
        place = candidates.forms.index(form)
        other = probabilities[spans + place]
        in_text = [item for item in leading if candidates.span_form(item) == form]
        if not in_text or other >= probabilities[in_text[0]]:
            return Choice(form, share, candidates.values[place], (candidates.sources[place],))
    place = next(item for item in leading if candidates.span_form(item) == form)
    return Choice(
        form, share, candidates.texts.span_values[place], (span_source(candidates, place),)
    )


def _find_used_output(
    candidates: Candidates, totals: Mapping[str, float], around: Mapping[str, float]
) -> str | None:
    """The output that the value is, or holds, where that is more probable than that none is."""
    uses = {
        form: totals.get(form, 0.0) + around.get(AROUND + form, 0.0)
        for form in (one.removeprefix(AROUND) for one in candidates.forms if one.startswith(AROUND))
    }
    if not uses:
        return None
    best = max(uses, key=uses.__getitem__)
    return best if uses[best] > 1 - sum(uses.values()) else None


def _largest(shares: npt.NDArray[np.float64], count: int) -> list[int]:
    """Positions of the largest shares, falling; the first of equal ones first."""
    if len(shares) > count:
        least = np.partition(shares, len(shares) - count)[len(shares) - count]
        places = np.flatnonzero(shares >= least)
    else:
        places = np.arange(len(shares))
    order = np.argsort(-shares[places], kind="stable")[:count]
    result: list[int] = places[order].tolist()
    return result
