"""Candidate plans: of a beam, of the nearest demonstrations, and with calls more or less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dtdr.predict.plans.asked import AskedCalls
from dtdr.predict.plans.beam import BeamSearch, Candidate, Multiset, StepState
from dtdr.predict.plans.links import Links

_EDITED = 6
"""Plans of the beam that are edited, the most probable ones."""
_KEPT = 24
"""Edited plans that are kept. An inner fold of TinyAgent has the right plan among its candidates in
.73 of cases without any, .78 with 10, .80 with 20, .82 with 30."""
_CHANGES = 2
"""Calls more or less, at most. Three inner folds of T-Eval have the right plan among the candidates
in .718 of cases with 1, in .729 with 2."""
_ADDED = 8
"""Tools that are tried as a further call: those that the parts of the query ask for most."""
_COST = 1.0
"""What the beam did not find is less likely than the words alone say."""


class Limits(NamedTuple):
    """What a plan may be.

    Attributes:
        longest: calls that are left to do, at most.
        may_be_empty: whether nothing may be left to do.
    """

    longest: int
    may_be_empty: bool

    def allow(self, calls: int) -> bool:
        """Whether this many calls may be left."""
        return calls <= self.longest and (calls > 0 or self.may_be_empty)


def propose_plans(
    state: StepState,
    made: Sequence[int],
    demonstrated: Sequence[Sequence[int]],
    asked: AskedCalls,
    links: Links,
    numbers: Sequence[int],
    limits: Limits,
) -> tuple[dict[Multiset, Candidate], int]:
    """Candidates by the tools of the whole plan, those of the beam first.

    Args:
        state: of the run, with its calls; it is not changed.
        made: tools of the calls made so far, in the numbers of ``asked``.
        demonstrated: plans of the nearest demonstrations, in the same numbers.
        asked: what the parts of the query ask for.
        links: know where a further call stands.
        numbers: of each tool of the retriever, its number in ``asked``.
        limits: of what is left to do.

    Returns:
        The candidates, and the place of the one that takes the best tool of each step; 0 where
        that comes to no end.
    """
    beam = BeamSearch(state, limits.longest, may_be_empty=limits.may_be_empty)
    found = beam.run()
    greedy = beam.follow_best()
    if greedy is not None:
        found.setdefault(tuple(sorted(greedy.tools)), greedy)
    proposed = {
        tuple(sorted([*made, *(numbers[tool] for tool in key)])): candidate
        for key, candidate in found.items()
    }
    place = 0 if greedy is None else list(found).index(tuple(sorted(greedy.tools)))
    known = {*numbers}
    for plan in demonstrated:
        rest = _without(plan, made)
        if rest is None or not limits.allow(len(rest)) or not known.issuperset(rest):
            continue
        key = tuple(sorted(plan))
        if key not in proposed:
            proposed[key] = beam.score([numbers.index(tool) for tool in rest])
    if len(asked.by_part):
        proposed |= edit_plans(proposed, asked, links, numbers, limits)
    return proposed, place


def edit_plans(
    plans: Mapping[Multiset, Candidate],
    asked: AskedCalls,
    links: Links,
    numbers: Sequence[int],
    limits: Limits,
) -> dict[Multiset, Candidate]:
    """Plans with a call or two more or less that the parts of the query ask for most.

    How probable one is, is estimated: that of the plan it was made from, changed by what the
    parts say of the tool. No step is ranked again.

    Args:
        plans: by the tools of the whole plan, in the numbers of ``asked``.
        asked: by the query.
        links: know where a further call stands.
        numbers: of each tool of the candidates, its number in ``asked``.
        limits: of what is left to do.
    """
    place = {number: tool for tool, number in enumerate(numbers)}
    beamed = [(key, one) for key, one in plans.items() if one.is_from_beam]
    order = np.argsort(-asked.log_odds, kind="stable").tolist()
    likely = [tool for tool in order if tool in place][:_ADDED]
    sources, edits = dict(_most_probable(beamed, _EDITED)), dict[Multiset, Candidate]()
    for _ in range(_CHANGES):
        edited: dict[Multiset, _Edit] = {}
        for key, one in sources.items():
            for edit in _changes(key, one, asked, likely, place, limits):
                known = edited.get(edit.plan)
                if edit.plan not in plans and (known is None or edit.total > known.total):
                    edited[edit.plan] = edit
        best = sorted(edited.values(), key=lambda edit: -edit.total)[:_KEPT]
        made = {edit.plan: edit.apply(links, numbers, place) for edit in best}
        sources = dict(_most_probable(made.items(), _EDITED))
        worse = {key for key in made if key in edits and edits[key].total >= made[key].total}
        edits |= {key: one for key, one in made.items() if key not in worse}
    return dict(_most_probable(edits.items(), _KEPT))


class _Edit(NamedTuple):
    """A plan with one call of a tool more or less, and what it is estimated at."""

    plan: Multiset
    total: float
    source: Candidate
    tool: int
    is_more: bool

    def apply(self, links: Links, numbers: Sequence[int], place: Mapping[int, int]) -> Candidate:
        """The plan's calls in order."""
        tools, called = list(self.source.tools), place[self.tool]
        if self.is_more:
            at = links.place_of(self.tool, [numbers[other] for other in tools])
            tools.insert(at, called)
        else:
            del tools[len(tools) - 1 - tools[::-1].index(called)]
        return Candidate(tuple(tools), self.total, self.total, is_from_beam=False)


def _changes(
    key: Multiset,
    source: Candidate,
    asked: AskedCalls,
    likely: Sequence[int],
    place: Mapping[int, int],
    limits: Limits,
) -> Iterator[_Edit]:
    """A plan with one call more, of a tool that it or the query wants, and with one less."""
    counts, left = Counter(key), {*source.tools}
    more = sorted({*likely, *(tool for tool in counts if tool in place)})
    less = [tool for tool in counts if place.get(tool) in left]
    for change, tools in ((1, more), (-1, less)):
        if not limits.allow(len(source.tools) + change):
            continue
        for tool in tools:
            after = counts[tool] + change
            gain = asked.prefers(tool, after, counts[tool]) - _COST
            changed = counts.copy()
            changed[tool] += change
            plan = tuple(sorted(changed.elements()))
            yield _Edit(plan, source.total + gain, source, tool, change > 0)


def _most_probable(
    plans: Iterable[tuple[Multiset, Candidate]], count: int
) -> list[tuple[Multiset, Candidate]]:
    return sorted(plans, key=lambda item: -item[1].total)[:count]


def _without(plan: Sequence[int], made: Sequence[int]) -> list[int] | None:
    """What is left of a plan after some calls; None where they are not all in it."""
    left = Counter(made)
    rest = []
    for tool in plan:
        if left[tool]:
            left[tool] -= 1
        else:
            rest.append(tool)
    return None if any(left.values()) else rest
