"""Layers and losses of small networks in numpy, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dtdr.text.sparse import csc_array, csr_array

Matrix: TypeAlias = npt.NDArray[np.float32]
Indices: TypeAlias = npt.NDArray[np.intp]

_POOL, _POOL_BATCHES = 4, 32
"""Batches whose masks of dropout a pool has, and batches that read it."""

RULED_OUT = np.float32(-1e4)
"""Logit of an output that is not possible."""


@dataclass(frozen=True, slots=True)
class RowGradient:
    """The gradient of a matrix of which only some rows are not zero.

    Attributes:
        rows: their numbers, sorted.
        values: shape (rows, columns).
    """

    rows: Indices
    values: Matrix


Gradients: TypeAlias = Mapping[str, Matrix | RowGradient]


# -- layers ------------------------------------------------------------------------------------


def linear_gradient(values: Matrix | csr_array, error: Matrix) -> Matrix | RowGradient:
    """Gradient of W in ``values @ W`` from that of the product."""
    if isinstance(values, np.ndarray):
        return np.asarray(values.T @ error, np.float32)
    # The columns that are not empty, and these alone, which are rows of the transpose.
    column_of = np.zeros(values.shape[1], np.int32)
    column_of[values.indices] = 1
    columns = np.flatnonzero(column_of)
    column_of[columns] = np.arange(len(columns), dtype=np.int32)
    transpose = csc_array(
        (values.data, column_of[values.indices], values.indptr), shape=(len(columns), len(error))
    )
    return RowGradient(columns, np.asarray(transpose @ error, np.float32))


def dropout(rng: np.random.Generator, shape: tuple[int, ...], share: float) -> Matrix:
    """Factors that leave out about ``share`` of the units and keep the mean.

    The share is rounded to 1/256: random bytes cost a quarter of random numbers.
    """
    drawn = np.frombuffer(rng.bytes(math.prod(shape)), np.uint8).reshape(shape)
    cut = round(share * 256)
    return np.multiply(drawn >= cut, np.float32(256 / (256 - cut)))


class DropoutMasks:
    """Factors of ``dropout`` for batches of rows of units, from a pool that many batches read.

    Random bytes for each unit of each batch would be a fifth of the time of a small network.
    """

    def __init__(self, rng: np.random.Generator, rows: int, units: int, share: float) -> None:
        self._rng, self._share = rng, share
        self._shape, self._left = (_POOL * rows, units), 0

    def draw(self, rows: int) -> Matrix:
        """Factors of the next batch; shape (rows, units), not to be written."""
        if not self._left:
            self._pool = dropout(self._rng, self._shape, self._share)
            self._left = _POOL_BATCHES
        self._left -= 1
        start = int(self._rng.integers(self._shape[0] - rows + 1))
        return self._pool[start : start + rows]


# -- losses ------------------------------------------------------------------------------------


def softmax_cross_entropy(logits: Matrix, targets: Matrix) -> tuple[float, Matrix]:
    """Mean cross-entropy of a softmax a row, and its gradient.

    Args:
        logits: shape (examples, outputs).
        targets: the same shape; rows are distributions.
    """
    logarithms = log_softmax(logits)
    losses = -(targets * logarithms).sum(axis=1)
    return _mean(losses, np.exp(logarithms) - targets)


def binary_cross_entropy(logits: Matrix, targets: Matrix) -> tuple[float, Matrix]:
    """Mean over the examples of the sum of one binary cross-entropy an output, and its gradient."""
    losses = (np.logaddexp(0, logits) - targets * logits).sum(axis=1)
    return _mean(losses, sigmoid(logits) - targets)


def marginal_cross_entropy(logits: Matrix, right: Matrix) -> tuple[float, Matrix]:
    """Minus the logarithm of the probability of all right outputs together, and its gradient.

    Args:
        logits: shape (examples, outputs).
        right: the same shape: how much each output counts, 0 to 1; at least one counts in a row.
    """
    logarithms = log_softmax(logits)
    chances = np.exp(logarithms)
    wanted = (chances + np.float32(1e-12)) * right
    totals = wanted.sum(axis=1, keepdims=True)
    wanted /= totals
    return _mean(-np.log(totals[:, 0]), chances - wanted)


def _mean(losses: Matrix, error: Matrix) -> tuple[float, Matrix]:
    error /= np.float32(len(losses))
    return float(losses.sum()) / len(losses), error


def log_softmax(logits: Matrix) -> Matrix:
    """Row-wise logarithm of the softmax."""
    shifted = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    total = np.add.reduce(np.exp(shifted), axis=-1, keepdims=True)
    result: Matrix = shifted - np.log(total)
    return result


def sigmoid(logits: Matrix) -> Matrix:
    """The logistic function, without overflow."""
    result: Matrix = np.float32(0.5) * (np.tanh(np.float32(0.5) * logits) + np.float32(1))
    return result


def stack_rows(rows: Sequence[tuple[Sequence[int], Sequence[float]]], width: int) -> csr_array:
    """Sparse rows, each given as (columns, values), as one matrix of that width.

    The rows are short: an array for each would cost more than all the rest.
    """
    starts = np.cumsum([0, *(len(columns) for columns, _ in rows)], dtype=np.int32)
    columns = np.fromiter(chain.from_iterable(columns for columns, _ in rows), np.int32)
    values = np.fromiter(chain.from_iterable(values for _, values in rows), np.float32)
    return csr_array((values, columns, starts), shape=(len(rows), width))
