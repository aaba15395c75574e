"""A logistic regression whose weights are drawn to where they start."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def fit_logistic(
    inputs: npt.NDArray[Any],
    right: npt.NDArray[Any],
    start: Floats,
    *,
    decay: float,
    counts: npt.NDArray[Any] | None = None,
    positive: npt.NDArray[np.bool_] | None = None,
) -> Floats:
    """The weights of the inputs; shape (features,).

    Args:
        inputs: shape (n, features).
        right: shape (n,): 0 to 1.
        start: shape (features,): the weights before anything is learned.
        decay: half of it times the squared distance to ``start`` is added to the loss.
        counts: shape (n,): how much each row counts; None: 1.
        positive: shape (k,), of the first k features: which weights are at least 0; None: none.
    """
    # A process that loads a model and ranks does not need it.
    from scipy.optimize import minimize

    each = np.ones(len(inputs)) if counts is None else counts

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits, away = inputs @ weights, weights - start
        total = (each * (np.logaddexp(0, logits) - right * logits)).sum()
        error = each * (1 / (1 + np.exp(-logits)) - right)
        return float(total + 0.5 * decay * (away @ away)), inputs.T @ error + decay * away

    least = np.full(len(start), -np.inf)
    if positive is not None:
        least[: len(positive)][positive] = 0
    bounds = [(low, None) for low in least]
    weights: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return weights
