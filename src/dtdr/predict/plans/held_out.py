"""Held-out plans: what the ranker of plans learns from, is compared with, and is calibrated on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from dtdr.data.progress import track
from dtdr.predict.plans.best_first import Multiset
from dtdr.predict.plans.plan_ranker import PlanRanker, PlanSet, find_plans
from dtdr.predict.plans.spans import Example, SpanTagger
from dtdr.rankers.base import HeldOutFold
from dtdr.rankers.calibration import Floats

_FEW = 20
"""Held-out plans below which probabilities are not calibrated."""
_CALIBRATED = 5
"""Plans of each query that probabilities are calibrated on."""
_BASE, _PER_TOOL, _MOST = 150, 20, 1_200
"""Plans that the ranker learns from, of more: for each tool it learns weights. Each takes a search.
"""
_RANKINGS = 24
"""Steps that each of these searches ranks. With the 32 of a prediction, the ranker does not learn
to choose better: right first plans of 166 of T-Eval .361 with both, of 454 of TinyAgent .480; with
16, .343 and .478. To predict with 24 finds fewer: .463 of TinyAgent."""
_UNDER_WAY = 100
"""Plans that are also ranked after some of their calls: one weight is for them."""


class HeldOutPlan(NamedTuple):
    """A held-out demonstration.

    Attributes:
        candidates: the plans that a ranker finds for its query without having seen it.
        plan: the right one.
        half: 0 or 1, the same in a group; the ranker that learned from the other half judges it.
        is_under_way: whether some of its calls were made.
    """

    candidates: PlanSet
    plan: Multiset
    half: int
    is_under_way: bool = False

    @property
    def right(self) -> int:
        """The position of the right plan, -1 if it was not found."""
        return self.candidates.plans.index(self.plan) if self.plan in self.candidates.plans else -1

    @property
    def targets(self) -> Floats:
        """Weights of the plans that a ranker is to choose; shape (n,), summing to 1.

        The right plan has all weight. If it was not found, the plans that differ from it in the
        fewest calls share the weight, so that the ranker learns from every demonstration.
        """
        wanted = Counter(self.plan).items()
        away = [
            len(plan) - 2 * sum(min(plan.count(tool), calls) for tool, calls in wanted)
            for plan in self.candidates.plans
        ]
        nearest = np.array(away) == min(away)
        shares: Floats = nearest / nearest.sum()
        return shares


def hold_out(
    examples: Sequence[Example],
    index: Mapping[str, int],
    longest: int,
    folds: Sequence[HeldOutFold],
    *,
    may_be_empty: bool,
    seed: int,
) -> list[HeldOutPlan]:
    """Find plans for held-out queries: before the first call, and of some after some calls.

    Args:
        examples: all of them.
        index: positions of the tools.
        longest: limit of calls in a plan.
        folds: parts of them, each with a ranker that has not seen them.
        may_be_empty: whether a plan may have no call.
        seed: of the choice among many, and of how many calls are made.
    """
    rng = np.random.default_rng(seed)
    held = rng.permutation([position for fold in folds for position in fold.positions]).tolist()
    judged, under_way = {*held[: min(_BASE + _PER_TOOL * len(index), _MOST)]}, {*held[:_UNDER_WAY]}
    plans: list[HeldOutPlan] = []
    halves: dict[str, int] = {}
    for fold in folds:
        inside = set(fold.positions)
        rest = [example for at, example in enumerate(examples) if at not in inside]
        tagger = SpanTagger.fit(rest, index)
        positions = [position for position in fold.positions if position in judged]
        for position in track(positions, "plans", len(positions)):
            item, spans = examples[position]
            tools = [index[call.tool] for call in item.plan.calls]
            plan = tuple(sorted(tools))
            scores = tagger.count_scores(spans, len(index))
            half = halves.setdefault(item.group or f"\0{position}", len(halves) % 2)
            state = fold.start(position)
            find = partial(find_plans, state, scores, longest=longest, rankings=_RANKINGS)
            plan_set = find((), may_be_empty=may_be_empty)
            if plan_set is None:
                continue
            plans.append(HeldOutPlan(plan_set, plan, half))
            if position not in under_way or not tools:
                continue
            count = int(rng.integers(1, len(tools) + 1))
            for tool, call in zip(tools[:count], item.plan.calls[:count], strict=True):
                state.call(tool, call)
            plan_set = find(tools[:count], may_be_empty=True)
            if plan_set is not None:
                plans.append(HeldOutPlan(plan_set, plan, half, is_under_way=True))
    return plans


def fit_ranker(held_out: Sequence[HeldOutPlan], tools: int) -> PlanRanker:
    """A ranker that learns from held-out plans."""
    return PlanRanker.fit(
        [item.candidates for item in held_out], [item.targets for item in held_out], tools
    )


def rank_held_out(held_out: Sequence[HeldOutPlan], tools: int) -> list[PlanRanker]:
    """By half, a ranker that has not learned from it."""
    return [fit_ranker([item for item in held_out if item.half != half], tools) for half in (0, 1)]


class Check(NamedTuple):
    """Ranked plans against greedy ones, which take the best tool of each step.

    Attributes:
        plans: number of held-out plans.
        ranked: how many the ranker puts first; it learned from the other half of them.
        greedy: how many the best tool of each step makes.
    """

    plans: int
    ranked: int
    greedy: int

    @property
    def is_ahead(self) -> bool:
        """Whether the ranker is ahead; otherwise the greedy plan comes first."""
        return self.ranked > self.greedy

    @classmethod
    def of(cls, held_out: Sequence[HeldOutPlan], rankers: Sequence[PlanRanker]) -> Self:
        """Count, on held-out plans, when each method has the right plan; see ``rank_held_out``."""
        best = [
            int(rankers[item.half].probabilities(item.candidates).argmax()) for item in held_out
        ]
        ranked = sum(entry == item.right for entry, item in zip(best, held_out, strict=True))
        greedy = sum(item.candidates.greedy == item.right for item in held_out)
        return cls(len(held_out), ranked, greedy)


class PlanConfidence(NamedTuple):
    """The probability that a plan is right: logistic regression on the log odds of its share.

    On inner folds, another line for first plans changes calibration errors by chance. After some
    calls, shares are too low.
    """

    bias: float = 0.0
    slope: float = 1.0
    under_way: float = 0.0

    @classmethod
    def fit(cls, held_out: Sequence[HeldOutPlan], rankers: Sequence[PlanRanker]) -> PlanConfidence:
        """Learn how often plans are right; nothing is learned from few queries.

        Args:
            held_out: before the first call, and after some calls.
            rankers: see ``rank_held_out``.
        """
        from scipy.optimize import minimize

        if sum(not item.is_under_way for item in held_out) < _FEW:
            return cls()
        rows, is_right = [], []
        for item in held_out:
            shares = rankers[item.half].probabilities(item.candidates)
            for row in np.argsort(-shares, kind="stable")[:_CALIBRATED]:
                rows.append((1.0, shares[row], item.is_under_way))
                is_right.append(row == item.right)
        table, wanted = np.array(rows, float), np.array(is_right, float)
        table[:, 1] = _log_odds(table[:, 1])

        def loss(weights: Floats) -> float:
            scores = table @ weights
            return float((np.logaddexp(0, scores) - wanted * scores).sum())

        bounds = [(-9, 9), (0.05, 3), (-9, 9)]
        fitted = minimize(loss, np.array(cls()), method="L-BFGS-B", bounds=bounds)
        return cls(*fitted.x.tolist())

    def of(self, shares: Floats, *, is_under_way: bool) -> Floats:
        """The calibrated probabilities, in the same order."""
        scores = self.bias + self.slope * _log_odds(shares) + self.under_way * is_under_way
        probabilities: Floats = 1 / (1 + np.exp(-scores))
        return probabilities


def _log_odds(probabilities: Floats) -> Floats:
    clipped = np.clip(probabilities, 1e-4, 1 - 1e-4)
    return np.log(clipped / (1 - clipped))
