"""Tools that no demonstration calls: how likely they are wanted, by their texts and by counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dtdr.rankers.calibration import Floats
from dtdr.rankers.logistic import fit_logistic
from dtdr.rankers.nn import Indices, Matrix

_DECAY = 2.0
_DRAWN = 16
"""Tools of each training step that the scorer learns from, the acceptable ones included."""
ADDED = 0.3
"""Factor on the odds of tools that were added after the fit, which no demonstration could call. Of
three hidden tools of TinyAgent, three trials on its training side: recall@5 of the hidden ones .66
with .2, .72 with .3 and .77 with .5 (BM25 .47); MRR of other steps .886, .880 and .871."""
_LEAST_SCALE, _FARTHEST = 0.02, 3.0
"""A feature that hardly varied must not decide alone when it does."""
_SMALLEST_LOGIT, _LARGEST_LOGIT = -80.0, 20.0
"""Logits are cut here, so that odds neither overflow nor are all 0."""


@dataclass(frozen=True, eq=False)
class NewToolScorer:
    """The chance that a tool is acceptable, from what is known without its demonstrations.

    A logistic regression, learned from tools that have demonstrations, as if they had none.

    Attributes:
        mean: shape (features,).
        scale: shape (features,).
        weights: shape (features + 1,): of the standardised features, and of 1.
        gate: shape (features + 2,): weights of the log odds that a step wants any of the tools that
            were offered and that no demonstration calls: of 1, of the logarithm of the sum of
            their odds, and of the means of their standardised features.
    """

    mean: Matrix
    scale: Matrix
    weights: Matrix
    gate: Floats

    @classmethod
    def fit(
        cls, examples: Sequence[tuple[Matrix, Matrix, Matrix]], similar: npt.NDArray[np.bool_]
    ) -> NewToolScorer:
        """Weighted logistic loss.

        Args:
            examples: what ``draw_example`` gives of each step.
            similar: shape (features,): which say how similar the text of a tool is to the query; a
                tool is never less likely for that. On the trials of ``ADDED`` the bound costs
                nothing.
        """
        rows, right, weights = map(np.concatenate, zip(*examples, strict=True))
        # What is the same for all tools of a step is left to the gate.
        varies = np.max([part.std(axis=0) for part, _, _ in examples], axis=0) > 0
        mean, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), np.float32(_LEAST_SCALE))
        away = ((rows - mean) / scale).clip(-_FARTHEST, _FARTHEST)
        inputs = np.append(away, np.ones((len(rows), 1)), axis=1)
        inputs[:, :-1][:, ~varies] = 0
        share = float(np.average(right, weights=weights).clip(1e-4, 1 - 1e-4))
        start = np.append(np.zeros(rows.shape[1]), np.log(share / (1 - share)))
        learned = fit_logistic(
            inputs, right, start, decay=_DECAY, counts=weights / weights.mean(), positive=similar
        )
        gate = np.zeros(rows.shape[1] + 2)
        gate[1] = 1
        return cls(mean, scale, learned.astype(np.float32), gate)

    def logits(self, table: Matrix) -> Matrix:
        """Logits of the chances; shape (tools,) for a table of (text features, tools)."""
        inputs = ((table.T - self.mean) / self.scale).clip(-_FARTHEST, _FARTHEST)
        logits: Matrix = inputs @ self.weights[:-1] + self.weights[-1]
        return np.clip(logits, _SMALLEST_LOGIT, _LARGEST_LOGIT, out=logits)

    def _inputs(self, table: Matrix) -> Floats:
        """Inputs of ``gate``: 1, the log of the summed odds, and the mean features of the tools."""
        total = float(np.log(np.exp(self.logits(table)).sum()))
        means = (table.mean(axis=1) - self.mean) / self.scale
        return np.array([1.0, total, *means.clip(-_FARTHEST, _FARTHEST)])

    def with_share(self, steps: Sequence[tuple[Matrix, float]], share: float) -> NewToolScorer:
        """With a gate learned from held-out steps, which starts at a share of all calls.

        Good's estimate is right if further runs are like the demonstrations. Runs of new groups
        call more new tools, and the gate sees that from how close the query is.

        Args:
            steps: the text features of tools that were new to the blocks; and the share of the
                acceptable tools that were among them.
            share: Good's estimate of the calls to tools that no demonstration calls.
        """
        start = self.gate.copy()
        if not steps:
            start[0] = np.log(share)
            return replace(self, gate=start)
        inputs = np.stack([self._inputs(table) for table, _ in steps])
        wanted = np.array([right for _, right in steps])
        low, high = -20.0, 10.0
        for _ in range(40):
            middle = (low + high) / 2
            chances = 1 / (1 + np.exp(-(inputs[:, 1] + middle)))
            low, high = (middle, high) if chances.mean() < share else (low, middle)
        start[0] = low
        gate = fit_logistic(inputs, wanted, start, decay=_DECAY)
        return replace(self, gate=gate)

    def mix(
        self, probabilities: Floats, table: Matrix, new: Indices, offered: npt.NDArray[np.bool_]
    ) -> Floats:
        """Probabilities of all tools when those of some must come from their descriptions.

        Args:
            probabilities: of all tools, summing to 1; overwritten.
            table: shape (text features, new).
            new: shape (new,): the columns of these tools.
            offered: shape (new,): whether the demonstrations could have called them.
        """
        odds: Floats = np.exp(self.logits(table)).astype(np.float64)
        if offered.any():
            logit = float(self._inputs(table[:, offered]) @ self.gate)
            odds[offered] *= np.exp(min(logit, _LARGEST_LOGIT)) / np.add.reduce(odds[offered])
        odds[~offered] *= ADDED
        total = float(np.add.reduce(odds))
        probabilities[new] = 0
        rest = float(np.add.reduce(probabilities))
        if rest > 0:
            probabilities *= 1 / ((1 + total) * rest)
        probabilities[new] = odds / (1 + total)
        probabilities *= 1 / np.add.reduce(probabilities)
        return probabilities


def draw_example(
    rng: np.random.Generator, table: Matrix, right: Indices
) -> tuple[Matrix, Matrix, Matrix]:
    """Features of some tools of a training step, whether each is acceptable, and its weight.

    Shapes (drawn, features), (drawn,) and (drawn,).

    Args:
        rng: draws the tools.
        table: shape (text features, tools).
        right: columns of the acceptable tools, the end of plan left out.
    """
    drawn = others = np.setdiff1d(np.arange(table.shape[1] - 1), right)
    # A step may accept every tool, so that no other is left to draw.
    if len(others) > (most := max(_DRAWN - len(right), 1)):
        drawn = rng.choice(others, most, replace=False)
    # The tools that were drawn represent those that were not.
    each = len(others) / max(len(drawn), 1)
    weights = np.concatenate([np.ones(len(right)), np.full(len(drawn), each)])
    acceptable = np.concatenate([np.ones(len(right)), np.zeros(len(drawn))])
    rows = table[:, np.concatenate([right, drawn])].T.copy()
    return rows, acceptable.astype(np.float32), weights.astype(np.float32)
