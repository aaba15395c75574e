"""Ridge regression of what a plan calls on the words of its query."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from dtdr.retrievers.nn import Indices, Matrix

Weights = npt.NDArray[np.float16]
Array = TypeVar("Array", bound=npt.NDArray[Any])

_RIDGE = 0.3
_MAX_PLANS = 3_000
"""Plans that weights are learned from: the dual problem is cubic in them."""


class RidgeRegression:
    """Weights of words for how far each target is above its mean.

    Solved in the dual, plans being fewer than words; one factor serves all targets.

    Where descriptions are given, each counts as a query that asks for its target once more than
    queries do: the prior means that Dayanik et al. (SIGIR 2006) take from descriptions of
    categories, as observations, so that demonstrations outweigh them as they come.

    Args:
        queries: shape (plans, words).
        importance: shape (plans,): how much each plan counts, above 0.
        seed: which plans are taken where there are too many.
        described: shape (targets, words): vectors of descriptions of the targets; None: of none.
        trust: how much each of these counts, above 0.
    """

    def __init__(
        self,
        queries: csr_array,
        importance: npt.NDArray[np.float64],
        seed: int = 0,
        described: csr_array | None = None,
        trust: float = 1.0,
    ) -> None:
        # A process that loads a model and ranks does not need it.
        from scipy.linalg import cho_factor

        plans = queries.shape[0]
        self._chosen = np.arange(plans)
        if plans > _MAX_PLANS:
            drawn = np.random.default_rng(seed).choice(plans, _MAX_PLANS, replace=False)
            self._chosen = np.sort(drawn)
        self._rows, self._importance = csr_array(queries[self._chosen]), importance
        counts = importance[self._chosen]
        self._described = 0 if described is None else described.shape[0]
        if described is not None:
            self._rows = csr_array(vstack([self._rows, described], format="csr"))
            counts = np.concatenate([counts, np.full(self._described, trust)])
        kernel = (self._rows @ self._rows.T).toarray().astype(np.float64)
        kernel[np.diag_indices_from(kernel)] += _RIDGE / counts
        self._factor = cho_factor(kernel, overwrite_a=True, check_finite=False)

    def learn(self, targets: csr_array) -> Weights:
        """Weights for some targets.

        Args:
            targets: shape (plans, targets).

        Returns:
            Shape (words, targets).
        """
        from scipy.linalg import cho_solve

        importance = self._importance
        above = targets[self._chosen].toarray() - targets.T @ importance / importance.sum()
        if self._described:
            above = np.concatenate([above, np.eye(self._described)])
        solved = cho_solve(self._factor, above, overwrite_b=True, check_finite=False)
        weights: Weights = (self._rows.T @ solved).astype(np.float16)
        return weights


def correct_weights(
    weights: Weights, queries: csr_array, targets: csr_array, mean: Matrix
) -> Weights:
    """The weights of ``RidgeRegression`` after further plans, one at a time.

    Kaczmarz's projection with the same ridge: each plan moves the weights of its words as far as
    it takes to predict its targets, were it the only one.

    Args:
        weights: shape (words, targets).
        queries: shape (plans, words): the words of the further plans.
        targets: shape (plans, targets).
        mean: shape (targets,): of all plans.
    """
    corrected = weights.astype(np.float32)
    for number, above in enumerate(targets.toarray().astype(np.float32) - mean):
        part = slice(queries.indptr[number], queries.indptr[number + 1])
        columns, values = queries.indices[part], queries.data[part]
        error = above - values @ corrected[columns]
        corrected[columns] += np.outer(values, error) / (values @ values + _RIDGE)
    return corrected.astype(np.float16)


def pick_columns(matrix: npt.NDArray[Any], numbers: Indices) -> npt.NDArray[Any]:
    """Some columns of a matrix; zeros for -1."""
    padded = np.concatenate([matrix, np.zeros_like(matrix[:, :1])], axis=1)
    return np.ascontiguousarray(padded[:, np.where(numbers < 0, matrix.shape[1], numbers)])


def insert_rows(matrix: Array, first: int, count: int) -> Array:
    """A matrix with so many rows of zeros before the row ``first``."""
    zeros = np.zeros((count, *matrix.shape[1:]), matrix.dtype)
    return cast(Array, np.concatenate([matrix[:first], zeros, matrix[first:]]))
