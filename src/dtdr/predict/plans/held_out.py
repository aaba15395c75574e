"""Plans that nothing has seen: what a ranker of plans learns from, and is calibrated on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import track
from dtdr.predict.plans.asked import AskedReader, ReadsParts
from dtdr.predict.plans.beam import Multiset
from dtdr.predict.plans.links import Links, is_in_order
from dtdr.predict.plans.proposer import PlanProposer, Proposal
from dtdr.predict.plans.ranker import PlanRanker
from dtdr.predict.plans.spans import SpanExample, SpanTagger
from dtdr.rankers.base import HeldOutFold as HeldOutFold
from dtdr.rankers.calibration import fit_isotonic

Floats = npt.NDArray[np.float64]

_FEW = 20
"""Held-out plans below which probabilities are not calibrated."""
_NEAREST = 0.5
"""What a query counts whose right plan is not among its candidates. With 0, inner folds of T-Eval
have .264 right first and .488 among five, with this .274 and .496."""
CALIBRATED = 5
"""Plans of each query that probabilities are calibrated on."""
_UNDER_WAY = 200
"""Held-out plans that are also looked at after some of their calls: each takes a beam search."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutPlan:
    """A held-out demonstration and its candidates.

    Attributes:
        half: 0 or 1, in turn.
        position: of the demonstration.
        proposal: the candidates, of a retriever that has not seen it.
        plan: the right one.
    """

    half: int
    position: int
    proposal: Proposal
    plan: Multiset

    @property
    def targets(self) -> Floats:
        """What a ranker learns to choose, shape (candidates,); see ``targets_of``."""
        return targets_of(self.proposal.plans, self.plan)

    @property
    def right(self) -> int:
        """The place of the right candidate, -1 for none."""
        plans = self.proposal.plans
        return plans.index(self.plan) if self.plan in plans else -1


def read_held_out(
    folds: Iterable[HeldOutFold], held: Collection[int], plans: Sequence[Sequence[int]], tools: int
) -> AskedReader:
    """Learn what parts ask for from the plans to be held out."""
    asked, right = [], []
    for fold in folds:
        for position in fold.positions:
            if position in held:
                state = fold.start(position)
                asked.append(state.asked() if isinstance(state, ReadsParts) else None)
                right.append(tuple(plans[position]))
    return AskedReader.fit(asked, right, tools)


def hold_out(
    proposer: PlanProposer,
    demonstrations: Sequence[Demonstration],
    examples: Mapping[int, SpanExample],
    tagged: Sequence[int],
    folds: Iterable[HeldOutFold],
    held: Collection[int],
    *,
    may_be_empty: bool,
    seed: int,
) -> tuple[list[HeldOutPlan], list[HeldOutPlan]]:
    """The candidates of held-out plans, as if nothing had seen them.

    Args:
        proposer: learned from all demonstrations.
        demonstrations: all of them.
        examples: the spans of some, by position.
        tagged: positions of those whose spans are learned.
        folds: parts of the demonstrations that were held out in turn.
        held: positions of those to be held out.
        may_be_empty: whether a plan may have no call.
        seed: of the order of examples.

    Returns:
        Candidates before the first call; and of some demonstrations, of which calls are made, up to
        a place that is drawn at random.
    """
    rng = np.random.default_rng(seed)
    first = len(demonstrations) - len(proposer.memory.plans)
    index = {name: number for number, name in enumerate(proposer.tools)}
    numbers = range(len(proposer.tools))
    every = max(1, len(held) // _UNDER_WAY)
    result: list[HeldOutPlan] = []
    under_way: list[HeldOutPlan] = []
    work = [(fold, [one for one in fold.positions if one in held]) for fold in folds]
    total = sum(len(positions) for _, positions in work)
    current = None
    for fold, position in track(
        [(f, p) for f, positions in work for p in positions], "plans", total
    ):
        if fold is not current:
            current, inside = fold, set(fold.positions)
            rest = [examples[place] for place in tagged if place not in inside]
            blind = replace(proposer, tagger=SpanTagger.fit(rest, seed=seed))
        calls = demonstrations[position].plan.calls
        tools = [index[call.tool] for call in calls]
        propose = partial(
            blind.propose, examples[position].texts, numbers=numbers, leave_out=position - first
        )
        state = fold.start(position)
        proposed = propose(state, (), may_be_empty=may_be_empty)
        if proposed is None:
            continue
        result.append(HeldOutPlan(len(result) % 2, position, proposed, tuple(sorted(tools))))
        if len(result) % every or not calls:
            continue
        made = int(rng.integers(1, len(calls) + 1))
        for tool, call in zip(tools[:made], calls[:made], strict=True):
            state.call(tool, call)
        proposed = propose(state, tools[:made], may_be_empty=True)
        if proposed is not None:
            under_way.append(replace(result[-1], proposal=proposed))
    return result, under_way


def targets_of(plans: Sequence[Multiset], right: Multiset) -> Floats:
    """Weights of the candidates that a ranker is to choose; shape (n,).

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


class HalfRankers:
    """Two rankers, each of which learned from one half of the held-out plans.

    Args:
        rankers: of the halves.
    """

    def __init__(self, rankers: Sequence[PlanRanker]) -> None:
        self._rankers = rankers

    @classmethod
    def fit(cls, held_out: Sequence[HeldOutPlan], tools: int) -> Self:
        """Learn from held-out plans that call this many tools."""
        halves = [[one for one in held_out if one.half == half] for half in (0, 1)]
        return cls([fit_ranker(half, tools) for half in halves])

    def with_greedy_first(self) -> HalfRankers:
        """The same with the plan of the best tool of each step in front."""
        return HalfRankers([replace(one, greedy_first=True) for one in self._rankers])

    def probabilities(self, plan: HeldOutPlan) -> Floats:
        """Of the candidates, by the ranker that has not learned from the plan; shape (n,)."""
        return self._rankers[1 - plan.half].probabilities(plan.proposal.features)

    def count_right(self, held_out: Sequence[HeldOutPlan]) -> int:
        """How many held-out plans come first."""
        return sum(int(self.probabilities(one).argmax()) == one.right for one in held_out)


def fit_ranker(held_out: Sequence[HeldOutPlan], tools: int) -> PlanRanker:
    """A ranker that learned from held-out plans."""
    features = [one.proposal.features for one in held_out]
    return PlanRanker.fit(features, [one.targets for one in held_out], tools)


def calibrate(held_out: Sequence[HeldOutPlan], shares: Sequence[Floats]) -> Floats | None:
    """How often a plan of a probability is right; None of few queries.

    Args:
        held_out: the plans.
        shares: the probabilities of the candidates of each, shape (candidates,).
    """
    if len(shares) < _FEW:
        return None
    probabilities: list[float] = []
    is_right: list[bool] = []
    for every, plan in zip(shares, held_out, strict=True):
        right = plan.right
        for number in np.argsort(-every, kind="stable")[:CALIBRATED].tolist():
            probabilities.append(float(every[number]))
            is_right.append(number == right)
    return fit_isotonic(probabilities, is_right)


def orders_better(
    held_out: Sequence[HeldOutPlan],
    demonstrations: Sequence[Demonstration],
    folds: Iterable[HeldOutFold],
    tools: Sequence[str],
) -> bool:
    """Whether more held-out plans follow their dependencies in the order of demonstrations.

    Otherwise calls stay in the order that is most probable step by step.
    """
    index = {name: number for number, name in enumerate(tools)}
    gain = 0
    for fold in folds:
        inside = set(fold.positions)
        links = Links.fit(
            (item.plan for place, item in enumerate(demonstrations) if place not in inside),
            index,
            reorders=True,
        )
        for item in held_out:
            if item.right < 0 or item.position not in inside:
                continue
            plan = demonstrations[item.position].plan
            order = item.proposal.candidates[item.right].tools
            moved = [order[place] for place in links.order(order)]
            gain += is_in_order([tools[tool] for tool in moved], plan)
            gain -= is_in_order([tools[tool] for tool in order], plan)
    return gain > 0
