"""Judges of a new version: held-out demonstrations, and those that the served version learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.harness import rank_steps
from dtdr.predict.gains import ToolGains, reciprocal_rank
from dtdr.predict.model import Model
from dtdr.rankers.dtdr_f.factored import DTDRFactored

FEWEST_HELD_OUT = 20
"""With fewer, MRR moves by some hundredths with each demonstration."""
_RECALLED = 200
"""Demonstrations of the served version whose first steps are ranked again."""


@dataclass(frozen=True)
class HeldOut:
    """A demonstration to measure on.

    Attributes:
        demonstration: that no version learns.
        sender: id of the key that sent it; empty without keys, None if the operator gave it.
    """

    demonstration: Demonstration
    sender: str | None


@dataclass(frozen=True)
class Verdict:
    """The judges' comparison of two versions.

    Attributes:
        before: MRR of the served version.
        after: MRR of the new one.
        gains: by tool, the mean gain in 1 / rank at the steps where the demonstrations do not call
            it, largest first.
    """

    before: float
    after: float
    gains: dict[str, float]


def compare(before: Model, after: Model, held_out: Sequence[HeldOut], share: float) -> Verdict:
    """Measure two versions on held-out demonstrations, teacher-forced, ends included.

    Args:
        before: the served version.
        after: the new one.
        held_out: to measure on.
        share: that one sender may have in the result where there are others.
    """
    weights = weigh([item.sender for item in held_out], share)
    items = [item.demonstration for item in held_out]
    weight_of = {id(item): weight for item, weight in zip(items, weights, strict=True)}
    totals = [0.0, 0.0, 0.0]
    gains = ToolGains()
    steps = zip(rank_steps(before, items), rank_steps(after, items), strict=True)
    for (item, done, old), (_, _, new) in steps:
        acceptable = item.plan.acceptable_next(range(done))
        weight = weight_of[id(item)]
        for at, tools in enumerate((old.tools, new.tools)):
            totals[at] += weight * reciprocal_rank(tools, acceptable)
        totals[2] += weight
        gains.add(old.tools, new.tools, acceptable)
    recalled = zip(_recall(before), _recall(after), strict=False)
    for (old_tools, right), (new_tools, _) in recalled:
        gains.add(old_tools, new_tools, right)
    total = totals[2] or 1.0
    return Verdict(totals[0] / total, totals[1] / total, gains.means())


def weigh(senders: Sequence[str | None], share: float) -> list[float]:
    """The weight of each demonstration, so that no sender has more than a share of them all.

    It is 1 unless one sender has more, and the others have enough to measure on.
    """
    counts = Counter(senders)
    weights: dict[str | None, float] = {}
    for sender, count in counts.items():
        others = len(senders) - count
        most = others * share / (1 - share) if share < 1 else inf
        is_limited = sender is not None and others >= FEWEST_HELD_OUT
        weights[sender] = min(1.0, most / count) if is_limited else 1.0
    return [weights[sender] for sender in senders]


def _recall(model: Model) -> Iterator[tuple[Sequence[str], Iterable[str]]]:
    """The first steps of demonstrations that a model learned, as it ranks them."""
    return model.ranker.recall(_RECALLED) if isinstance(model.ranker, DTDRFactored) else iter(())
