"""One small network, shared by all tools, that scores the candidates of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.calibration import Floats
from dtdr.errors import ModelError
from dtdr.retrievers.factored.layout import Layout
from dtdr.retrievers.nn import (
    Indices,
    Input,
    Matrix,
    Network,
    RowGradient,
    cosine,
    dropout,
    marginal_cross_entropy,
    train,
)

_ALL_RANKED = 64
"""Up to so many tools, the ranker sees all of them."""
_SHORTLIST = 32
"""Candidates a step among more tools; 40 changed validation MRR by less than .004 on three sets."""
_NEW_CANDIDATES = 10
"""Of them, tools without demonstrations. With 6 and 16 instead, validation MRR was +.0017 and
-.0035 on TRAJECT by sequence, -.0015 and +.0008 on UltraTool."""
_FEW_HIDDEN, _MANY_HIDDEN = 32, 64
"""Hidden units where all tools are ranked, and where a shortlist is. 64 among T-Eval's 50 tools
changed validation MRR by -.004 to +.005, and every step would take longer; among UltraTool's 260 it
is .002 better, 128 is not."""
EPOCHS = 80
"""Half of them: a sixth of a fit less, and .001 to .003 less validation MRR on TinyAgent."""
_BATCH = 64
_DROPPED = 0.3
"""Half the epochs in batches of 128 with a tenth dropped: .005 and .009 less on two validation
parts of T-Eval."""
_RATE = 5e-3
_AVERAGED, _LEAST_RATE, _DECAY = 0.5, 0.4, 0.1
"""The weights are the mean over the second half of the training, at a rate that stays high.

Together with more decay, validation MRR is .0026 higher on T-Eval (six fits), .0005 on TinyAgent
(four), .006 on TRAJECT by sequence and .0004 on UltraTool (two each)."""
_CONSTANT = 2e-4
_OUTSIDE = 1e-5
"""The likeliest tool outside the shortlist is at most so likely."""
_MAX_PASSES = 600_000
"""Steps times epochs: 7,500 steps get all 80 epochs, more get fewer."""
_FEW_STEPS = 3_000
"""Up to so many steps, a ranker of runs that are told of is almost linear, starts at the regression
on situations and learns for a few epochs: on validation folds of tau-bench's airline (140 runs) MRR
.792, and .741 as other rankers are trained."""
_TOLD_HIDDEN, _TOLD_EPOCHS = 1, 10
_TOLD_LEAST_RATE, _TOLD_DECAY = 0.05, 0.01
_ARRAYS = ("mean", "scale", "skip", "features", "hidden_bias", "output")


class CandidateRanker:
    """``score = features skip + relu(features W + hidden_bias) output`` on standardised features.

    Starts as the prior alone and learns what the other features add.

    Args:
        parameters: ``mean`` and ``scale`` (features,), ``skip`` (features, 1), ``features`` W
            (features, hidden), ``hidden_bias`` (hidden,), ``output`` (hidden, 1).
    """

    def __init__(self, parameters: dict[str, Matrix]) -> None:
        self.parameters = parameters

    @classmethod
    def fit(
        cls,
        features: Matrix,
        right: npt.NDArray[np.bool_],
        *,
        prior: int | None,
        tools: int,
        seed: int,
        told_prior: int | None = None,
        epochs: int = EPOCHS,
    ) -> CandidateRanker:
        """Maximise the probability of acceptable candidates taken together.

        The marginal likelihood leaves it to the ranker which acceptable tool it prefers; ranks are
        as good as with the probability spread over all of them, and the best probability means
        how likely an acceptable tool was found.

        Args:
            features: shape (steps, k, features), from held-out plans.
            right: shape (steps, k): whether a candidate is acceptable, at least one a step.
            prior: the feature to start from.
            tools: size of the vocabulary.
            seed: weights and order of the steps.
            told_prior: the feature to start from where the steps are few; None for steps of which
                nothing is told but names.
            epochs: passes over the steps at most.
        """
        rng = np.random.default_rng(seed)
        hidden = _MANY_HIDDEN if uses_shortlist(tools) else _FEW_HIDDEN
        steps, k, width = features.shape
        epochs = max(3, min(epochs, _MAX_PASSES // max(steps, 1)))
        averaged, least, decay = _AVERAGED, _LEAST_RATE, _DECAY
        if told_prior is not None and steps <= _FEW_STEPS:
            prior, hidden, epochs = told_prior, _TOLD_HIDDEN, _TOLD_EPOCHS
            averaged, least, decay = 0.0, _TOLD_LEAST_RATE, _TOLD_DECAY
        mean, scale = features.mean(axis=(0, 1)), features.std(axis=(0, 1)) + np.float32(1e-4)
        # What never varied says nothing, and must not when it varies later.
        scale[scale < _CONSTANT] = 1
        inputs = np.ascontiguousarray((features - mean) / scale, np.float32)
        network = Network(
            {
                "features": rng.standard_normal((width, hidden), np.float32)
                / np.float32(width**0.5),
                "hidden_bias": np.zeros(hidden, np.float32),
                "output": rng.standard_normal((hidden, 1), np.float32) * np.float32(0.05),
                "skip": np.zeros((width, 1), np.float32),
            }
        )
        if prior is not None:
            network.parameters["skip"][prior] = scale[prior]

        def gradients(chosen: Indices) -> dict[str, Matrix | RowGradient]:
            def loss(scores: Matrix) -> tuple[float, Matrix]:
                total, error = marginal_cross_entropy(scores.reshape(-1, k), right[chosen])
                return total, error.reshape(-1, 1)

            rows = inputs.take(chosen, axis=0).reshape(-1, width)
            dropped = dropout(rng, (len(rows), hidden), _DROPPED)
            return network.gradients({"features": Input(rows)}, loss, dropped)[1]

        train(
            network.parameters,
            gradients,
            steps,
            epochs=epochs,
            batch_size=_BATCH,
            rate=lambda epoch: cosine(_RATE, epoch / epochs, least),
            rng=rng,
            weight_decay=decay,
            averaged=averaged,
        )
        return cls({**network.parameters, "mean": mean, "scale": scale})

    def without(self, features: npt.NDArray[np.bool_]) -> CandidateRanker:
        """This ranker, which some features tell nothing; shape (features,)."""
        silent = {name: self.parameters[name].copy() for name in ("features", "skip")}
        for weights in silent.values():
            weights[features] = 0
        return CandidateRanker({**self.parameters, **silent})


class Scorer:
    """Several rankers as one, for a table of features.

    Args:
        rankers: whose log probabilities are averaged; at least one.
    """

    def __init__(self, rankers: Sequence[CandidateRanker]) -> None:
        hidden, output, skip = [], [], []
        for ranker in rankers:
            values = {name: array.astype(np.float64) for name, array in ranker.parameters.items()}
            scaled = values["features"] / values["scale"][:, None]
            bias = values["hidden_bias"] - values["mean"] @ scaled
            hidden.append(np.concatenate([scaled, bias[None]]).T)
            output.append(values["output"][:, 0] / len(rankers))
            line = values["skip"][:, 0] / values["scale"] / len(rankers)
            skip.append(np.append(line, -values["mean"] @ line))
        # One product with the table, the row of ones included, gives every hidden unit and the
        # linear part.
        rows = np.concatenate([*hidden, np.sum(skip, axis=0)[None]])
        self._weights = np.ascontiguousarray(rows, np.float32)
        self._output = np.concatenate(output).astype(np.float32)

    def scores(self, table: Matrix) -> Matrix:
        """Log probabilities up to a constant; shape (k,) for a table of (features + 1, k)."""
        units: Matrix = self._weights @ table
        active = units[:-1]
        np.maximum(active, 0, out=active)
        scores: Matrix = self._output @ active
        scores += units[-1]
        return scores


class StepScorers:
    """The scorer of a step, by what is known of its run.

    Steps that are told more than names have rankers of their own. Before the first call, when
    nothing was returned yet, both kinds count alike: on inner folds of tau-bench's airline the MRR
    of these steps is .794, and .779 and .756 by one kind alone.

    Queries that are worded otherwise than the demonstrations have rankers of their own too: one
    that has seen known words alone takes few of them for a plan that is done. Validation top-1 of
    plans whose queries were written anew by hand, by the usual ranker, by one that learned from
    queries as they are and in partly unknown words, and by these, which learned from the latter
    alone: TinyAgent (32 plans) .650, .716 and .721, T-Eval (26 plans) .597, .644 and .651.

    Args:
        layout: of the features.
        named: rankers of steps that are told names only.
        told: as many rankers of the others; empty where there are none.
        reworded: rankers of steps that are told names only, of queries that are worded otherwise.
    """

    def __init__(
        self,
        layout: Layout,
        named: Sequence[CandidateRanker],
        told: Sequence[CandidateRanker] = (),
        reworded: Sequence[CandidateRanker] = (),
    ) -> None:
        self._named = Scorer(named) if named else None
        self._reworded = Scorer(reworded) if reworded else self._named
        self._told = self._first = self._named
        if told:
            self._told = Scorer(told)
            self._first = Scorer([*told, *(one.without(layout.run_features) for one in named)])

    def choose(self, *, is_told: bool, is_first: bool, is_reworded: bool = False) -> Scorer | None:
        """None where too little was demonstrated.

        Args:
            is_told: whether more is known of the run than names.
            is_first: whether no call was made yet.
            is_reworded: whether the query is worded otherwise than the demonstrations.
        """
        if not is_told:
            return self._reworded if is_reworded else self._named
        return self._first if is_first else self._told


def uses_shortlist(tools: int) -> bool:
    """Whether a ranker sees only some of so many tools at a step."""
    return tools > _ALL_RANKED


def count_candidates(tools: int) -> int:
    """How many of so many tools a ranker sees at a step."""
    return _SHORTLIST if uses_shortlist(tools) else tools


def shortlist(layout: Layout, table: Matrix, new: Indices) -> tuple[Indices | None, Matrix]:
    """The candidates among many tools, and the order that they were chosen by.

    Args:
        layout: of the features.
        table: shape (features + 1, tools).
        new: columns of tools without demonstrations that are ranked as all others are. Nothing that
            counts calls speaks for them, so some are candidates whatever the others are.

    Returns:
        None where the ranker sees all tools; and shape (tools,), on the scale of a log probability.
    """
    if not uses_shortlist(table.shape[1]):
        return None, table[0]
    order: Matrix = layout.shortlist @ table
    if not len(new):
        return _highest(order, _SHORTLIST), order
    first = new if len(new) <= _NEW_CANDIDATES else new[_highest(order[new], _NEW_CANDIDATES)]
    others = order.copy()
    others[new] = -np.inf
    return np.concatenate([_highest(others, _SHORTLIST - len(first)), first]), order


def _highest(values: Matrix, count: int) -> Indices:
    return values.argpartition(len(values) - count)[-count:]


def probabilities(scorer: Scorer, table: Matrix, chosen: Indices | None, order: Matrix) -> Floats:
    """Of every tool; shape (tools,), summing to 1.

    Tools outside the shortlist share a small mass in its order, each below every candidate.

    Args:
        scorer: of candidates.
        table: shape (features + 1, tools), or (features + 1, k) of the candidates alone.
        chosen: the candidates; None for all tools.
        order: what they were chosen by.
    """
    if chosen is None:
        return softmax(scorer.scores(table))
    if table.shape[1] != len(chosen):
        table = table.take(chosen, axis=1)
    candidates = softmax(scorer.scores(table))
    outside = order - order[order.argmax()]
    every: Floats = np.exp(outside, out=outside).astype(np.float64)
    every *= min(float(candidates[candidates.argmin()]), _OUTSIDE)
    every[chosen] = candidates
    every *= 1 / np.add.reduce(every)
    return every


def softmax(scores: Matrix) -> Floats:
    """Probabilities of a vector of scores."""
    scores = scores - scores[scores.argmax()]
    chances: Floats = np.exp(scores, out=scores).astype(np.float64)
    chances *= 1 / np.add.reduce(chances)
    return chances


def arrays(rankers: Sequence[CandidateRanker], prefix: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays to save, one ranker a row; empty without any."""
    return {
        f"{prefix}{name}": np.stack([ranker.parameters[name] for ranker in rankers])
        if rankers
        else np.zeros(0, np.float32)
        for name in _ARRAYS
    }


def restore(
    arrays: Mapping[str, npt.NDArray[Any]], features: int, prefix: str
) -> tuple[CandidateRanker, ...]:
    """The rankers that ``arrays`` gave.

    Raises:
        KeyError: an array is missing.
        ModelError: they rank another number of features.
    """
    stacked = {name: arrays[f"{prefix}{name}"] for name in _ARRAYS}
    rankers, hidden = len(stacked["mean"]), stacked["hidden_bias"].shape[-1]
    shapes = {
        "mean": (rankers, features),
        "scale": (rankers, features),
        "skip": (rankers, features, 1),
        "features": (rankers, features, hidden),
        "hidden_bias": (rankers, hidden),
        "output": (rankers, hidden, 1),
    }
    fits = all(stacked[name].shape == shape for name, shape in shapes.items())
    if rankers and not (fits and (stacked["scale"] > 0).all()):
        raise ModelError(f"the ranker of the model does not fit its {features} features")
    return tuple(
        CandidateRanker({name: array[number] for name, array in stacked.items()})
        for number in range(rankers)
    )
