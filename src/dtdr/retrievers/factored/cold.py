"""Tools that no demonstration calls yet: how likely they are wanted, by their descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.retrievers.factored.network import Adam, cosine, sigmoid
from dtdr.retrievers.factored.walk import Walk

Array = npt.NDArray[Any]

FEATURES = (
    *("likeness", "likeness_above_others", "described_ahead", "described_above_others"),
    *("unexplained", "like_last", "name_like_last", "after_tools_like_last", "called", "last"),
    *("steps", "next_by_likeness"),
)
_HIDDEN = 16
_EPOCHS = 30
_BATCH = 512
_DRAWN = 16
"""Tools that are looked at in each step of training, the acceptable ones among them."""
_CAUTION = 0.05
"""Odds of a new tool count so much less: tools that stand in for new ones were in the plans that
the other parts learned from. On six validation trials of three hidden tools of TinyAgent: recall@5
of the hidden ones .81 (BM25 .62) and -.010 to +.009 MRR on other steps; with .2, .84 and down to
-.034."""
_PLACES, _FIRST_PLACE = 2, 3
"""The two likeliest new tools stand at least at places 4 and 5, so that a short list shows them."""
_WORTH_SHOWING = math.log(0.005 / 0.995)
"""If they are this likely (.005); .02 cost .02 of recall@5 in the same trials."""
_SURE = 20.0
"""Logits are cut here, lest odds overflow."""
ARRAYS = ("mean", "scale", "hidden", "hidden_bias", "output", "output_bias")


class View:
    """Tools that are looked at as if they had no demonstrations, for one query.

    Nothing here was learned from calls of such a tool itself, so that a tool with demonstrations
    can stand in for a new one.

    Args:
        walk: of the query.
        tools: columns of its table.
    """

    def __init__(self, walk: Walk, tools: Array) -> None:
        self.tools = tools
        table, layout = walk.table, walk.layout
        self._list: list[int] = tools.tolist()
        self._fixed = np.zeros((len(FEATURES), len(tools)), np.float32)
        likeness = table[layout.likeness]
        self._fixed[0] = likeness[tools]
        others = _best_of_others(likeness, self._list)
        self._fixed[1] = np.log((self._fixed[0] + 0.02) / (others + 0.02))
        evidence = walk.evidence
        if evidence is not None:
            self._fixed[4] = np.log(evidence.shared(tools) + 1e-3)
        alike = np.array([walk.pairs(tool).features[1] for tool in self._list])
        weights = np.maximum(alike.reshape(len(tools), table.shape[1]), 0) ** 2
        weights[np.arange(len(tools)), tools] = 0
        self._weights = weights / (weights.sum(axis=1, keepdims=True) + np.float32(0.3))

    def features(self, walk: Walk) -> Array:
        """Shape (tools, features), after the ``features`` of the walk were computed."""
        table, layout, tools = walk.table, walk.layout, self.tools
        found = self._fixed.copy()
        if walk.evidence is not None:
            ahead = table[layout.described_ahead]
            found[2] = ahead[tools]
            found[3] = found[2] - _best_of_others(ahead, self._list)
        found[5:8] = table[layout.pairs][1:, tools]
        called = walk.called
        found[8] = [tool in called for tool in self._list]
        found[9] = table[layout.last, tools]
        found[10] = table[layout.steps, 0]
        chances = np.exp(table[0])
        found[11] = np.log(self._weights @ (chances / chances.sum()) + 1e-4)
        return found.T


def _best_of_others(values: Array, tools: list[int]) -> Array:
    """For each of the tools, the highest value of any other; the end of plan left out."""
    best = int(values[:-1].argmax())
    found = np.full(len(tools), values[best])
    if best in tools:
        rest = values[:-1].copy()
        rest[best] = -np.inf
        found[tools.index(best)] = rest.max() if len(rest) > 1 else 0.0
    return found


def example(rng: np.random.Generator, walk: Walk, right: Array) -> tuple[Array, Array, Array]:
    """What a step of training says: features, whether acceptable, and weights of some tools.

    Args:
        rng: draws the tools.
        walk: whose ``features`` were just computed.
        right: columns of the acceptable tools, the end of plan left out.
    """
    others = np.setdiff1d(np.arange(walk.table.shape[1] - 1), right)
    chosen = others
    if len(others) + len(right) > _DRAWN:
        chosen = rng.choice(others, max(_DRAWN - len(right), 1), replace=False)
    # The tools that were drawn stand for those that were not.
    each = len(others) / max(len(chosen), 1)
    weights = np.concatenate([np.ones(len(right)), np.full(len(chosen), each)])
    known = np.concatenate([np.ones(len(right)), np.zeros(len(chosen))]).astype(np.float32)
    rows = View(walk, np.concatenate([right, chosen])).features(walk)
    return rows, known, weights.astype(np.float32)


class ColdScorer:
    """The chance that a tool is acceptable, from what is known without its demonstrations.

    Learned from tools that have demonstrations, as if they had none.

    Args:
        parameters: ``mean`` and ``scale`` (features,), ``hidden`` (features, 16), ``hidden_bias``,
            ``output`` (16,), ``output_bias`` (1,).
    """

    def __init__(self, parameters: dict[str, Array]) -> None:
        self.parameters = parameters
        self._hidden = parameters["hidden"] / parameters["scale"][:, None]
        self._bias = parameters["hidden_bias"] - parameters["mean"] @ self._hidden

    @classmethod
    def fit(cls, rows: Array, right: Array, weights: Array, seed: int) -> ColdScorer:
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
        values: dict[str, Array] = {
            "hidden": rng.standard_normal((rows.shape[1], _HIDDEN), np.float32) * np.float32(0.3),
            "hidden_bias": np.zeros(_HIDDEN, np.float32),
            "output": rng.standard_normal(_HIDDEN, np.float32) * np.float32(0.1),
            "output_bias": np.array([np.log(share / (1 - share))], np.float32),
        }
        weights = weights / weights.mean()
        adam = Adam(values)
        batches = -(-len(rows) // _BATCH)
        for epoch in range(_EPOCHS):
            order = rng.permutation(len(rows))
            for number in range(batches):
                chosen = order[number * _BATCH : (number + 1) * _BATCH]
                part = inputs[chosen]
                active = np.maximum(part @ values["hidden"] + values["hidden_bias"], 0)
                chances = sigmoid(active @ values["output"] + values["output_bias"])
                error = (chances - right[chosen]) * weights[chosen] / len(chosen)
                back = error[:, None] * values["output"] * (active > 0)
                found = {
                    "hidden": part.T @ back,
                    "hidden_bias": back.sum(axis=0),
                    "output": active.T @ error,
                    "output_bias": error.sum(keepdims=True),
                }
                adam.step(found, cosine(5e-3, (epoch + number / batches) / _EPOCHS))
        return cls(values | {"mean": mean, "scale": scale})

    def logits(self, rows: Array) -> Array:
        """Logits of the chances; shape (tools,) for rows of shape (tools, features)."""
        active = rows @ self._hidden
        active += self._bias
        np.maximum(active, 0, out=active)
        found: Array = active @ self.parameters["output"]
        found += self.parameters["output_bias"]
        return found

    def mixed(self, probabilities: Array, walk: Walk, view: View) -> Array:
        """Probabilities of all tools when those of some must come from their descriptions.

        Args:
            probabilities: of the tools in view, summing to 1.
            walk: that they were made from.
            view: the tools without demonstrations.
        """
        new = view.tools
        logits = np.minimum(self.logits(view.features(walk)), _SURE)
        odds = _CAUTION * np.exp(logits, dtype=np.float64)
        total = float(odds.sum())
        found = probabilities.copy()
        found[new] = 0
        rest = float(found.sum())
        if rest > 0:
            found *= 1 / ((1 + total) * rest)
        odds /= 1 + total
        worth = [
            column
            for column in np.argsort(-logits, kind="stable")[:_PLACES].tolist()
            if logits[column] > _WORTH_SHOWING
        ]
        worth = worth[: max(len(found) - _FIRST_PLACE, 0)]
        if worth:
            ends = [-1 - _FIRST_PLACE - number for number in range(len(worth))]
            known = np.partition(found, ends)
            for end, column in zip(ends, worth, strict=True):
                odds[column] = max(odds[column], known[end] * 1.01)
        found[new] = odds
        found /= found.sum()
        return found


def state(scorer: ColdScorer | None) -> dict[str, Array]:
    """The arrays to save; empty without a scorer."""
    return {
        f"cold.{name}": np.zeros(0, np.float32) if scorer is None else scorer.parameters[name]
        for name in ARRAYS
    }


def restore(get: Callable[[str], Array]) -> ColdScorer | None:
    """The scorer that ``state`` gave."""
    arrays = {name: get(f"cold.{name}") for name in ARRAYS}
    return ColdScorer(arrays) if len(arrays["mean"]) else None
