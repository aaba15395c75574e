"""Plans that nothing has seen: what a ranker of plans learns from, and is calibrated on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import track
from dtdr.predict.plans.beam import Multiset
from dtdr.predict.plans.features import Proposal, propose_plans
from dtdr.predict.plans.ranker import PlanRanker
from dtdr.predict.plans.spans import SpanExample, SpanTagger
from dtdr.rankers.base import HeldOutFold
from dtdr.rankers.calibration import fit_isotonic

Floats = npt.NDArray[np.float64]

_FEW = 20
"""Held-out plans below which probabilities are not calibrated."""
_NEAREST = 0.5
"""What a query counts whose right plan was not found. With 0, inner folds of T-Eval have .264 right
first and .488 among five, with this .274 and .496."""
CALIBRATED = 5
"""Plans of each query that probabilities are calibrated on."""
_UNDER_WAY = 200
"""Held-out plans that are also looked at after some of their calls: each takes a beam search."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutPlan:
    """A held-out demonstration and the plans that were found for its query.

    Attributes:
        proposal: these plans, of a retriever that has not seen it.
        plan: the right one.
    """

    proposal: Proposal
    plan: Multiset

    @property
    def right(self) -> int:
        """The place of the right plan, -1 for none."""
        plans = self.proposal.plans
        return plans.index(self.plan) if self.plan in plans else -1


def hold_out(
    demonstrations: Sequence[Demonstration],
    names: Sequence[str],
    longest: int,
    examples: Mapping[int, SpanExample],
    tagged: Sequence[int],
    folds: Iterable[HeldOutFold],
    held: Collection[int],
    *,
    may_be_empty: bool,
    seed: int,
) -> tuple[list[HeldOutPlan], list[HeldOutPlan]]:
    """The plans that are found for held-out queries, as if nothing had seen them.

    Args:
        demonstrations: all of them.
        names: of the tools.
        longest: calls that a plan may have.
        examples: the spans of some, by position.
        tagged: positions of those whose spans are learned.
        folds: parts of the demonstrations that were held out in turn.
        held: positions of those to be held out.
        may_be_empty: whether a plan may have no call.
        seed: of how many calls are made.

    Returns:
        Plans before the first call; and of some demonstrations, of which calls are made, up to a
        place that is drawn at random.
    """
    rng = np.random.default_rng(seed)
    index = {name: number for number, name in enumerate(names)}
    every = max(1, len(held) // _UNDER_WAY)
    result: list[HeldOutPlan] = []
    under_way: list[HeldOutPlan] = []
    work = [(fold, one) for fold in folds for one in fold.positions if one in held]
    current = None
    for fold, position in track(work, "plans", len(work)):
        if fold is not current:
            current, inside = fold, set(fold.positions)
            rest = [examples[place] for place in tagged if place not in inside]
            tagger = SpanTagger.fit(rest)
        calls, texts = demonstrations[position].plan.calls, examples[position].texts
        tools = [index[call.tool] for call in calls]
        plan = tuple(sorted(tools))
        state = fold.start(position)
        proposed = propose_plans(
            texts, tagger, state, (), names, longest, may_be_empty=may_be_empty
        )
        if proposed is None:
            continue
        result.append(HeldOutPlan(proposed, plan))
        if len(result) % every or not calls:
            continue
        made = int(rng.integers(1, len(calls) + 1))
        for tool, call in zip(tools[:made], calls[:made], strict=True):
            state.call(tool, call)
        proposed = propose_plans(
            texts, tagger, state, tools[:made], names, longest, may_be_empty=True
        )
        if proposed is not None:
            under_way.append(HeldOutPlan(proposed, plan))
    return result, under_way


def targets_of(plans: Sequence[Multiset], right: Multiset) -> Floats:
    """Weights of the plans that a ranker is to choose; shape (n,).

    The right plan has 1. Where it is not among them, those that differ from it in the fewest calls
    share .5, so that every demonstration is learned from.
    """
    wanted = Counter(right)
    distances = []
    for plan in plans:
        counts = Counter(plan)
        distances.append(((wanted - counts) + (counts - wanted)).total())
    nearest = np.array(distances) == min(distances)
    weight = 1.0 if min(distances) == 0 else _NEAREST
    return np.where(nearest, weight / nearest.sum(), 0.0)


def fit_ranker(held_out: Sequence[HeldOutPlan], tools: int) -> PlanRanker:
    """A ranker that learned from held-out plans."""
    features = [one.proposal.features for one in held_out]
    targets = [targets_of(one.proposal.plans, one.plan) for one in held_out]
    return PlanRanker.fit(features, targets, tools)


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


def calibrate(
    held_out: Sequence[HeldOutPlan], rankers: Mapping[Multiset, PlanRanker]
) -> Floats | None:
    """How often a plan of a probability is right; None of few queries.

    Args:
        held_out: the plans.
        rankers: of each, by the right plan; see ``rank_held_out``.
    """
    if len(held_out) < _FEW:
        return None
    probabilities: list[float] = []
    is_right: list[bool] = []
    for plan in held_out:
        right = plan.right
        shares = rankers[plan.plan].probabilities(plan.proposal.features)
        for number in np.argsort(-shares, kind="stable")[:CALIBRATED].tolist():
            probabilities.append(float(shares[number]))
            is_right.append(number == right)
    return fit_isotonic(probabilities, is_right)
