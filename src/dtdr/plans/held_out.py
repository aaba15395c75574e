"""Plans that nothing has seen: what a ranker of plans learns from, and is calibrated on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtdr.demonstrations import Demonstration
from dtdr.plans.beam import Candidate, Multiset, StepState
from dtdr.plans.features import PlanFeatures
from dtdr.plans.links import Links, is_in_order
from dtdr.plans.ranker import PlanRanker

Floats = npt.NDArray[np.float64]

_FEW = 20
"""Held-out plans below which probabilities are not calibrated."""
_NEAREST = 0.5
"""What a query counts whose right plan is not among its candidates. With 0, inner folds of T-Eval
have .264 right first and .488 among five, with this .274 and .496."""
_CALIBRATED = 5
"""Plans of each query that probabilities are calibrated on."""


@dataclass(frozen=True, slots=True)
class HeldOutFold:
    """A part of the demonstrations, and a retriever that has not seen them.

    Attributes:
        positions: which demonstrations.
        start: the state of a demonstration, by its position, before the first call.
    """

    positions: Sequence[int]
    start: Callable[[int], StepState]


@dataclass(frozen=True, slots=True)
class HeldOutPlan:
    """A held-out demonstration and its candidates.

    Attributes:
        position: of the demonstration.
        start: its state before the first call, of a retriever that has not seen it.
        candidates: as they were found.
        features: of them.
        targets: shape (n,): what a ranker learns to choose; see ``targets_of``.
        right: the place of the right one, -1 for none.
    """

    position: int
    start: Callable[[int], StepState]
    candidates: list[Candidate]
    features: PlanFeatures
    targets: Floats
    right: int


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


def rank_halves(
    described: Sequence[PlanFeatures], targets: Sequence[Floats], tools: int
) -> list[Floats]:
    """Probabilities of the candidates of each query, by a ranker that learned from others."""
    shares: list[Floats] = [np.empty(0)] * len(described)
    for half in (0, 1):
        ranker = PlanRanker.fit(described[half::2], targets[half::2], tools)
        for number in range(1 - half, len(described), 2):
            shares[number] = ranker.probabilities(described[number])
    return shares


def calibrate(shares: Sequence[Floats], right: Sequence[int]) -> Floats | None:
    """How often a plan of a probability is right; None of few queries."""
    if len(shares) < _FEW:
        return None
    from sklearn.isotonic import IsotonicRegression

    probabilities: list[float] = []
    is_right: list[bool] = []
    for every, place in zip(shares, right, strict=True):
        for number in np.argsort(-every, kind="stable")[:_CALIBRATED].tolist():
            probabilities.append(float(every[number]))
            is_right.append(number == place)
    curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    curve.fit(probabilities, is_right)
    return np.stack([curve.X_thresholds_, curve.y_thresholds_]).astype(np.float64)


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
            plan, order = demonstrations[item.position].plan, item.candidates[item.right].tools
            moved = [order[place] for place in links.order(order)]
            gain += is_in_order([tools[tool] for tool in moved], plan)
            gain -= is_in_order([tools[tool] for tool in order], plan)
    return gain > 0
