"""Vectors of texts, dense or sparse: one product a row, the same to the last bit in any batch."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dtdr.rankers.calibration import Floats
from dtdr.text.encoders.base import Encoder, Vectors

REDUCED = 64
"""Dimensions that sparse vectors are reduced to. Mean MRR of dtdr-c by 3-fold validation on the
training sides of TinyAgent and T-Eval, lexical encoder: .626 without, .635 with 64, .633 with 128,
.628 with 256; and k-means on 64 dense columns is what makes 10,000 clusters affordable."""

Row: TypeAlias = Any
"""One vector: an array of shape (dimension,), or a sparse one as (columns, values)."""


def fit_encoder(encoder: Encoder, texts: Sequence[str]) -> Encoder:
    """An encoder fitted to texts; one that learns is copied first.

    Otherwise two rankers that were given the same encoder would spoil each other.
    """
    return deepcopy(encoder).fit(texts) if encoder.learned else encoder


def rows(vectors: Vectors) -> list[Row]:
    """The rows of what an encoder returned."""
    if isinstance(vectors, np.ndarray):
        return list(vectors)
    starts, columns, values = vectors.indptr.tolist(), vectors.indices, vectors.data
    return [(columns[begin:end], values[begin:end]) for begin, end in pairwise(starts)]


def product(row: Row, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``row @ matrix`` for a matrix of shape (dimension, n).

    A product of whole batches rounds differently for different batch sizes, so that ``rank`` and
    ``rank_batch`` would break ties differently; a product a row does not.
    """
    if isinstance(row, tuple):
        columns, values = row
        result: npt.NDArray[Any] = values @ matrix[columns]
    else:
        result = row @ matrix
    return result


def squared_length(row: Row) -> float:
    """The squared length of one vector."""
    values = row[1] if isinstance(row, tuple) else row
    return float(values @ values)


def dense(vectors: Vectors) -> npt.NDArray[np.float32]:
    """The vectors as one dense array, shape (texts, dimension); for few texts only."""
    full = vectors if isinstance(vectors, np.ndarray) else vectors.toarray()
    result: npt.NDArray[np.float32] = np.asarray(full, np.float32)
    return result


def unit(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rows, shape (n, d), or one row, shape (d,), scaled to length 1; zeros stay zeros."""
    lengths = np.sqrt((vectors * vectors).sum(axis=-1, keepdims=True))
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def normalise(scores: Floats) -> Floats:
    """Rows of shape (n, tools) that sum to 1; a row of zeros becomes uniform.

    Scores must be at least 0.
    """
    totals = scores.sum(axis=1, keepdims=True)
    empty = totals[:, 0] <= 0
    if empty.any():
        scores = np.where(empty[:, None], 1.0, scores)
        totals = scores.sum(axis=1, keepdims=True)
    result: Floats = scores / totals
    return result


def softmax(logits: Floats) -> Floats:
    """Softmax along the last axis, any shape, that does not overflow."""
    # The reductions themselves: the methods cost as much again for a row of a step.
    shifted = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= np.add.reduce(shifted, axis=-1, keepdims=True)
    return shifted


def rule_out_end(row: Floats) -> None:
    """In place, shape (tools,): no probability for the last tool, all of it for others, if any."""
    if len(row) < 2 or row[-1] == 0:
        return
    row[-1] = 0
    total = np.add.reduce(row)
    if total == 0:
        row[:-1] = 1 / (len(row) - 1)
    else:
        row /= total


def principal_directions(vectors: Vectors, seed: int) -> npt.NDArray[np.float32]:
    """Directions of the largest singular values; shape (dimension, at most REDUCED)."""
    from sklearn.utils.extmath import randomized_svd

    columns = min(REDUCED, *vectors.shape)
    _, _, directions = randomized_svd(vectors, columns, random_state=seed)
    return np.ascontiguousarray(directions.T, np.float32)
