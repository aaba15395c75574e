"""Candidate plans: of a beam, of the nearest demonstrations, and with one call more or less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from dtdr.plans.beam import BeamSearch, Candidate, Multiset, StepState
from dtdr.plans.expected import ExpectedCalls
from dtdr.plans.links import Links

_EDITED = 6
"""Plans of the beam that are edited, the most probable ones."""
_KEPT = 24
"""Edited plans that are kept. An inner fold of TinyAgent has the right plan among its candidates in
.73 of cases without any, .78 with 10, .80 with 20, .82 with 30."""
_ADDED = 8
"""Tools that are tried as a further call: those that the words of the query ask for most."""
_COST = 1.0
"""What the beam did not find is less likely than the words alone say."""


def propose_plans(
    state: StepState,
    made: Sequence[int],
    demonstrated: Sequence[Sequence[int]],
    expected: ExpectedCalls,
    links: Links,
    numbers: Sequence[int],
    *,
    longest: int,
    may_be_empty: bool,
) -> dict[Multiset, Candidate]:
    """Candidates by the tools of the whole plan, those of the beam first.

    Args:
        state: of the run, with its calls; it is not changed.
        made: tools of the calls made so far, in the numbers of ``expected``.
        demonstrated: plans of the nearest demonstrations, in the same numbers.
        expected: what the words of the query let expect.
        links: know where a further call stands.
        numbers: of each tool of the retriever, its number in ``expected``.
        longest: calls that are left to do, at most.
        may_be_empty: whether nothing may be left to do.
    """
    beam = BeamSearch(state, longest, may_be_empty=may_be_empty)
    found = {
        tuple(sorted([*made, *(numbers[tool] for tool in key)])): candidate
        for key, candidate in beam.run().items()
    }
    place = {number: tool for tool, number in enumerate(numbers)}
    for plan in demonstrated:
        key = tuple(sorted(plan))
        rest = _without(plan, made)
        if key in found or rest is None or len(rest) > longest or not (rest or may_be_empty):
            continue
        if all(tool in place for tool in rest):
            found[key] = beam.score([place[tool] for tool in rest])
    return found | edit_plans(
        found, expected, links, numbers, longest=longest, may_be_empty=may_be_empty
    )


def edit_plans(
    plans: Mapping[Multiset, Candidate],
    expected: ExpectedCalls,
    links: Links,
    numbers: Sequence[int],
    *,
    longest: int,
    may_be_empty: bool,
) -> dict[Multiset, Candidate]:
    """Plans with one call more or less that the words of the query speak for most.

    How probable one is, is estimated: that of the plan it was made from, changed by what the
    words say of the tool. No step is ranked again.

    Args:
        plans: by the tools of the whole plan, in the numbers of ``expected``.
        expected: of the query.
        links: know where a further call stands.
        numbers: of each tool of the candidates, its number in ``expected``.
        longest: calls that are left to do, at most.
        may_be_empty: whether nothing may be left to do.
    """
    place = {number: tool for tool, number in enumerate(numbers)}
    beamed = [(key, one) for key, one in plans.items() if one.is_from_beam]
    beamed.sort(key=lambda item: -item[1].total)
    likely = [tool for tool in np.argsort(-expected.log_odds, kind="stable") if tool in place]
    edits: dict[Multiset, tuple[float, Candidate, int, bool]] = {}

    def add(key: Multiset, score: float, source: Candidate, tool: int, *, is_more: bool) -> None:
        if key not in plans and (key not in edits or score > edits[key][0]):
            edits[key] = score, source, tool, is_more

    for key, one in beamed[:_EDITED]:
        counts = Counter(key)
        left = Counter(numbers[tool] for tool in one.tools)
        more = {*counts, *map(int, likely[:_ADDED])} if len(one.tools) < longest else set()
        for tool in sorted(tool for tool in more if tool in place):
            gain = _gain(expected, tool, counts[tool], counts[tool] + 1)
            add(tuple(sorted((*key, tool))), one.total + gain, one, tool, is_more=True)
        if len(one.tools) == 1 and not may_be_empty:
            continue
        for tool in left:
            shorter = list(key)
            shorter.remove(tool)
            gain = _gain(expected, tool, counts[tool], counts[tool] - 1)
            add(tuple(shorter), one.total + gain, one, tool, is_more=False)
    best = sorted(edits.items(), key=lambda item: -item[1][0])[:_KEPT]
    result = {}
    for key, (score, source, tool, is_more) in best:
        tools, called = list(source.tools), place[tool]
        if is_more:
            at = links.place_of(tool, [numbers[other] for other in tools])
            tools.insert(at, called)
        else:
            del tools[len(tools) - 1 - tools[::-1].index(called)]
        estimate = score - _COST
        result[key] = Candidate(tuple(tools), estimate, estimate, is_from_beam=False)
    return result


def _gain(expected: ExpectedCalls, tool: int, before: int, after: int) -> float:
    """By how much the words prefer so many calls of a tool to as many as there are."""
    if not before:
        return float(expected.log_odds[tool])
    if not after:
        return -float(expected.log_odds[tool])
    return expected.mismatch(tool, before) - expected.mismatch(tool, after)


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
