"""Best-first search over sets of calls: orders of the same calls are one plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from dtdr.rankers.base import StepState

Floats = npt.NDArray[np.float64]

MOST_CALLS = 64
"""No plan is longer."""
KEPT = 28
"""Plans that are kept of those found."""
RANKINGS = 32
"""Steps that are ranked beyond those of the best tools. A beam of ten plans ranked 65 steps a query
of TinyAgent instead of 38; on inner folds the right plan came first as often (.465 and .485,
T-Eval .319 and .312) and was among five less often (.685 and .660, .549 and .535)."""
_BONUS = 0.4
"""For each call, so that long plans are continued; 0.2 and 0.6 were no better, 1.5 worse."""
_BRANCHES = 7
"""Tools that are tried after each call."""
_LEAST = math.log(3e-3)
"""A tool less likely than this is not tried."""
_LEAST_END = math.log(1e-7)

Multiset = tuple[int, ...]
"""The tools of a plan, sorted: which ones, and each how often."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that the search found.

    Attributes:
        tools: of the calls still to be made, in their most probable order.
        total: logarithm of the probability, summed over the orders that were found.
    """

    tools: tuple[int, ...]
    total: float


class PlanSearch:
    """All plans of one query worth a second look.

    Args:
        state: of the query and the calls made so far; it is not changed.
        longest: calls that a plan may have, those made so far left out.
        may_be_empty: whether nothing may be left to do.
        allowed: shape (tools,): whether each can be called, end of plan included; None for all.
    """

    def __init__(
        self,
        state: StepState,
        longest: int,
        *,
        may_be_empty: bool,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self._state, self._longest = state, min(longest, MOST_CALLS)
        self._may_be_empty, self._allowed = may_be_empty, allowed
        self._ranked: dict[tuple[int, ...], Floats] = {}
        self._at: tuple[tuple[int, ...], StepState] = (), state.copy()

    def follow_best(self) -> Candidate | None:
        """The best tool of each step until the end; None where that does not come."""
        tools: tuple[int, ...] = ()
        total = 0.0
        while True:
            logs = self._logs(tools)
            best = int(logs.argmax())
            total += float(logs[best])
            if best == len(logs) - 1:
                return Candidate(tools, total) if tools or self._may_be_empty else None
            if len(tools) == self._longest:
                return None
            tools = (*tools, best)

    def run(self) -> dict[Multiset, Candidate]:
        """The plans found, by their tools in the order of the vocabulary; most probable first.

        Time and memory are bounded by ``RANKINGS``; a plan that would not end by then is left out.
        """
        most = len(self._ranked) + RANKINGS
        totals: dict[Multiset, float] = {(): 0.0}
        orders: dict[Multiset, Candidate] = {(): Candidate((), 0.0)}
        ends: dict[Multiset, float] = {}
        queue: list[tuple[float, Multiset]] = [(0.0, ())]
        while queue and len(self._ranked) < most:
            plan = heappop(queue)[1]
            if plan in ends:
                continue
            order = orders[plan]
            logs = self._logs(order.tools)
            ends[plan] = float(logs[-1])
            for tool in _likely(logs) if len(plan) < self._longest else ():
                log = float(logs[tool])
                longer = tuple(sorted((*plan, tool)))
                total = np.logaddexp(totals.get(longer, -math.inf), totals[plan] + log)
                totals[longer] = float(total)
                if longer not in orders or orders[longer].total < order.total + log:
                    orders[longer] = Candidate((*order.tools, tool), order.total + log)
                heappush(queue, (-totals[longer] - _BONUS * len(longer), longer))
        found = {
            plan: Candidate(orders[plan].tools, totals[plan] + end)
            for plan, end in ends.items()
            if end > _LEAST_END and (plan or self._may_be_empty)
        }
        return dict(sorted(found.items(), key=lambda item: -item[1].total)[:KEPT])

    def _logs(self, tools: tuple[int, ...]) -> Floats:
        """Log probabilities of the step after some calls."""
        logs = self._ranked.get(tools)
        if logs is None:
            done, state = self._at
            if tools[: len(done)] != done:
                done, state = (), self._state.copy()
            for tool in tools[len(done) :]:
                state.call(tool)
            self._at = tools, state
            scores = state.rank().scores
            if self._allowed is not None:
                scores = scores * self._allowed
                scores /= max(float(scores.sum()), 1e-300)
            logs = self._ranked[tools] = np.log(np.maximum(scores, 1e-7))
        return logs


def _likely(logs: Floats) -> list[int]:
    """The tools that are tried, without the end of plan."""
    tools = np.flatnonzero(logs[:-1] > _LEAST)
    if len(tools) > _BRANCHES:
        tools = tools[np.argsort(-logs[tools], kind="stable")[:_BRANCHES]]
    likely: list[int] = tools.tolist()
    return likely
