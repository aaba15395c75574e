"""Best-first search over sets of calls: orders of the same calls are one plan."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END
from dtdr.rankers.base import StepState

MOST_CALLS = 64
"""Limit of calls in a plan."""
KEPT = 28
"""Plans that a search keeps."""
RANKINGS = 32
"""Steps to rank in addition to those of the best tools."""
_BONUS = 0.4
"""Bonus per call, to continue long plans; 0.2 and 0.6 were no better, 1.5 worse."""
_BRANCHES = 7
"""Limit of tools to try after each call."""
_LEAST = math.log(3e-3)
"""Log probability below which a tool is not tried."""
_LEAST_END = math.log(1e-7)
_LEAST_PLAN = math.log(2e-3)
"""Log probability of first calls below which the search does not go on from them."""

Multiset = tuple[int, ...]
"""The tools of a plan, sorted, each as often as it is called."""


class Candidate(NamedTuple):
    """A plan.

    Attributes:
        tools: of the remaining calls, in their most probable order.
        total: logarithm of the probability, summed over the orders found.
    """

    tools: tuple[int, ...]
    total: float


_Step: TypeAlias = tuple[float, list[tuple[float, int]]]
"""Logarithms of the probabilities of the end of plan, and of the tools to try, best first, each
with its tool."""


class PlanSearch:
    """Searches the probable plans of one query.

    Args:
        state: of the query and the calls made so far; it is not changed.
        longest: limit of remaining calls.
        may_be_empty: whether no call may remain.
        allowed: shape (tools,): whether each can be called, end of plan included; None: all.
    """

    def __init__(
        self,
        state: StepState,
        longest: int,
        *,
        may_be_empty: bool,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self._longest = min(longest, MOST_CALLS)
        self._may_be_empty, self._allowed = may_be_empty, allowed
        self._ranked: dict[tuple[int, ...], _Step] = {}
        self._states: dict[tuple[int, ...], StepState] = {(): state}

    def follow_best(self) -> Candidate | None:
        """The best tool of each step until the end; None if it does not end."""
        tools: tuple[int, ...] = ()
        total = 0.0
        while True:
            end, branches = self._rank(tools)
            if not branches or branches[0][0] < end:
                return Candidate(tools, total + end) if tools or self._may_be_empty else None
            if len(tools) == self._longest:
                return None
            log, tool = branches[0]
            tools, total = (*tools, tool), total + log

    def run(self, rankings: int = RANKINGS) -> dict[Multiset, Candidate]:
        """The plans by their sorted tools, most probable first.

        The number of ``rankings`` bounds time and memory; plans that would end later are left out.
        """
        most = len(self._ranked) + rankings
        totals: dict[Multiset, float] = {(): 0.0}
        orders: dict[Multiset, Candidate] = {(): Candidate((), 0.0)}
        ends: dict[Multiset, float] = {}
        queue: list[tuple[float, Multiset]] = [(0.0, ())]
        while queue and len(self._ranked) < most:
            plan = heappop(queue)[1]
            if plan in ends or totals[plan] < _LEAST_PLAN:
                continue
            order = orders[plan]
            ends[plan], branches = self._rank(order.tools)
            for log, tool in branches if len(plan) < self._longest else ():
                longer = tuple(sorted((*plan, tool)))
                total, along = totals[plan] + log, order.total + log
                if longer in orders:  # in another order
                    more, less = max(total, totals[longer]), min(total, totals[longer])
                    total = more + math.log1p(math.exp(less - more))
                totals[longer] = total
                if longer not in orders or orders[longer].total < along:
                    orders[longer] = Candidate((*order.tools, tool), along)
                heappush(queue, (-total - _BONUS * len(longer), longer))
        plans = {
            plan: Candidate(orders[plan].tools, totals[plan] + end)
            for plan, end in ends.items()
            if end > _LEAST_END and (plan or self._may_be_empty)
        }
        return dict(sorted(plans.items(), key=lambda item: -item[1].total)[:KEPT])

    def _rank(self, tools: tuple[int, ...]) -> _Step:
        """The step after some calls."""
        step = self._ranked.get(tools)
        if step is None:
            if tools:
                self._states[tools] = self._states[tools[:-1]].copy()
                self._states[tools].call(tools[-1])
            ranking = self._states[tools].rank()
            # Tools that only this run knows follow the end of the plan.
            scores = ranking.scores[: ranking.vocabulary.index(END) + 1]
            if self._allowed is not None:
                scores = scores * self._allowed
                scores /= max(float(scores.sum()), 1e-300)
            logs = np.log(np.maximum(scores, 1e-7))
            likely = (logs[:-1] > _LEAST).nonzero()[0]
            branches = zip(logs[likely].tolist(), likely.tolist(), strict=True)
            best = sorted(branches, key=lambda branch: -branch[0])[:_BRANCHES]
            step = self._ranked[tools] = float(logs[-1]), best
        return step
