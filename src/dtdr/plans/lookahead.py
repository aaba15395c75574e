"""The next step seen from whole plans: what is left in those that agree with the calls so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtdr.demonstrations import Demonstration
from dtdr.plans.beam import Candidate, StepState
from dtdr.ranking import Ranking

Floats = npt.NDArray[np.float64]

SHARE = 0.8
"""How much plans count beside the step's own ranking where somebody asks for them. On an inner
fold of TinyAgent's training side, the best tools of each step make the right plan in .445 of cases
with .8 and .219 with 0, and steps after the gold history have MRR .9518 and .9494."""
_SHARES = (0.4, SHARE)
_GAIN = 0.002
"""MRR by which lookahead has to be ahead on held-out plans to be chosen."""
_OTHER = 0.02
"""Probability of a plan that was not found, at least."""
_LEAST = 1e-6
_MOST_HELD_OUT = 400
"""Plans that the share is chosen on."""


class Lookahead:
    """What the plans of one query say of each next step.

    Given a plan, the tools that are left in it share the probability as the step's own ranking has
    it, and the end has all of it once nothing is left. A plan that a call contradicts is out; what
    no found plan explains is left to the step's own ranking.

    Args:
        candidates: what is left to do in each plan.
        probabilities: shape (n,): of each.
        end: place of the end of plan in the vocabulary.
        share: how much plans count beside the step's own ranking.
    """

    def __init__(
        self, candidates: Sequence[Candidate], probabilities: Floats, end: int, share: float
    ) -> None:
        tools = sorted({tool for item in candidates for tool in item.tools})
        self._tools = np.array([*tools, end], np.intp)
        self._column = {tool: number for number, tool in enumerate(tools)}
        self._left = np.zeros((len(candidates), len(self._tools)))
        for row, item in zip(self._left, candidates, strict=True):
            for tool in item.tools:
                row[self._column[tool]] += 1
        self._probabilities = probabilities.astype(np.float64)
        self._other = max(_OTHER, 1 - float(self._probabilities.sum()))
        self._share = share

    def call(self, tool: int) -> None:
        """One more call; of a tool outside the vocabulary it says nothing."""
        if tool < 0:
            return
        column = self._column.get(tool)
        if column is None:
            self._probabilities[:] = 0
            return
        self._probabilities[self._left[:, column] < 1] = 0
        self._left[:, column] -= 1

    def mix(self, scores: Floats) -> Floats:
        """Probabilities of the next step; shape (tools,), as are the scores."""
        weights = self._probabilities / (self._probabilities.sum() + self._other)
        left = self._left > 0
        left[:, -1] = ~left[:, :-1].any(axis=1)
        shares = np.where(left, np.maximum(scores[self._tools], _LEAST), 0.0)
        shares /= shares.sum(axis=1, keepdims=True)
        mixed = scores * (1 - self._share * float(weights.sum()))
        mixed[self._tools] += self._share * (weights @ shares)
        return mixed

    def rank(self, ranking: Ranking) -> Ranking:
        """The step's own ranking, seen from the plans."""
        return Ranking(
            ranking.vocabulary,
            self.mix(ranking.scores),
            threshold=ranking.threshold,
            calibration=ranking.calibration,
            familiarity=ranking.familiarity,
        )


@dataclass(frozen=True, slots=True)
class HeldOutCandidates:
    """The candidates of a held-out demonstration.

    Attributes:
        position: of the demonstration.
        start: its state before the first call, of a retriever that has not seen it.
        candidates: as they were found.
        probabilities: shape (n,), calibrated, of a ranker that has not seen it.
    """

    position: int
    start: Callable[[int], StepState]
    candidates: Sequence[Candidate]
    probabilities: Floats


def choose_share(
    held_out: Sequence[HeldOutCandidates],
    demonstrations: Sequence[Demonstration],
    vocabulary: Sequence[str],
) -> float:
    """How much plans should count in a step: what ranked held-out steps best, 0 where none helped.

    Args:
        held_out: from which 400 are taken at most, evenly.
        demonstrations: by their positions; their own calls are the history.
        vocabulary: names of the tools, the end of plan left out.
    """
    index = {name: number for number, name in enumerate(vocabulary)}
    end = len(index)
    every = (0.0, *_SHARES)
    ranks: list[list[float]] = [[] for _ in every]
    for item in held_out[:: max(1, -(-len(held_out) // _MOST_HELD_OUT))]:
        state = item.start(item.position)
        ahead = [Lookahead(item.candidates, item.probabilities, end, share) for share in every]
        plan = demonstrations[item.position].plan
        for number, step in enumerate(plan.steps()):
            scores = state.rank().scores
            acceptable = [index.get(name, end) for name in step.acceptable]
            for one, found in zip(ahead, ranks, strict=True):
                mixed = one.mix(scores)
                found.append(1 / (1 + int((mixed > mixed[acceptable].max()).sum())))
            if number < len(plan):
                tool = index[plan.tools[number]]
                state.call(tool, plan.calls[number])
                for one in ahead:
                    one.call(tool)
    if not ranks[0]:
        return 0.0
    own, *others = (float(np.mean(found)) for found in ranks)
    best = int(np.argmax(others))
    return _SHARES[best] if others[best] > own + _GAIN else 0.0
