"""Tools that no demonstration calls yet: how likely they are wanted, by their descriptions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.calibration import Floats
from dtdr.errors import ModelError
from dtdr.retrievers.factored.step_features import StepFeatures
from dtdr.retrievers.nn import (
    Indices,
    Input,
    Matrix,
    Network,
    RowGradient,
    binary_cross_entropy,
    cosine,
    train,
)

_HIDDEN = 16
_EPOCHS = 30
_BATCH = 512
_RATE = 5e-3
_DRAWN = 16
"""Tools that are looked at in each step of training, the acceptable ones among them."""
CAUTION = 0.05
"""Odds of a new tool count at least so much: less than 1, since tools that stand in for new ones
were in the plans that the blocks learned from. On six validation trials of three hidden tools of
TinyAgent: recall@5 of the hidden ones .81 (BM25 .62) and -.010 to +.009 MRR on other steps; with
.2, .84 and down to -.034."""
_CAUTIONS = (CAUTION, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
"""What is tried on steps whose blocks had not seen some tool: with 20 demonstrations of T-Eval,
tools that none of them calls are right at 10 to 21 % of the steps."""
BY_RANKERS = 0.0
"""In place of a caution: the rankers rank new tools as all others."""
_ERRORS = 2.0
"""Rankers have to rank better by so many standard errors."""
_ENOUGH = 5
"""Steps at which an unseen tool was right, from which the caution is learned."""
_PLACES, _FIRST_PLACE = 2, 3
"""The two likeliest new tools stand at least at places 4 and 5, so that a short list shows them."""
_WORTH_SHOWING = math.log(0.005 / 0.995)
"""If they are this likely (.005); .02 cost .02 of recall@5 in the same trials."""
_LARGEST_LOGIT = 20.0
"""Logits are cut here, so that odds do not overflow."""
_ARRAYS = ("mean", "scale", "features", "hidden_bias", "output", "output_bias")


@dataclass(frozen=True, slots=True)
class NewToolStep:
    """A step of a held-out plan among tools that the plans learned from do not call.

    Attributes:
        described: shape (features + 1, new): what is known of these tools.
        new: shape (new,): their columns.
        row: shape (tools in view,): probabilities by a ranker that ranks these tools too.
        right: shape (tools in view,): whether each is acceptable.
    """

    described: Matrix
    new: Indices
    row: Matrix
    right: npt.NDArray[np.bool_]

    def others(self) -> Floats:
        """Probabilities of the other tools; 0 for these."""
        others = self.row.astype(np.float64)
        others[self.new] = 0
        others /= max(float(others.sum()), 1e-300)
        return others

    def reciprocal_rank(self, scores: npt.NDArray[np.floating[Any]]) -> float:
        """Of the best acceptable tool; 0 where none is in view."""
        best = scores[self.right].max(initial=-np.inf)
        return 1 / (1 + int((scores > best).sum())) if self.right.any() else 0.0


class NewToolScorer:
    """The chance that a tool is acceptable, from what is known without its demonstrations.

    Learned from tools that have demonstrations, as if they had none.

    Args:
        parameters: ``mean`` and ``scale`` (features,), ``features`` (features, 16),
            ``hidden_bias`` (16,), ``output`` (16, 1), ``output_bias`` (1,).
        caution: factor on the odds of new tools; ``BY_RANKERS`` where the rankers of all tools,
            which learned from steps at which a tool was new to the blocks, rank them better.
    """

    def __init__(self, parameters: dict[str, Matrix], caution: float = CAUTION) -> None:
        self.parameters, self.caution = parameters, caution
        hidden = parameters["features"] / parameters["scale"][:, None]
        bias = parameters["hidden_bias"] - parameters["mean"] @ hidden
        # As in ``Scorer``, the row of ones carries the bias.
        self._hidden = np.ascontiguousarray(np.concatenate([hidden, bias[None]]).T)
        self._output = parameters["output"][:, 0].copy()
        self._output_bias = float(parameters["output_bias"][0])

    @classmethod
    def fit(cls, rows: Matrix, right: Matrix, weights: Matrix, seed: int) -> NewToolScorer:
        """Weighted logistic loss.

        Args:
            rows: shape (pairs, features).
            right: shape (pairs,): 1 where the tool was acceptable.
            weights: shape (pairs,).
            seed: weights and order.
        """
        rng = np.random.default_rng(seed)
        mean, scale = rows.mean(axis=0), rows.std(axis=0) + np.float32(1e-4)
        inputs = ((rows - mean) / scale).astype(np.float32)
        share = float(np.average(right, weights=weights).clip(1e-4, 1 - 1e-4))
        width = rows.shape[1]
        network = Network(
            {
                "features": rng.standard_normal((width, _HIDDEN), np.float32) * np.float32(0.3),
                "hidden_bias": np.zeros(_HIDDEN, np.float32),
                "output": rng.standard_normal((_HIDDEN, 1), np.float32) * np.float32(0.1),
                "output_bias": np.array([np.log(share / (1 - share))], np.float32),
            }
        )
        weights = weights / weights.mean()

        def gradients(chosen: Indices) -> dict[str, Matrix | RowGradient]:
            targets, counts = right[chosen, None], weights[chosen]
            return network.gradients(
                {"features": Input(inputs[chosen])},
                lambda logits: binary_cross_entropy(logits, targets, counts),
            )[1]

        train(
            network.parameters,
            gradients,
            len(rows),
            epochs=_EPOCHS,
            batch_size=_BATCH,
            rate=lambda epoch: cosine(_RATE, epoch / _EPOCHS),
            rng=rng,
        )
        return cls({**network.parameters, "mean": mean, "scale": scale})

    def logits(self, table: Matrix) -> Matrix:
        """Logits of the chances; shape (tools,) for a table of (features + 1, tools)."""
        active = self._hidden @ table
        np.maximum(active, 0, out=active)
        logits: Matrix = self._output @ active
        logits += self._output_bias
        return logits

    def _odds(self, described: Matrix) -> tuple[Matrix, Floats]:
        """Logits of some tools, and their odds before caution."""
        logits = self.logits(described)
        np.minimum(logits, _LARGEST_LOGIT, out=logits)
        odds: Floats = np.exp(logits).astype(np.float64)
        return logits, odds

    def with_caution(self, steps: Sequence[NewToolStep]) -> NewToolScorer:
        """With what is learned from held-out steps at which tools were new to the blocks.

        The caution is the one that makes acceptable tools likeliest. Where the rankers rank these
        tools themselves, as they rank all others, and that is clearly better by the mean
        reciprocal rank, it is left to them: they learned from such steps too.
        """
        if sum(bool(step.right[step.new].any()) for step in steps) < _ENOUGH:
            return self
        known = np.array([step.others()[step.right].sum() for step in steps])
        odds = [self._odds(step.described)[1] for step in steps]
        total = np.array([each.sum() for each in odds])
        wanted = np.array(
            [each[step.right[step.new]].sum() for each, step in zip(odds, steps, strict=True)]
        )
        likelihoods = [
            float(np.log((known + caution * wanted + 1e-9) / (1 + caution * total)).sum())
            for caution in _CAUTIONS
        ]
        caution = _CAUTIONS[int(np.argmax(likelihoods))]
        above = np.empty(len(steps))
        for number, (step, each) in enumerate(zip(steps, odds, strict=True)):
            mixed = step.others()
            mixed[step.new] = caution * each
            above[number] = step.reciprocal_rank(step.row) - step.reciprocal_rank(mixed)
        is_left = above.mean() > _ERRORS * above.std() / np.sqrt(len(above))
        return NewToolScorer(self.parameters, BY_RANKERS if is_left else caution)

    @property
    def leaves_to_rankers(self) -> bool:
        """Whether the rankers rank new tools, and this does not."""
        return self.caution == BY_RANKERS

    def mix(self, probabilities: Floats, step: StepFeatures) -> Floats:
        """Probabilities of all tools when those of some must come from their descriptions.

        Args:
            probabilities: of the tools in view, summing to 1; overwritten.
            step: that they were made from.
        """
        new = step.query.view.new
        logits, odds = self._odds(step.describe(new))
        odds *= self.caution
        total = float(np.add.reduce(odds))
        mixed = probabilities
        mixed[new] = 0
        rest = float(np.add.reduce(mixed))
        if rest > 0:
            mixed *= 1 / ((1 + total) * rest)
        odds *= 1 / (1 + total)
        if logits[logits.argmax()] > _WORTH_SHOWING:
            _raise_likeliest(odds, logits, mixed)
        mixed[new] = odds
        mixed *= 1 / np.add.reduce(mixed)
        return mixed


def _raise_likeliest(odds: Floats, logits: Matrix, others: Floats) -> None:
    """Raise the likeliest new tools that are worth showing to places 4 and 5, in place."""
    values = logits.tolist()
    likeliest = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:_PLACES]
    if len(others) < _FIRST_PLACE + len(likeliest):
        likeliest = likeliest[: max(len(others) - _FIRST_PLACE, 0)]
    known = others.copy()
    known.partition([-1 - _FIRST_PLACE - number for number in range(len(likeliest))])
    for number, place in enumerate(likeliest):
        if values[place] > _WORTH_SHOWING:
            odds[place] = max(odds[place], known[-1 - _FIRST_PLACE - number] * 1.01)


def example(
    rng: np.random.Generator, step: StepFeatures, right: Indices
) -> tuple[Matrix, Matrix, Matrix]:
    """What a step of training says: features, whether acceptable, and weights of some tools.

    Args:
        rng: draws the tools.
        step: just written.
        right: columns of the acceptable tools, the end of plan left out.
    """
    is_other = np.ones(step.query.view.size - 1, np.bool_)
    is_other[right] = False
    others = is_other.nonzero()[0]
    drawn = others
    if len(others) + len(right) > _DRAWN:
        drawn = rng.choice(others, max(_DRAWN - len(right), 1), replace=False)
    # The tools that were drawn stand for those that were not.
    each = len(others) / max(len(drawn), 1)
    weights = np.concatenate([np.ones(len(right)), np.full(len(drawn), each)])
    acceptable = np.concatenate([np.ones(len(right)), np.zeros(len(drawn))])
    rows = step.describe(np.concatenate([right, drawn]))[:-1].T.copy()
    return rows, acceptable.astype(np.float32), weights.astype(np.float32)


def arrays(scorer: NewToolScorer | None) -> dict[str, npt.NDArray[Any]]:
    """The arrays to save; empty without a scorer."""
    none = np.zeros(0, np.float32)
    return {
        **{
            f"new_tools.{name}": none if scorer is None else scorer.parameters[name]
            for name in _ARRAYS
        },
        "new_tools.caution": none if scorer is None else np.array([scorer.caution]),
    }


def restore(arrays: Mapping[str, npt.NDArray[Any]], features: int) -> NewToolScorer | None:
    """The scorer that ``arrays`` gave.

    Raises:
        KeyError: an array is missing.
        ModelError: it scores another number of features.
    """
    parameters = {name: arrays[f"new_tools.{name}"] for name in _ARRAYS}
    if not len(parameters["mean"]):
        return None
    fits = parameters["features"].shape == (features, _HIDDEN)
    if not (fits and (parameters["scale"] > 0).all()):
        raise ModelError(f"the scorer of new tools does not fit its {features} features")
    # Folders of versions that did not learn it lack the caution.
    return NewToolScorer(parameters, float(arrays.get("new_tools.caution", [CAUTION])[0]))
