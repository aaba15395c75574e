"""The next step seen from whole plans: what is left in those that agree with the calls so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtdr.arguments.values import canonical
from dtdr.demonstrations import Demonstration
from dtdr.plans.beam import Candidate, StepState
from dtdr.ranking import Ranking

Floats = npt.NDArray[np.float64]

SHARE = 0.8
"""How much plans count beside the step's own ranking where somebody asks for them. On an inner
fold of TinyAgent's training side, the best tools of each step make the right plan in .445 of cases
with .8 and .219 with 0, and steps after the gold history have MRR .9518 and .9494."""
_SHARES = (0.4, SHARE)
_SPANS = (0.0, 2.0)
"""By how much more likely a tool is called next that is sure to be given a value which no call has
been given yet."""
_ERRORS = 1.0
"""Standard errors by which lookahead has to rank held-out steps better to be chosen."""
_OTHER = 0.02
"""Probability of a plan that was not found, at least."""
_LEAST = 1e-6
_MOST_HELD_OUT = 400
"""Plans that the weights are chosen on."""


class LookaheadWeights(NamedTuple):
    """How much whole plans, and values of the query not used yet, count in a step.

    Attributes:
        share: of plans beside the step's own ranking; 0 ranks each step by itself.
        spans: of values that no call has been given.
    """

    share: float = 0.0
    spans: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class SpanEvidence:
    """The values that the spans of a query say, and which tools are given them.

    Attributes:
        forms: canonical form of each.
        given: shape (values, tools of the vocabulary but its end): how likely each is given it.
    """

    forms: Sequence[str] = ()
    given: Floats = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True, slots=True, eq=False)
class CandidatePlans:
    """The candidates of one run by their tools, most probable first.

    Attributes:
        candidates: what is left to do of each.
        probabilities: shape (n,), calibrated; they sum to about 1.
        spans: which tools are given the values of the query.
    """

    candidates: Sequence[Candidate]
    probabilities: Floats
    spans: SpanEvidence = field(default_factory=SpanEvidence)


class Lookahead:
    """What the plans of one query say of each next step.

    Given a plan, the tools that are left in it share the probability as the step's own ranking has
    it, those more that are given a value of the query which no call has been given yet. The end has
    all of it once nothing is left. A plan that a call contradicts is out; what no found plan
    explains is left to the step's own ranking.

    Args:
        plans: of the run.
        end: place of the end of plan in the vocabulary.
        weights: how much plans and values count.
        used: arguments of the calls that were made before.
    """

    def __init__(
        self,
        plans: CandidatePlans,
        end: int,
        weights: LookaheadWeights,
        used: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        tools = sorted({tool for item in plans.candidates for tool in item.tools})
        self._tools = np.array([*tools, end], np.intp)
        self._column = {tool: number for number, tool in enumerate(tools)}
        self._left = np.zeros((len(plans.candidates), len(self._tools)))
        for row, item in zip(self._left, plans.candidates, strict=True):
            for tool in item.tools:
                row[self._column[tool]] += 1
        self._probabilities = plans.probabilities.astype(np.float64)
        self._other = max(_OTHER, 1 - float(self._probabilities.sum()))
        self._weights = weights
        self._forms = {form: number for number, form in enumerate(plans.spans.forms)}
        self._given = np.zeros((len(self._forms), len(self._tools)))
        if len(self._forms):
            self._given[:, :-1] = plans.spans.given[:, self._tools[:-1]]
        self._unused = np.ones(len(self._forms))
        for arguments in used:
            self._use(arguments)

    def call(self, tool: int, arguments: Mapping[str, Any] | None = None) -> None:
        """One more call; of a tool outside the vocabulary it says nothing.

        Args:
            tool: its place in the vocabulary.
            arguments: where they are known; otherwise the value that is most likely meant for the
                tool is taken to be used.
        """
        if tool < 0:
            return
        column = self._column.get(tool)
        if arguments:
            self._use(arguments)
        elif column is not None and len(self._unused):
            meant = self._unused * self._given[:, column]
            most = int(np.argmax(meant))
            self._unused[most] *= 1 - meant[most]
        if column is None:
            self._probabilities[:] = 0
            return
        self._probabilities[self._left[:, column] < 1] = 0
        self._left[:, column] -= 1

    def _use(self, arguments: Mapping[str, Any]) -> None:
        for value in arguments.values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, (str, int, float)) and not isinstance(item, bool):
                    place = self._forms.get(canonical(item))
                    if place is not None:
                        self._unused[place] = 0

    def mix(self, scores: Floats) -> Floats:
        """Probabilities of the next step; shape (tools,), as are the scores."""
        weights = self._probabilities / (self._probabilities.sum() + self._other)
        left = self._left > 0
        left[:, -1] = ~left[:, :-1].any(axis=1)
        likely = np.maximum(scores[self._tools], _LEAST)
        if self._weights.spans and len(self._unused):
            likely *= 1 + self._weights.spans * (self._unused[:, None] * self._given).max(axis=0)
        shares = np.where(left, likely, 0.0)
        shares /= shares.sum(axis=1, keepdims=True)
        share = self._weights.share
        mixed = scores * (1 - share * float(weights.sum()))
        mixed[self._tools] += share * (weights @ shares)
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
        plans: its candidates, with probabilities of a ranker that has not seen it.
    """

    position: int
    start: Callable[[int], StepState]
    plans: CandidatePlans


def choose_weights(
    held_out: Sequence[HeldOutCandidates],
    demonstrations: Sequence[Demonstration],
    vocabulary: Sequence[str],
) -> LookaheadWeights:
    """How much plans should count in a step: what ranked held-out steps best.

    Nothing where the reciprocal rank did not rise by more than its standard error.

    Args:
        held_out: from which 400 are taken at most, evenly.
        demonstrations: by their positions; their own calls are the history.
        vocabulary: names of the tools, the end of plan left out.
    """
    index = {name: number for number, name in enumerate(vocabulary)}
    end = len(index)
    weights = [LookaheadWeights(share, spans) for share in _SHARES for spans in _SPANS]
    gains: list[Floats] = []
    steps = 0
    for item in held_out[:: max(1, -(-len(held_out) // _MOST_HELD_OUT))]:
        state = item.start(item.position)
        ahead = [Lookahead(item.plans, end, one) for one in weights]
        plan = demonstrations[item.position].plan
        gained = np.zeros(len(weights))
        for number, step in enumerate(plan.steps()):
            scores = state.rank().scores
            acceptable = [index.get(name, end) for name in step.acceptable]
            own = _reciprocal_rank(scores, acceptable)
            gained += [_reciprocal_rank(one.mix(scores), acceptable) - own for one in ahead]
            steps += 1
            if number < len(plan):
                tool, call = index[plan.tools[number]], plan.calls[number]
                state.call(tool, call)
                for one in ahead:
                    one.call(tool, call.arguments)
        gains.append(gained)
    if not steps:
        return LookaheadWeights()
    total = np.sum(gains, axis=0)
    best = int(np.argmax(total))
    error = math.sqrt(sum(float(one[best]) ** 2 for one in gains))
    return weights[best] if total[best] > _ERRORS * error else LookaheadWeights()


def _reciprocal_rank(scores: Floats, acceptable: Sequence[int]) -> float:
    return 1 / (1 + int((scores > scores[acceptable].max()).sum()))
