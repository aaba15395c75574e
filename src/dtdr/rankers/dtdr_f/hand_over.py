"""From descriptions to demonstrations: how much each says about the next tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from dtdr.rankers.calibration import Calibration, Floats, fit_confidence
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.nn import Indices, Matrix
from dtdr.rankers.zero_shot.scorer import ZeroShotState, shipped_weights

_EARLY = 10
"""Demonstrations after the first that count as much as descriptions do."""

_BY_TEXT, _BY_COUNTS = 0.75, 0.25
"""Tools that no demonstration calls are raised to a product of powers of the share that their texts
give them and of the one that is learned. Of 45 such rules, a fifth of the tools hidden from 120
demonstrations: MRR of steps that want a hidden tool T-Eval .38 -> .44, UltraTool .41 -> .45,
TinyAgent .22 -> .23; other steps do not lose. Without the learned share, those of TinyAgent lose
.01 to .02."""
_FEW_STEPS, _REPEATED = 200, 4
"""Held-out steps below which the calibration of other sets counts as some twenty more."""
LEAST_STEPS = 60
"""Held-out steps that are enough to choose and to calibrate by."""
_LEAST_OF_A_KIND = 20
"""Steps where the end is best, and where a tool is, from which each kind has its own curve."""
_TINY = 1e-9

Numbers = TypeVar("Numbers", float, Floats)


@dataclass(frozen=True, eq=False)
class HandOver:
    """A mixture of two rankings of a step, with demonstrations and without.

    Attributes:
        share: weight of the ranking without demonstrations: 1 with one of them, a half with
            eleven, a tenth with ninety-one.
        new: columns of the tools that no demonstration calls.
    """

    share: float
    new: Indices

    @classmethod
    def of(cls, data: EncodedDemonstrations) -> Self:
        """The mixture for a model of these demonstrations."""
        share = min(1.0, _EARLY / (_EARLY - 1 + max(len(data), 1)))
        return cls(share, np.flatnonzero(data.frequency[:-1] == 0))

    def mix(self, learned: Floats, zero_shot: ZeroShotState) -> Floats:
        """Probabilities of every tool and of the end; shape (tools,), summing to 1.

        Args:
            learned: from the demonstrations.
            zero_shot: the same step without them.
        """
        tools = zero_shot.tools()
        if not len(tools):
            return learned
        progress, new = zero_shot.progress, float(np.add.reduce(tools[self.new]))
        share = self.share_at(new)
        if not progress.match.known:
            # Only what agents do in general is left, of which demonstrations say more, and no tool
            # that none of them calls is named.
            share = self.share * self.share
        end = float(learned[-1])
        if progress.calls:
            end += self.share * (zero_shot.end() - end)
        known = float(np.add.reduce(learned[:-1]))
        mixed = np.empty(len(learned))
        # Of a step that surely ends, the demonstrations say nothing about tools.
        mixed[:-1] = tools if known <= 0 else learned[:-1] * ((1 - share) / known) + share * tools
        learned_new = float(np.add.reduce(learned[self.new]))
        if learned_new > 0 and progress.match.known:
            raised = self.raised(new, learned_new / known)
            mixed[:-1] *= 1 - raised
            mixed[self.new] += learned[self.new] * (raised / learned_new)
        mixed[:-1] *= 1 - end
        mixed[-1] = end
        return mixed

    def share_at(self, new: Numbers) -> Numbers:
        """The weight of the ranking without demonstrations, by its probability of ``new``."""
        return self.share * (1 + (1 - self.share) * new)

    def raised(self, new: Numbers, learned: float) -> Numbers:
        """The share of a step that is moved to ``new``, in the order that was learned.

        How often further runs call such tools cannot be counted from the demonstrations, which
        tend to have too few of them.

        Args:
            new: their probability by their texts.
            learned: the one from the demonstrations.
        """
        raised: Numbers = (1 - self.share) ** 3 * new**_BY_TEXT * learned**_BY_COUNTS
        return raised


class ZeroShotColumns(NamedTuple):
    """Features of the zero-shot ranking of a held-out step.

    Attributes:
        chances: shape (k,): of the candidates of the step, in their order; of the end of plan too.
        is_end: shape (k,): which candidate is the end of plan.
        new: the probability of the tools that no demonstration calls.
        outside: the highest probability of a tool that is not a candidate.
        is_outside_right: whether that tool is acceptable.
    """

    chances: Floats
    is_end: npt.NDArray[np.bool_]
    new: float
    outside: float
    is_outside_right: bool

    @classmethod
    def of(
        cls, state: ZeroShotState, hand_over: HandOver, candidates: Indices | None, right: Matrix
    ) -> Self:
        """Read a step.

        Args:
            state: the step.
            hand_over: of the fold.
            candidates: positions of tools; None if all are candidates.
            right: shape (tools,): above 0 where a tool is acceptable.
        """
        tools, end = state.tools(), state.end()
        chances = np.append(tools, end)
        is_end = np.arange(len(chances)) == len(tools)
        new = float(np.add.reduce(tools[hand_over.new]))
        if candidates is None:
            return cls(chances, is_end, new, 0.0, False)
        rest = tools.copy()
        rest[candidates[candidates < len(tools)]] = 0
        best = int(rest.argmax())
        return cls(
            chances[candidates], is_end[candidates], new, float(rest[best]), bool(right[best] > 0)
        )


def calibrate(
    learned: Matrix,
    right: Matrix,
    zero_shot: Sequence[ZeroShotColumns],
    hand_over: HandOver,
    new_tool_share: float,
) -> Calibration:
    """Calibrate the mixed probabilities on held-out steps.

    While there are few such steps, what other sets say counts too.

    Args:
        learned: shape (steps, k): of the candidates, from the demonstrations.
        right: shape (steps, k): above 0 where a candidate is acceptable.
        zero_shot: of each step.
        hand_over: of all demonstrations.
        new_tool_share: how likely a call is to a tool that no demonstration calls.
    """
    mixed = _mix_steps(learned, zero_shot, hand_over, new_tool_share)
    outside_right = np.array([step.is_outside_right for step in zero_shot])
    is_right = np.append(right > 0, outside_right[:, None], axis=1)
    best = mixed.argmax(axis=1)
    rows = np.arange(len(best))
    acceptable = (mixed * is_right).max(axis=1)
    points, outcomes = mixed[rows, best], is_right[rows, best].astype(np.float64)
    if len(best) < _FEW_STEPS:
        shipped = shipped_weights()
        acceptable = np.append(acceptable, shipped.quantiles)
        points = np.append(points, np.repeat(shipped.confidence[0], _REPEATED))
        outcomes = np.append(outcomes, np.repeat(shipped.confidence[1], _REPEATED))
    else:
        is_end = np.array([step.is_end for step in zero_shot])
        ends = np.append(is_end, np.zeros((len(best), 1), np.bool_), axis=1)[rows, best]
        if min(int(ends.sum()), int((~ends).sum())) >= _LEAST_OF_A_KIND:
            tool, finish = (fit_confidence(points[kind], outcomes[kind]) for kind in (~ends, ends))
            return Calibration(np.sort(acceptable), tool, end_confidence=finish)
    return Calibration(np.sort(acceptable), fit_confidence(points, outcomes))


def _mix_steps(
    learned: Matrix,
    zero_shot: Sequence[ZeroShotColumns],
    hand_over: HandOver,
    new_tool_share: float,
) -> Floats:
    """``HandOver.mix`` for held-out steps at once; see ``calibrate`` for the arguments.

    Returns:
        Shape (steps, k + 1): of the candidates, and of the likeliest tool that is none of them.
    """
    chances = np.array([step.chances for step in zero_shot])
    is_end = np.array([step.is_end for step in zero_shot])
    new = np.array([step.new for step in zero_shot])
    outside = np.array([step.outside for step in zero_shot])
    share = hand_over.share_at(new)[:, None]
    raised = hand_over.raised(new, new_tool_share)[:, None]
    learned_end = (learned * is_end).sum(axis=1, keepdims=True)
    zero_shot_end = (chances * is_end).sum(axis=1, keepdims=True)
    end = learned_end + hand_over.share * (zero_shot_end - learned_end)
    known = np.where(is_end, 0, learned) / np.maximum(1 - learned_end, _TINY)
    tools = (1 - share) * known + share * np.where(is_end, 0, chances)
    # What is neither the end nor moved to tools that no demonstration calls.
    left = (1 - end) * (1 - raised)
    mixed: Floats = np.where(is_end, end, left * tools)
    return np.append(mixed, left * share * outside[:, None], axis=1)
