"""The plans of a run, and the features of each whole plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtdr.predict.plans.best_first import Candidate, Multiset, PlanSearch
from dtdr.rankers.base import StepState

Floats = npt.NDArray[np.float64]

SIGNS = (1, 1, 1, -1, 0)
"""Signs of the weights, 0 for either, of: log probability, whether parts of the query ask for its
tools and its numbers of calls, how much of the parts no call serves, number of different tools."""
BY_TOOL = 2
"""Features of each tool: how well its number of calls fits the spans, and the parts."""

_MOST_CALLS = 4
"""More calls of one tool count as this many in comparison with the parts."""
_LEAST, _MOST_PROBABILITY = 0.002, 0.99


@dataclass(frozen=True, slots=True, eq=False)
class PlanSet:
    """n plans for one run, which call m tools.

    Attributes:
        plans: the tools of each, including calls already made.
        left: what is left to do of each.
        greedy: the position of the plan that takes the best tool of each step; 0 if that plan does
            not end.
        dense: shape (n, len(SIGNS)).
        tools: shape (m,), sorted.
        by_tool: shape (n, m, BY_TOOL).
    """

    plans: list[Multiset]
    left: list[Candidate]
    greedy: int
    dense: Floats
    tools: npt.NDArray[np.intp]
    by_tool: Floats


def find_plans(
    state: StepState,
    span_scores: Floats,
    made: Sequence[int],
    longest: int,
    *,
    may_be_empty: bool,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> PlanSet | None:
    """The plans of a run; None if no plan ends.

    Args:
        state: of the run, with its calls; it is not changed.
        span_scores: of the query; see ``SpanTagger.count_scores``.
        made: tools of the calls made so far.
        longest: limit of calls in a whole plan.
        may_be_empty: whether nothing may be left to do.
        allowed: see ``PlanSearch``.
    """
    left = max(longest - len(made), 2)
    search = PlanSearch(state, left, may_be_empty=may_be_empty, allowed=allowed)
    best = search.follow_best()
    found = search.run()
    greedy = 0
    if best is not None:
        key = tuple(sorted(best.tools))
        if key not in found or found[key].total < best.total:
            found[key] = best
        greedy = list(found).index(key)
    if not found:
        return None
    whole = {tuple(sorted([*made, *key])): plan for key, plan in found.items()}
    return describe_plans(whole, state, span_scores, greedy)


def describe_plans(
    found: Mapping[Multiset, Candidate], state: StepState, span_scores: Floats, greedy: int
) -> PlanSet:
    """Describe the plans of a run; see ``PlanSet`` and ``find_plans``."""
    tools = np.unique(np.array([tool for key in found for tool in key], np.intp))
    counts = np.zeros((len(found), len(tools)), np.intp)
    for row, key in zip(counts, found, strict=True):
        np.add.at(row, np.searchsorted(tools, key), 1)
    most = len(span_scores) - 1
    spans = np.take_along_axis(span_scores[:, tools], np.minimum(counts, most), axis=0) / 3
    present = counts > 0
    # Shape (2, parts, tools), if the ranker reads the parts of the query.
    read = state.asked() if hasattr(state, "asked") else None
    asked = np.zeros((2, 0, len(span_scores[0]))) if read is None else read.astype(np.float64)
    part = np.clip(asked[0], 0, _MOST_PROBABILITY)
    # The probability that some part asks for a tool; even odds if the ranker reads no parts.
    likely = np.maximum(part[:, tools].max(axis=0, initial=_LEAST), 0.5 * (read is None))
    expected = asked[1][:, tools].sum(axis=0)
    away = (np.minimum(counts, _MOST_CALLS) - expected) ** 2 * (read is not None)
    served = 1 - np.exp(np.log1p(-part[:, tools]) @ present.T.astype(float))
    wanted = part.max(axis=1, initial=0)[:, None]
    columns = (
        np.array([plan.total for plan in found.values()]),
        present @ np.log(likely / (1 - likely)),
        -away.sum(axis=1),
        np.maximum(wanted - served, 0).sum(axis=0),
        present.sum(axis=1),
    )
    dense = np.stack(columns, axis=1).astype(np.float64)
    by_tool = np.stack([spans, expected**2 - away], axis=2)
    return PlanSet(list(found), list(found.values()), greedy, dense, tools, by_tool)
