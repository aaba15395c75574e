"""Ridge regression of what a plan calls on the words of its query."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

Weights = npt.NDArray[np.float16]

_RIDGE = 0.3
_MAX_PLANS = 3_000
"""Plans that weights are learned from: the dual problem is cubic in them."""


def learn_weights(
    queries: csr_array,
    targets: csr_array,
    importance: npt.NDArray[np.float64],
    seed: int,
    described: csr_array | None = None,
    trust: float = 1.0,
) -> Weights:
    """Weights of words for how far each target is above its mean; shape (words, targets).

    Solved in the dual, plans being fewer than words. A description counts as a query that asks for
    its target once more than queries do: the prior means that Dayanik et al. (SIGIR 2006) take from
    descriptions of categories, as observations, so that demonstrations outweigh them as they come.

    Args:
        queries: shape (plans, words).
        targets: shape (plans, targets).
        importance: shape (plans,): how much each plan counts, above 0.
        seed: which plans are taken where there are too many.
        described: shape (targets, words): vectors of descriptions of the targets; None: of none.
        trust: how much each of these counts, above 0.
    """
    # A process that loads a model and ranks does not need it.
    from scipy.linalg import cho_factor, cho_solve

    plans = queries.shape[0]
    chosen = np.arange(plans)
    if plans > _MAX_PLANS:
        chosen = np.sort(np.random.default_rng(seed).choice(plans, _MAX_PLANS, replace=False))
    rows, counts = csr_array(queries[chosen]), importance[chosen]
    above = targets[chosen].toarray() - targets.T @ importance / importance.sum()
    if described is not None:
        rows = csr_array(vstack([rows, described], format="csr"))
        counts = np.concatenate([counts, np.full(described.shape[0], trust)])
        above = np.concatenate([above, np.eye(described.shape[0])])
    kernel = (rows @ rows.T).toarray().astype(np.float64)
    kernel[np.diag_indices_from(kernel)] += _RIDGE / counts
    factor = cho_factor(kernel, overwrite_a=True, check_finite=False)
    solved = cho_solve(factor, above, overwrite_b=True, check_finite=False)
    weights: Weights = (rows.T @ solved).astype(np.float16)
    return weights
