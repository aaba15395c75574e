"""Beam search over sets of calls: orders of the same calls are one plan."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdr.rankers.base import StepState as StepState

WIDTH = 10
"""Multisets of calls that are continued after each call. 12 instead of 10 found the right plan .01
more often among TinyAgent's, for a fifth more time."""
KEPT = 28
"""Plans that are kept of those found."""
_BRANCHES = 7
"""Tools that are tried after each call."""
_LEAST = 3e-3
"""A tool less likely than this is not tried."""
_LEAST_LOG = math.log(1e-7)
_LONG, _VERY_LONG = 12, 24
"""Calls from which on the beam narrows to 3 and to 1: time grows with the square of the length."""
Multiset = tuple[int, ...]
"""The tools of a plan, sorted: which ones, and each how often."""

MOST_CALLS = 64
"""No plan is longer."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that the search found.

    Attributes:
        tools: of the calls still to be made, in their most probable order.
        total: logarithm of the probability, summed over the orders that were found.
    """

    tools: tuple[int, ...]
    total: float


@dataclass(slots=True)
class _Partial:
    total: float
    best: float
    tools: tuple[int, ...]
    state: StepState
    """Before the last of the tools."""


class BeamSearch:
    """All plans of one query worth a second look.

    Args:
        state: of the query and the calls made so far; it is not changed.
        longest: calls that a plan may have, those made so far left out.
        may_be_empty: whether nothing may be left to do.
    """

    def __init__(self, state: StepState, longest: int, *, may_be_empty: bool) -> None:
        self._state, self._longest = state, min(longest, MOST_CALLS)
        self._may_be_empty = may_be_empty
        self.steps = 0
        """Rankings that were made."""

    def run(self) -> dict[Multiset, Candidate]:
        """The plans found, by their tools in the order of the vocabulary; most probable first.

        Time and memory are bounded by ``longest``; a plan that would not end by then is left out.
        """
        alive: dict[Multiset, _Partial] = {(): _Partial(0.0, 0.0, (), self._state)}
        done: dict[Multiset, Candidate] = {}
        for depth in range(self._longest + 1):
            following: dict[Multiset, _Partial] = {}
            uses = Counter(id(partial.state) for partial in alive.values())
            for key, partial in alive.items():
                state = partial.state
                if partial.tools:
                    uses[id(state)] -= 1
                    # A copy makes all calls again, so the last plan that goes on takes the state.
                    if uses[id(state)] or state is self._state:
                        state = state.copy()
                    state.call(partial.tools[-1])
                logs = self._logs(state)
                end = float(logs[-1])
                if end > _LEAST_LOG and (key or self._may_be_empty):
                    done[key] = Candidate(partial.tools, partial.total + end)
                if depth < self._longest:
                    _extend(following, key, partial, state, logs)
            width = WIDTH if depth < _LONG else 3 if depth < _VERY_LONG else 1
            best = sorted(following.items(), key=lambda item: -item[1].total)[:width]
            alive = dict(best)
            if not alive:
                break
            if len(done) >= KEPT:
                totals = sorted((item.total for item in done.values()), reverse=True)
                if best[0][1].total < totals[KEPT - 1]:
                    break  # no continuation can be among those kept
        kept = sorted(done.items(), key=lambda item: -item[1].total)[:KEPT]
        return dict(kept)

    def follow_best(self) -> Candidate | None:
        """The best tool of each step until the end; None where that does not come."""
        state, tools, total = self._state.copy(), list[int](), 0.0
        while True:
            logs = self._logs(state)
            best = int(logs.argmax())
            total += float(logs[best])
            if best == len(logs) - 1:
                is_allowed = tools or self._may_be_empty
                return Candidate(tuple(tools), total) if is_allowed else None
            if len(tools) == self._longest:
                return None
            tools.append(best)
            state.call(best)

    def _logs(self, state: StepState) -> Any:
        self.steps += 1
        return np.log(np.maximum(state.rank().scores, 1e-7))


def _extend(
    following: dict[Multiset, _Partial],
    key: Multiset,
    partial: _Partial,
    state: StepState,
    logs: Any,
) -> None:
    """Add the plan with each likely further call."""
    count = min(_BRANCHES + 1, len(logs))
    likely = np.argpartition(-logs, count - 1)[:count]
    for tool in np.sort(likely).tolist():
        log = float(logs[tool])
        if tool == len(logs) - 1 or log < math.log(_LEAST):
            continue
        longer = tuple(sorted((*key, tool)))
        total, best = partial.total + log, partial.best + log
        known = following.get(longer)
        if known is None:
            following[longer] = _Partial(total, best, (*partial.tools, tool), state)
            continue
        known.total = float(np.logaddexp(known.total, total))
        if best > known.best:
            known.best, known.tools, known.state = best, (*partial.tools, tool), state
