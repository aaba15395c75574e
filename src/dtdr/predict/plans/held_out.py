"""Plans that nothing has seen: what a ranker of plans learns from, and is calibrated on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import track
from dtdr.predict.plans.beam import Multiset, StepState
from dtdr.predict.plans.expected import ExpectedCalls
from dtdr.predict.plans.links import Links, is_in_order
from dtdr.predict.plans.proposer import LeftOut, PlanProposer, Proposal
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
        number: among the held-out demonstrations.
        position: of the demonstration.
        start: its state before the first call, of a retriever that has not seen it.
        proposal: the candidates.
        plan: the right one.
    """

    number: int
    position: int
    start: Callable[[int], StepState]
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

    def without_edits(self) -> HeldOutPlan:
        """As it would be had the beam's plans not been edited."""
        return replace(self, proposal=self.proposal.without_edits())


def hold_out(
    proposer: PlanProposer,
    demonstrations: Sequence[Demonstration],
    examples: Mapping[int, SpanExample],
    tagged: Sequence[int],
    expected: Sequence[ExpectedCalls],
    folds: Iterable[HeldOutFold],
    held: Sequence[int],
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
        expected: of the remembered plans, by a regression without them.
        folds: parts of the demonstrations that were held out in turn.
        held: positions of those to be held out.
        may_be_empty: whether a plan may have no call.
        seed: of the order of examples.

    Returns:
        Candidates before the first call; and of some demonstrations, of which calls are made, up to
        a place that is drawn at random.
    """
    chosen, rng = set(held), np.random.default_rng(seed)
    first = len(demonstrations) - len(proposer.memory.plans)
    index = {name: number for number, name in enumerate(proposer.tools)}
    numbers = range(len(proposer.tools))
    every = max(1, len(chosen) // _UNDER_WAY)
    result: list[HeldOutPlan] = []
    under_way: list[HeldOutPlan] = []
    work = [(fold, [one for one in fold.positions if one in chosen]) for fold in folds]
    total = sum(len(positions) for _, positions in work)
    todo = iter(track([(f, p) for f, positions in work for p in positions], "plans", total))
    tagger, current = proposer.tagger, None
    for fold, position in todo:
        if fold is not current:
            current, inside = fold, set(fold.positions)
            rest = [examples[place] for place in tagged if place not in inside]
            tagger = SpanTagger.fit(rest, seed=seed)
        texts, calls = examples[position].texts, demonstrations[position].plan.calls
        tools = [index[call.tool] for call in calls]
        plan, at = tuple(sorted(tools)), position - first
        regression = proposer.regression
        left_out = (
            LeftOut(at, plan, expected[at], tagger)
            if at >= 0
            else LeftOut(at, None, regression.expect(regression.predict(texts.text.text)), tagger)
        )
        state = fold.start(position)
        proposed = proposer.propose(
            texts, state, (), numbers, may_be_empty=may_be_empty, left_out=left_out
        )
        if proposed is None:
            continue
        result.append(HeldOutPlan(len(result), position, fold.start, proposed, plan))
        if len(result) % every or not calls:
            continue
        made = int(rng.integers(1, len(calls) + 1))
        for tool, call in zip(tools[:made], calls[:made], strict=True):
            state.call(tool, call)
        proposed = proposer.propose(
            texts, state, tools[:made], numbers, may_be_empty=True, left_out=left_out
        )
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
    """Two rankers, each of which learned from every other held-out plan."""

    def __init__(self, rankers: Sequence[PlanRanker]) -> None:
        self._rankers = rankers

    @classmethod
    def fit(cls, held_out: Sequence[HeldOutPlan], tools: int) -> Self:
        """Learn from held-out plans that call so many tools."""
        halves = [held_out[half::2] for half in (0, 1)]
        return cls(
            [
                PlanRanker.fit(
                    [one.proposal.features for one in half], [one.targets for one in half], tools
                )
                for half in halves
            ]
        )

    @property
    def tools(self) -> int:
        """How many there are."""
        return len(self._rankers[0].tools)

    def probabilities(self, plan: HeldOutPlan) -> Floats:
        """Of the candidates, by the ranker that has not learned from the plan; shape (n,)."""
        ranker = self._rankers[1 - plan.number % 2]
        return ranker.probabilities(plan.proposal.features)


def edits_help(held_out: Sequence[HeldOutPlan], rankers: HalfRankers) -> bool:
    """Whether more held-out plans are right where edited plans are candidates too.

    First and among five count alike.

    Args:
        held_out: with edited plans.
        rankers: which learned from them.
    """
    without = [one.without_edits() for one in held_out]
    others = HalfRankers.fit(without, rankers.tools)
    gain = 0
    for one, less in zip(held_out, without, strict=True):
        gain += _grade(one, rankers) - _grade(less, others)
    return gain > 0


def _grade(plan: HeldOutPlan, rankers: HalfRankers) -> int:
    """2 where the right plan comes first, 1 where it is among the first five."""
    if plan.right < 0:
        return 0
    shares = rankers.probabilities(plan)
    before = int((shares > shares[plan.right]).sum())
    return (before < 1) + (before < CALIBRATED)


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
