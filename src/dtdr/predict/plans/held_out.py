"""Plans that nothing has seen: what a ranker of plans learns from, and is calibrated on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import track
from dtdr.predict.plans.best_first import Multiset
from dtdr.predict.plans.features import PlanSet, find_plans
from dtdr.predict.plans.ranker import PlanRanker
from dtdr.predict.plans.spans import SpanTagger, read_spans
from dtdr.rankers.base import HeldOutFold

Floats = npt.NDArray[np.float64]

_FEW = 20
"""Held-out plans below which probabilities are not calibrated."""
CALIBRATED = 5
"""Plans of each query that probabilities are calibrated on."""
_MOST = 1_200
"""Plans that the ranker learns from, of more: each takes a search."""
_UNDER_WAY = 200
"""Of these, plans that are also looked at after some of their calls."""


class HeldOutPlan(NamedTuple):
    """A held-out demonstration.

    Attributes:
        found: the plans that a retriever found for its query which has not seen it.
        plan: the right one.
    """

    found: PlanSet
    plan: Multiset

    @property
    def right(self) -> int:
        """The place of the right plan, -1 for none."""
        return self.found.plans.index(self.plan) if self.plan in self.found.plans else -1


def hold_out(
    demonstrations: Sequence[Demonstration],
    index: Mapping[str, int],
    longest: int,
    folds: Sequence[HeldOutFold],
    *,
    may_be_empty: bool,
    seed: int,
) -> tuple[list[HeldOutPlan], list[HeldOutPlan]]:
    """The plans that are found for held-out queries, as if nothing had seen them.

    Args:
        demonstrations: all of them.
        index: positions of the tools.
        longest: calls that a plan may have.
        folds: parts of the demonstrations that were held out in turn.
        may_be_empty: whether a plan may have no call.
        seed: of which are taken of many, and of how many calls are made.

    Returns:
        Plans before the first call; and of some demonstrations, of which calls are made, up to a
        place that is drawn at random.
    """
    held = np.array([one for fold in folds for one in fold.positions], np.intp)
    if len(held) > _MOST:
        held = np.random.default_rng(seed).choice(held, _MOST, replace=False)
    chosen = set(held.tolist())
    rng = np.random.default_rng(seed)
    every = max(1, len(held) // _UNDER_WAY)
    result: list[HeldOutPlan] = []
    under_way: list[HeldOutPlan] = []
    work = [(fold, one) for fold in folds for one in fold.positions if one in chosen]
    current = None
    for fold, position in track(work, "plans", len(work)):
        if fold is not current:
            current, inside = fold, set(fold.positions)
            rest = [item for at, item in enumerate(demonstrations) if at not in inside]
            tagger = SpanTagger.fit(rest, index)
        item = demonstrations[position]
        tools = [index[call.tool] for call in item.plan.calls]
        plan = tuple(sorted(tools))
        scores = tagger.count_scores(read_spans(item.query), len(index))
        state = fold.start(position)
        found = find_plans(state, scores, (), longest, may_be_empty=may_be_empty)
        if found is None:
            continue
        result.append(HeldOutPlan(found, plan))
        if len(result) % every or not tools:
            continue
        made = int(rng.integers(1, len(tools) + 1))
        for tool, call in zip(tools[:made], item.plan.calls[:made], strict=True):
            state.call(tool, call)
        found = find_plans(state, scores, tools[:made], longest, may_be_empty=True)
        if found is not None:
            under_way.append(HeldOutPlan(found, plan))
    return result, under_way


def targets_of(plans: Sequence[Multiset], right: Multiset) -> Floats:
    """Weights of the plans that a ranker is to choose; shape (n,), summing to 1.

    That is the right plan. Where it was not found, those that differ from it in the fewest calls
    share its weight, so that every demonstration is learned from.
    """
    wanted = Counter(right)
    counts = list(map(Counter, plans))
    distances = np.array([((wanted - some) + (some - wanted)).total() for some in counts])
    nearest = distances == distances.min()
    shares: Floats = nearest / nearest.sum()
    return shares


def fit_ranker(held_out: Sequence[HeldOutPlan], tools: int) -> PlanRanker:
    """A ranker that learned from held-out plans."""
    targets = [targets_of(one.found.plans, one.plan) for one in held_out]
    return PlanRanker.fit([one.found for one in held_out], targets, tools)


def rank_held_out(held_out: Sequence[HeldOutPlan], tools: int) -> dict[Multiset, PlanRanker]:
    """By the right plan, a ranker that has not learned from it: two learn from one half each.

    All that call the same tools equally often are in one half, so that what a ranker learned of a
    plan by heart is worth nothing.
    """
    by_plan: dict[Multiset, list[HeldOutPlan]] = defaultdict(list)
    for one in held_out:
        by_plan[one.plan].append(one)
    halves: tuple[list[HeldOutPlan], list[HeldOutPlan]] = ([], [])
    for members in by_plan.values():
        min(halves, key=len).extend(members)
    rankers: dict[Multiset, PlanRanker] = {}
    for half, other in (halves, halves[::-1]):
        ranker = fit_ranker(half, tools)
        rankers.update((one.plan, ranker) for one in other)
    return rankers


class Confidence(NamedTuple):
    """How likely a plan is right, by logistic regression on the log odds of its probability.

    On inner folds of four sets its Brier scores were .206, .168, .227 and .227; those of isotonic
    regression .207, .170, .236 and .263.
    """

    bias: float = 0.0
    slope: float = 1.0
    under_way: float = 0.0

    @classmethod
    def fit(
        cls,
        held_out: Sequence[HeldOutPlan],
        under_way: Sequence[HeldOutPlan],
        rankers: Mapping[Multiset, PlanRanker],
    ) -> Confidence:
        """Learn how often a plan of a probability is right; of few queries, nothing.

        Args:
            held_out: plans before the first call.
            under_way: plans after some calls.
            rankers: of each, by the right plan; see ``rank_held_out``.
        """
        from scipy.optimize import minimize

        if len(held_out) < _FEW:
            return cls()
        rows, is_right = [], []
        for number, one in enumerate((*held_out, *under_way)):
            shares = rankers[one.plan].probabilities(one.found)
            for place in np.argsort(-shares, kind="stable")[:CALIBRATED].tolist():
                rows.append((1.0, shares[place], float(number >= len(held_out))))
                is_right.append(place == one.right)
        table, wanted = np.array(rows), np.array(is_right, float)
        table[:, 1] = _log_odds(table[:, 1])

        def loss(weights: Floats) -> float:
            scores = table @ weights
            return float((np.logaddexp(0, scores) - wanted * scores).sum())

        bounds = [(-9, 9), (0.05, 3), (-9, 9)]
        found = minimize(loss, np.array([0.0, 1, 0]), method="L-BFGS-B", bounds=bounds)
        return cls(*found.x.tolist())

    def of(self, probabilities: Floats, *, is_under_way: bool) -> Floats:
        """The calibrated probabilities, in the same order."""
        scores = self.bias + self.slope * _log_odds(probabilities) + self.under_way * is_under_way
        shares: Floats = 1 / (1 + np.exp(-scores))
        return shares


def _log_odds(probabilities: Floats) -> Floats:
    clipped = np.clip(probabilities, 1e-4, 1 - 1e-4)
    odds: Floats = np.log(clipped / (1 - clipped))
    return odds
