"""The plans of a run with their features, and a log-linear ranker: a softmax over the plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
import numpy.typing as npt

from dtdr.predict.plans.best_first import RANKINGS, Candidate, Multiset, PlanSearch
from dtdr.rankers.base import StepState
from dtdr.rankers.calibration import Floats
from dtdr.rankers.vectors import softmax
from dtdr.text.sparse import csr_array, hstack

SIGNS = (1, 1, 1, -1, 0)
"""Signs of the weights, 0 for either, of: log probability, whether parts of the query ask for its
tools and its numbers of calls, how much of the parts no call serves, number of different tools."""
BY_TOOL = 3
"""Features of each tool: how well its number of calls fits the spans and the parts; the number."""

_MOST_CALLS = 4
"""More calls of one tool count as this many, except in comparison with the spans."""
_LEAST, _MOST_PROBABILITY = 0.002, 0.99

_PENALTY = 3.0
"""Penalty of squared weights of features, in standard deviations."""
_TOOL_PENALTY = 5.0
"""Penalty of squared weights of single tools."""
_ITERATIONS = 60
_BOUNDS = {-1: (None, 0), 0: (None, None), 1: (0, None)}


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
    called: Sequence[int],
    longest: int,
    *,
    may_be_empty: bool,
    allowed: npt.NDArray[np.bool_] | None = None,
    rankings: int = RANKINGS,
) -> PlanSet | None:
    """The plans of a run; None if no plan ends.

    Args:
        state: of the run, with its calls; it is not changed.
        span_scores: of the query; see ``SpanTagger.count_scores``.
        called: tools of the calls made so far.
        longest: limit of calls in a whole plan.
        may_be_empty: whether nothing may be left to do.
        allowed: see ``PlanSearch``.
        rankings: see ``PlanSearch.run``.
    """
    left = max(longest - len(called), 2)
    search = PlanSearch(state, left, may_be_empty=may_be_empty, allowed=allowed)
    best = search.follow_best()
    plans = search.run(rankings)
    greedy = 0
    if best is not None:
        key = tuple(sorted(best.tools))
        if key not in plans or plans[key].total < best.total:
            plans[key] = best
        greedy = list(plans).index(key)
    if not plans:
        return None
    whole = {tuple(sorted([*called, *key])): plan for key, plan in plans.items()}
    return describe_plans(whole, state, span_scores, greedy)


def describe_plans(
    plans: Mapping[Multiset, Candidate], state: StepState, span_scores: Floats, greedy: int
) -> PlanSet:
    """Describe the plans of a run; see ``PlanSet`` and ``find_plans``."""
    tools, counts = _count_calls(list(plans))
    is_called, calls = counts > 0, np.minimum(counts, _MOST_CALLS).astype(np.float64)
    by_spans = np.take_along_axis(
        span_scores[:, tools], np.minimum(counts, len(span_scores) - 1), axis=0
    )
    # Of each part of the query, the chance that it asks for a tool, and calls of it; shape (parts,
    # all tools) each. Without parts, even odds take the place of the chance.
    read = state.asked() if hasattr(state, "asked") else None
    reads_parts = read is not None
    chances, numbers = (
        np.zeros((2, 0, len(span_scores[0]))) if read is None else read.astype(np.float64)
    )
    chances = np.clip(chances, 0, _MOST_PROBABILITY)
    least = np.maximum(_LEAST, 0.5 * (not reads_parts))
    asked_by_some_part = np.maximum(chances[:, tools].max(axis=0, initial=_LEAST), least)
    expected_calls = numbers[:, tools].sum(axis=0)
    misfit = (calls - expected_calls) ** 2 * reads_parts
    # A plan serves a part with each tool that it calls and the part may ask for.
    served = 1 - np.exp(np.log1p(-chances[:, tools]) @ is_called.T.astype(float))
    surest_wish = chances.max(axis=1, initial=0)[:, None]
    dense = (
        np.array([plan.total for plan in plans.values()]),
        is_called @ np.log(asked_by_some_part / (1 - asked_by_some_part)),
        -misfit.sum(axis=1),
        np.maximum(surest_wish - served, 0).sum(axis=0),
        is_called.sum(axis=1),
    )
    # The last but one feature compares a number of calls with none, whose misfit is the square.
    by_tool = (by_spans / 3, expected_calls**2 - misfit, calls)
    return PlanSet(
        list(plans),
        list(plans.values()),
        greedy,
        np.stack(dense, axis=1).astype(np.float64),
        tools,
        np.stack(by_tool, axis=2),
    )


def _count_calls(
    plans: Sequence[Multiset],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The tools that plans call, sorted, and how often each plan calls each: (plans, tools)."""
    called = np.fromiter(chain.from_iterable(plans), np.intp)
    tools, tool_of = np.unique(called, return_inverse=True)
    plan_of = np.repeat(np.arange(len(plans)), list(map(len, plans)))
    counts = np.zeros((len(plans), len(tools)), np.intp)
    np.add.at(counts, (plan_of, tool_of), 1)
    return tools, counts


@dataclass(frozen=True, eq=False)
class PlanRanker:
    """Weights of the features of a ``PlanSet``.

    Attributes:
        dense: shape (len(SIGNS),).
        by_tool: shape (tools, BY_TOOL).
        greedy_first: whether the plan of the best tool of each step always comes first.
    """

    dense: Floats
    by_tool: Floats
    greedy_first: bool = False

    @classmethod
    def fit(cls, queries: Sequence[PlanSet], targets: Sequence[Floats], tools: int) -> Self:
        """Learn from the plans found for queries.

        Args:
            queries: the plans of each query.
            targets: for each query, the weights of the plans to choose; shape (n,), summing to 1.
            tools: number of tools.
        """
        from scipy.optimize import minimize

        if not queries:  # the probabilities of the search alone
            return cls(np.eye(len(SIGNS))[0], np.zeros((tools, BY_TOOL)))
        sizes = [len(item.plans) for item in queries]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        owner = np.repeat(np.arange(len(queries)), sizes)
        dense = np.concatenate([item.dense for item in queries])
        scale = np.maximum(dense.std(axis=0), 1e-6)
        values = np.concatenate([item.by_tool.ravel() for item in queries])
        kinds = [(item.tools[:, None] * BY_TOOL + np.arange(BY_TOOL)).ravel() for item in queries]
        places = np.concatenate([np.tile(*pair) for pair in zip(kinds, sizes, strict=True)])
        ends = np.cumsum([0, *np.repeat(list(map(len, kinds)), sizes)])
        by_tool = csr_array((values, places, ends), shape=(len(owner), tools * BY_TOOL))
        by_tool.eliminate_zeros()
        rows = csr_array(hstack([csr_array(dense / scale), by_tool], format="csr"))
        columns = csr_array(rows.T)
        wanted = np.concatenate(targets)
        size = len(SIGNS)
        penalty = np.repeat([_PENALTY, _TOOL_PENALTY], [size, tools * BY_TOOL])

        def loss(weights: Floats) -> tuple[float, Floats]:
            scores = rows @ weights
            highest = np.maximum.reduceat(scores, starts)[owner]
            shares = np.exp(scores - highest)
            sums = np.add.reduceat(shares, starts)[owner]
            value = float(wanted @ (np.log(sums) + highest - scores))
            gradient = columns @ (shares / sums - wanted)
            return value + 0.5 * float(penalty @ weights**2), gradient + penalty * weights

        options = {"maxiter": _ITERATIONS}
        limits = [_BOUNDS[sign] for sign in (*SIGNS, *[0] * (tools * BY_TOOL))]
        weights = minimize(loss, 0 * penalty, jac=True, bounds=limits, options=options).x
        return cls(weights[:size] / scale, weights[size:].reshape(tools, BY_TOOL))

    def probabilities(self, query: PlanSet) -> Floats:
        """The probability of each plan; shape (n,), summing to 1."""
        scores = query.dense @ self.dense
        scores += np.einsum("nmk,mk->n", query.by_tool, self.by_tool[query.tools])
        if self.greedy_first:
            scores[query.greedy] = scores.max() + 1e-6
        return softmax(scores)
