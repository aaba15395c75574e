"""One small network, shared by all tools, that scores the candidates of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.rankers.calibration import Floats
from dtdr.rankers.dtdr_f.blocks import LAYOUT
from dtdr.rankers.nn import (
    RULED_OUT,
    DropoutMasks,
    Indices,
    Matrix,
    log_softmax,
    marginal_cross_entropy,
)
from dtdr.rankers.optimiser import cosine, train

_ALL_RANKED, _SHORTLIST = 64, 32
"""Up to 64 tools, the ranker sees all of them; among more, 32 candidates a step: 40 changed
validation MRR by less than .004 on three sets."""
_FEW_HIDDEN, _MANY_HIDDEN = 32, 64
"""Hidden units where all tools are ranked, and where candidates are: 64 among T-Eval's 50 tools
-.004 to +.005, 128 among UltraTool's 260 no better."""
EPOCHS = 30
_BATCH, _RATE, _DROPPED = 64, 5e-3, 0.3
_AVERAGED, _LEAST_RATE, _DECAY = 0.5, 0.4, 0.1
"""The weights are the mean over the second half of the training, at a rate that stays high: with
more decay, .0026 on T-Eval, .0005 on TinyAgent, .006 on TRAJECT by sequence."""
_MAX_PASSES = 300_000
"""Steps times epochs: 10,000 steps get all epochs, more get fewer."""
_LINEAR_DECAY, _ROUNDS = 100.0, 60
"""How strongly weights of the linear ranker are drawn to those of the probabilities alone: 10 costs
.004 of log MRR on tau_airline and .002 on tau_retail."""
_CONSTANT = 2e-4
"""A feature that varies less counts as constant, even if it varies more later."""
_OUTSIDE = 1e-5
"""The likeliest tool outside the candidates is at most this likely."""
_SHARES, _TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0), (0.8, 1.0, 1.25, 1.6, 2.0, 3.0)


@dataclass(frozen=True, eq=False)
class CandidateRanker:
    """``score = linear + output relu(hidden)``, where one product gives ``hidden`` and ``linear``.

    A feature outside of its range in training counts as the nearest end of it: a query with two
    requests has values that are a hundred standard deviations away. Scores are computed in double
    precision.

    Attributes:
        low: shape (features + 1, 1): the least value of each feature in training, and 1.
        high: the greatest, in the same shape.
        mean: shape (features,): that of each feature in training.
        weights: shape (hidden + 1, features + 1): of every hidden unit, and of the linear model.
        output: shape (hidden,): weights of the hidden units.
    """

    low: Floats
    high: Floats
    mean: Matrix
    weights: Floats
    output: Floats

    def scores(self, table: Matrix) -> Floats:
        """Log probabilities up to a constant; shape (k,) for a table of (features + 1, k)."""
        units: Floats = self.weights @ np.minimum(np.maximum(table, self.low), self.high)
        active = units[:-1]
        np.maximum(active, 0, out=active)
        scores: Floats = self.output @ active
        scores += units[-1]
        return scores

    def probabilities(self, table: Matrix, new: Indices) -> Floats:
        """Probabilities of all tools; shape (tools,), summing to 1.

        Tools that are not candidates share a small mass by their scores in the shortlist, each
        below every candidate; new ones among them get 0.

        Args:
            table: shape (features + 1, tools).
            new: columns of tools without demonstrations; see ``shortlist``.
        """
        split = shortlist(table, new)
        if split is None:
            return softmax(self.scores(table))
        columns, prior = split
        candidates = softmax(self.scores(table.take(columns, axis=1)))
        outside = prior - prior[prior.argmax()]
        probabilities: Floats = np.exp(outside, out=outside).astype(np.float64)
        probabilities *= min(float(candidates[candidates.argmin()]), _OUTSIDE)
        probabilities[columns] = candidates
        probabilities *= 1 / np.add.reduce(probabilities)
        return probabilities


@dataclass(frozen=True)
class Steps:
    """Steps of held-out plans.

    Attributes:
        features: shape (steps, k, varying), standardised.
        varying: shape (varying,): the features that are not constant; the others say nothing.
        right: shape (steps, k): how much it counts if a candidate is ranked first, 0 to 1.
        penalty: shape (steps, k): added to scores; ``RULED_OUT`` where the run was not offered a
            candidate, else 0.
        standard: each of shape (features,): the ``mean`` that was subtracted, the ``scale`` that
            they were divided by, and ``low`` and ``high``, the least and the greatest value as the
            blocks gave it.
    """

    features: Matrix
    varying: Indices
    right: Matrix
    penalty: Matrix
    standard: dict[str, Matrix]

    @classmethod
    def of(cls, features: Matrix, right: Matrix, absent: npt.NDArray[np.bool_]) -> Steps:
        """Features as the blocks gave them; shape (steps, k, features)."""
        mean, scale = features.mean(axis=(0, 1)), features.std(axis=(0, 1)) + np.float32(1e-4)
        varying = np.flatnonzero(scale >= _CONSTANT)
        if not len(varying):  # no candidate differs from another
            varying = np.arange(1)
        scale[scale < _CONSTANT] = 1
        # These are the largest arrays of a fit: no other copy is made.
        inputs = features.take(varying, axis=2)
        inputs -= mean[varying]
        inputs /= scale[varying]
        penalty = np.where(absent, RULED_OUT, np.float32(0))
        low, high = features.min(axis=(0, 1)), features.max(axis=(0, 1))
        standard = {"mean": mean, "scale": scale, "low": low, "high": high}
        return cls(inputs, varying, right, penalty, standard)

    def part(self, rows: npt.NDArray[Any]) -> Steps:
        """Some of the steps, standardised as all are."""
        return replace(
            self, features=self.features[rows], right=self.right[rows], penalty=self.penalty[rows]
        )


def fit_linear(steps: Steps, prior: Matrix) -> Matrix:
    """The weights of a linear ranker; shape (varying,).

    Those of log probabilities are learned first, then all, drawn to these.

    Args:
        steps: to learn from.
        prior: shape (features,): weights of log probabilities to start from, else 0.
    """
    start = (prior * steps.standard["scale"])[steps.varying].astype(np.float32)
    with_prior = np.flatnonzero(start)
    probabilities_only = replace(steps, features=steps.features[:, :, with_prior])
    start[with_prior] = _minimise(probabilities_only, start[with_prior], 1.0)
    return _minimise(steps, start, _LINEAR_DECAY)


@dataclass(frozen=True)
class RankerFit:
    """A linear ranker, and a network that goes on from it.

    Attributes:
        linear: shape (varying,): weights of the one.
        network: parameters of the other: ``features``, ``hidden_bias``, ``output`` and ``skip``.
        varying: see ``Steps``.
        standard: see ``Steps``.
    """

    linear: Matrix
    network: dict[str, Matrix]
    varying: Indices
    standard: dict[str, Matrix]

    @classmethod
    def of(cls, steps: Steps, prior: Matrix, *, tools: int, seed: int) -> RankerFit:
        """Maximise the probability of acceptable candidates taken together.

        The marginal likelihood leaves it to the ranker which acceptable tool it prefers; ranks are
        as good as with the probability spread over all of them, and the best probability means
        how likely an acceptable tool was found.

        Args:
            steps: to learn from.
            prior: shape (features,): what the linear ranker starts from, from which the network
                goes on.
            tools: size of the vocabulary.
            seed: weights and order of the steps.
        """
        rng, linear = np.random.default_rng(seed), fit_linear(steps, prior)
        hidden = _MANY_HIDDEN if uses_shortlist(tools) else _FEW_HIDDEN
        inputs, right = steps.features, steps.right
        count, k, width = inputs.shape
        epochs = max(3, min(EPOCHS, _MAX_PASSES // max(count, 1)))
        parameters = {
            "features": rng.standard_normal((width, hidden), np.float32) / np.float32(width**0.5),
            "hidden_bias": np.zeros(hidden, np.float32),
            "output": rng.standard_normal((hidden, 1), np.float32) * np.float32(0.05),
            "skip": linear[:, None].copy(),
        }
        batch = min(_BATCH, count)
        # New temporaries of this size are cleared by the system at every step.
        taken = np.empty((batch, k, width), np.float32)
        units = np.empty((2, batch * k, hidden), np.float32)
        ones = np.ones(batch * k, np.float32)
        masks = DropoutMasks(rng, batch * k, hidden, _DROPPED)

        def gradients(batch_steps: Indices) -> dict[str, Matrix]:
            rows = inputs.take(batch_steps, axis=0, out=taken[: len(batch_steps)], mode="clip")
            rows = rows.reshape(-1, width)
            active, back = units[:, : len(rows)]
            np.matmul(rows, parameters["features"], out=active)
            active += parameters["hidden_bias"]
            factor = masks.draw(len(rows)) * (active > 0)
            active *= factor
            scores = active @ parameters["output"] + rows @ parameters["skip"]
            scores = scores.reshape(-1, k) + steps.penalty[batch_steps]
            _, error = marginal_cross_entropy(scores, right[batch_steps])
            error = error.reshape(-1, 1)
            # A product of one column costs three times as much.
            np.multiply(error, parameters["output"][:, 0], out=back)
            back *= factor
            return {
                "features": rows.T @ back,
                "hidden_bias": ones[: len(back)] @ back,
                "output": active.T @ error,
                "skip": rows.T @ error,
            }

        train(
            parameters,
            gradients,
            count,
            epochs=epochs,
            batch_size=_BATCH,
            rate=lambda epoch: cosine(_RATE, epoch / epochs, _LEAST_RATE),
            rng=rng,
            weight_decay=_DECAY,
            averaged=_AVERAGED,
        )
        return cls(linear, parameters, steps.varying, steps.standard)

    def scores(self, steps: Steps) -> tuple[Matrix, Matrix]:
        """Scores of the linear ranker and of the network, each of shape (steps, k)."""
        active = steps.features @ self.network["features"] + self.network["hidden_bias"]
        np.maximum(active, 0, out=active)
        network = active @ self.network["output"] + steps.features @ self.network["skip"]
        return steps.features @ self.linear + steps.penalty, network[:, :, 0] + steps.penalty

    def chances(self, steps: Steps, share: float, temperature: float) -> Matrix:
        """Probabilities of the candidates by ``mix``; shape (steps, k)."""
        linear, network = self.scores(steps)
        scores = linear + np.float32(share) * (network - linear)
        scores *= np.float32(1 / temperature)
        return np.exp(log_softmax(scores))

    def mix(self, share: float, temperature: float) -> CandidateRanker:
        """The linear ranker with this share of what the network adds to its scores.

        Args:
            share: 0 to 1.
            temperature: that the scores are divided by.
        """
        network, mean = self.network, self.standard["mean"]
        further = network["skip"][:, 0] - self.linear
        linear: Matrix = self.linear + np.float32(share) * further
        scale = self.standard["scale"][self.varying][:, None]
        hidden = np.zeros((len(mean), len(network["output"])), np.float32)
        skip = np.zeros((len(mean), 1), np.float32)
        hidden[self.varying] = network["features"] / scale
        skip[self.varying] = linear[:, None] / np.float32(temperature) / scale
        biases = network["hidden_bias"] - mean @ hidden
        weights = [[hidden.T, biases[:, None]], [skip.T, -(mean @ skip)[None]]]
        low, high = (np.append(self.standard[end], 1.0)[:, None] for end in ("low", "high"))
        output = network["output"][:, 0] * np.float32(share / temperature)
        # The order in memory decides how a product is rounded.
        both = np.ascontiguousarray(np.block(weights), np.float64)
        return CandidateRanker(low, high, mean, both, output.astype(np.float64))


def choose_mix(fits: Sequence[RankerFit], others: Sequence[Steps]) -> tuple[float, float]:
    """The share of the network and the temperature by which other plans' steps are likeliest.

    The network is worth .02 to .09 on T-Eval and TinyAgent, but overfits a few hundred steps of
    agents with many tools.

    Args:
        fits: rankers of parts of the plans.
        others: of each, steps of plans that it has not seen.
    """
    likelihoods = np.zeros((len(_SHARES), len(_TEMPERATURES)))
    for fit, other in zip(fits, others, strict=True):
        linear, network = fit.scores(other)
        for row, share in enumerate(_SHARES):
            scores: Matrix = linear + np.float32(share) * (network - linear)
            likelihoods[row] -= [
                marginal_cross_entropy(scores / np.float32(temperature), other.right)[0]
                for temperature in _TEMPERATURES
            ]
    best, at = divmod(int(likelihoods.argmax()), len(_TEMPERATURES))
    return _SHARES[best], _TEMPERATURES[at]


def _minimise(steps: Steps, target: Matrix, decay: float) -> Matrix:
    """Weights of a linear ranker that are drawn to ``target``."""
    # A process that loads a model and ranks does not need it.
    from scipy.optimize import minimize

    count, k, width = steps.features.shape
    if not width:
        return target
    flat = steps.features.reshape(-1, width)

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = (flat @ weights.astype(np.float32)).reshape(count, k) + steps.penalty
        total, error = marginal_cross_entropy(scores, steps.right)
        away = weights - target
        total += 0.5 * decay / count * float(away @ away)
        return total, (error.ravel() @ flat).astype(np.float64) + decay / count * away

    options = {"maxiter": _ROUNDS}
    start = target.astype(np.float64)
    weights: Matrix = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return weights.astype(np.float32)


def uses_shortlist(tools: int) -> bool:
    """Whether a ranker sees only some of this many tools at a step."""
    return tools > _ALL_RANKED


def shortlist(table: Matrix, new: Indices) -> tuple[Indices, Matrix] | None:
    """The candidates among many tools, and the order that they were chosen by.

    Args:
        table: shape (features + 1, tools).
        new: columns of tools without demonstrations, which are ranked by their texts alone. They
            are candidates only where too few others are left.

    Returns:
        Columns, and shape (tools,), on the scale of a log probability; None where the ranker sees
        all tools.
    """
    if not uses_shortlist(table.shape[1]):
        return None
    order: Matrix = LAYOUT.shortlist @ table
    order[new] = -np.inf
    return order.argpartition(len(order) - _SHORTLIST)[-_SHORTLIST:], order


def softmax(scores: Matrix | Floats) -> Floats:
    """Probabilities of a vector of scores."""
    scores = scores - scores[scores.argmax()]
    chances: Floats = np.exp(scores, out=scores).astype(np.float64)
    chances *= 1 / np.add.reduce(chances)
    return chances
