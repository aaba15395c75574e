"""One small network, shared by all tools, that scores the candidates of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.retrievers.factored.network import Adam, cosine, log_softmax

Array = npt.NDArray[Any]

FEW_HIDDEN, MANY_HIDDEN = 32, 64
"""Hidden units among few tools and among many, where a shortlist is ranked. 64 among T-Eval's 50
tools changed validation MRR by -.004 to +.005, and every step would take longer; among UltraTool's
260 it is .002 better, 128 is not."""
_EPOCHS = 80
_BATCH = 64
_DROPPED = 0.3
"""Half the epochs in batches of 128 with a tenth dropped: .005 and .009 less on two validation
parts of T-Eval."""
_RATE = 5e-3
_OUTSIDE = 1e-5
"""The likeliest tool outside the shortlist is at most so likely."""
_MAX_PASSES = 600_000
"""Steps times epochs: 7,500 steps get all 80 epochs, more get fewer."""
ARRAYS = ("mean", "scale", "linear", "hidden", "hidden_bias", "output")


class CandidateRanker:
    """``score = features l + relu(features W + b) o`` on standardised features.

    Starts as the next-tool network alone and learns what the other features add.

    Args:
        parameters: ``mean`` and ``scale`` (features,), ``linear`` l (features, 1), ``hidden`` W
            (features, hidden), ``hidden_bias`` b (hidden,), ``output`` o (hidden, 1).
    """

    def __init__(self, parameters: dict[str, Array]) -> None:
        self.parameters = parameters

    @classmethod
    def fit(cls, features: Array, right: Array, hidden: int, seed: int) -> CandidateRanker:
        """Maximise the probability of acceptable candidates taken together.

        The marginal likelihood leaves it to the ranker which acceptable tool it prefers; ranks are
        as good as with the probability spread over all of them, and the best probability means
        how likely an acceptable tool was found.

        Args:
            features: shape (steps, k, features), from held-out plans.
            right: shape (steps, k): whether a candidate is acceptable, at least one a step.
            hidden: units of the hidden layer.
            seed: weights and order of the steps.
        """
        rng = np.random.default_rng(seed)
        steps, k, width = features.shape
        mean, scale = features.mean(axis=(0, 1)), features.std(axis=(0, 1)) + np.float32(1e-4)
        inputs = ((features - mean) / scale).astype(np.float32)
        values: dict[str, Array] = {
            "hidden": rng.standard_normal((width, hidden), np.float32) / np.float32(width**0.5),
            "hidden_bias": np.zeros(hidden, np.float32),
            "output": rng.standard_normal((hidden, 1), np.float32) * np.float32(0.05),
            "linear": np.zeros((width, 1), np.float32),
        }
        values["linear"][0] = scale[0]  # the first feature is the network's log probability
        adam = Adam(values)
        batches = -(-steps // _BATCH)
        epochs = max(3, min(_EPOCHS, _MAX_PASSES // max(steps, 1)))
        for epoch in range(epochs):
            order = rng.permutation(steps)
            for number in range(batches):
                chosen = order[number * _BATCH : (number + 1) * _BATCH]
                rows = inputs[chosen].reshape(-1, width)
                before = rows @ values["hidden"] + values["hidden_bias"]
                drawn = rng.random(before.shape, np.float32) > _DROPPED
                kept = drawn * np.float32(1 / (1 - _DROPPED))
                active = np.maximum(before, 0) * kept
                logits = (active @ values["output"] + rows @ values["linear"]).reshape(-1, k)
                chances = np.exp(log_softmax(logits))
                wanted = chances * right[chosen] + np.float32(1e-12) * right[chosen]
                wanted /= wanted.sum(axis=1, keepdims=True)
                error = ((chances - wanted) / len(chosen)).reshape(-1, 1).astype(np.float32)
                back = (error @ values["output"].T) * kept * (before > 0)
                found: dict[str, Any] = {
                    "hidden": rows.T @ back,
                    "hidden_bias": back.sum(axis=0),
                    "output": active.T @ error,
                    "linear": rows.T @ error,
                }
                adam.step(found, cosine(_RATE, (epoch + number / batches) / epochs))
        return cls(values | {"mean": mean, "scale": scale})


class Scorer:
    """Several rankers as one, for the table of a walk.

    Args:
        rankers: whose log probabilities are averaged; at least one.
    """

    def __init__(self, rankers: Sequence[CandidateRanker]) -> None:
        hidden, output, linear = [], [], []
        for ranker in rankers:
            values = {name: array.astype(np.float64) for name, array in ranker.parameters.items()}
            scaled = values["hidden"] / values["scale"][:, None]
            bias = values["hidden_bias"] - values["mean"] @ scaled
            hidden.append(np.concatenate([scaled, bias[None]]).T)
            output.append(values["output"][:, 0] / len(rankers))
            line = values["linear"][:, 0] / values["scale"] / len(rankers)
            linear.append(np.append(line, -values["mean"] @ line))
        # One product with the table, the row of ones included, gives every hidden unit and the
        # linear part.
        rows = np.concatenate([*hidden, np.sum(linear, axis=0)[None]])
        self._weights = np.ascontiguousarray(rows, np.float32)
        self._output = np.concatenate(output).astype(np.float32)

    def scores(self, table: Array) -> Array:
        """Log probabilities up to a constant; shape (k,) for a table of (features + 1, k)."""
        found = self._weights @ table
        active = found[:-1]
        np.maximum(active, 0, out=active)
        result: Array = self._output @ active
        result += found[-1]
        return result


def probabilities(scorer: Scorer | None, table: Array, chosen: Array | None) -> Array:
    """Of every tool; shape (tools,), float64, summing to 1.

    Tools outside the shortlist share a small mass in the order of the next-tool network, each
    below every candidate. Without a ranker, the network alone decides.

    Args:
        scorer: None where there was too little to train one.
        table: shape (features + 1, tools).
        chosen: the candidates; None for all tools.
    """
    if scorer is None:
        logits: Array = table[0].astype(np.float64)
        logits -= logits[logits.argmax()]
        np.exp(logits, out=logits)
        logits /= np.add.reduce(logits)
        return logits
    scores = scorer.scores(table if chosen is None else table.take(chosen, axis=1))
    scores -= scores[scores.argmax()]
    chances: npt.NDArray[np.float64] = np.exp(scores, out=scores).astype(np.float64)
    chances /= np.add.reduce(chances)
    if chosen is None:
        return chances
    others = table[0] - table[0, table[0].argmax()]
    every: npt.NDArray[np.float64] = np.exp(others, out=others).astype(np.float64)
    every *= min(float(chances[chances.argmin()]), _OUTSIDE)
    every[chosen] = chances
    every /= np.add.reduce(every)
    return every


def state(rankers: Sequence[CandidateRanker], width: int) -> dict[str, Array]:
    """The arrays to save, one ranker a row."""
    shapes = {
        "mean": (width,),
        "scale": (width,),
        "linear": (width, 1),
        "hidden": (width, FEW_HIDDEN),
        "hidden_bias": (FEW_HIDDEN,),
        "output": (FEW_HIDDEN, 1),
    }
    return {
        f"ranker.{name}": np.stack([ranker.parameters[name] for ranker in rankers])
        if rankers
        else np.zeros((0, *shapes[name]), np.float32)
        for name in ARRAYS
    }


def restore(get: Callable[[str], Array]) -> list[CandidateRanker]:
    """The rankers that ``state`` gave."""
    stacked = {name: get(f"ranker.{name}") for name in ARRAYS}
    return [
        CandidateRanker({name: array[number] for name, array in stacked.items()})
        for number in range(len(stacked["mean"]))
    ]
