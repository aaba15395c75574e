"""Softmax regression of the steps of plans, trained by the loop of the small networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dtdr.rankers.nn import (
    RULED_OUT,
    Gradients,
    Indices,
    Matrix,
    RowGradient,
    dropout,
    linear_gradient,
    softmax_cross_entropy,
    stack_rows,
)
from dtdr.rankers.optimiser import cosine, train
from dtdr.text.sparse import csr_array


def fit_softmax(
    steps: csr_array,
    wanted: Sequence[Sequence[int]],
    owner: Indices,
    outputs: int,
    *,
    shared: csr_array | None = None,
    absent: npt.NDArray[np.bool_] | None = None,
    smoothing: float,
    epochs: int,
    batch_size: int,
    rate: float,
    weight_decay: float,
    dropped: float = 0.0,
    seed: int,
) -> tuple[Matrix, Matrix]:
    """A softmax regression of steps, whose logits may have a part that is the same for a plan.

    Trained by Adam along half a cosine, and rounded to half precision as it is saved, so that a
    loaded model ranks alike to the last bit.

    Args:
        steps: shape (steps, a): inputs.
        wanted: of each step, the outputs that are right.
        owner: shape (steps,), sorted: the plan of each; every plan has steps.
        outputs: how many there are.
        shared: shape (plans, b): inputs that all steps of a plan have in common.
        absent: shape (plans, outputs): outputs that no step of a plan can have.
        smoothing: share of the target that all outputs have alike.
        epochs: passes over the plans.
        batch_size: plans a step of Adam.
        rate: the learning rate at first.
        weight_decay: see ``Adam``.
        dropped: share of the inputs that each batch leaves out.
        seed: of batches and of what is dropped.

    Returns:
        Weights of ``steps``, shape (a, outputs), and of ``shared``, shape (b, outputs).
    """
    rng = np.random.default_rng(seed)
    share = [(1 - smoothing) / len(right) for right in wanted]
    targets = stack_rows(
        [(right, [each] * len(right)) for right, each in zip(wanted, share, strict=True)], outputs
    )
    lengths = np.bincount(owner)
    starts = np.cumsum(lengths) - lengths
    weights = np.zeros((steps.shape[1], outputs), np.float32)
    shared_weights = np.zeros((0 if shared is None else shared.shape[1], outputs), np.float32)
    parameters = {"steps": weights}
    if shared is not None:
        parameters["shared"] = shared_weights

    def draw(inputs: csr_array, rows: Indices) -> csr_array:
        part = _take_rows(inputs, rows)
        if dropped:
            part.data *= dropout(rng, part.data.shape, dropped)
        return part

    def gradients(examples: Indices) -> Gradients:
        sizes = lengths[examples]
        of_plan = np.repeat(np.arange(len(examples)), sizes)
        rows = np.arange(len(of_plan)) + (starts[examples] - np.cumsum(sizes) + sizes)[of_plan]
        part = draw(steps, rows)
        logits = part @ weights
        plans = None if shared is None else draw(shared, examples)
        if plans is not None:
            logits += (plans @ shared_weights).take(of_plan, axis=0)
        expected: Matrix = _take_rows(targets, rows).toarray()
        if absent is None:
            expected += np.float32(smoothing / outputs)
        else:
            ruled_out = absent[examples].take(of_plan, axis=0) & (expected == 0)
            logits[ruled_out] = RULED_OUT
            expected += np.where(ruled_out, 0, np.float32(smoothing / outputs))
        _, error = softmax_cross_entropy(logits, expected)
        by_parameter: dict[str, Matrix | RowGradient] = {"steps": linear_gradient(part, error)}
        if plans is not None:
            by_parameter["shared"] = linear_gradient(
                plans, _by_owner(error, of_plan, len(examples))
            )
        return by_parameter

    train(
        parameters,
        gradients,
        len(lengths),
        epochs=epochs,
        batch_size=batch_size,
        rate=lambda epoch: cosine(rate, epoch / epochs),
        rng=rng,
        weight_decay=weight_decay,
    )
    for array in parameters.values():
        array[:] = array.astype(np.float16)
    return weights, shared_weights


def _take_rows(matrix: csr_array, rows: Indices) -> csr_array:
    """Some rows of a sparse matrix, in a third of the time of its own index."""
    begins = matrix.indptr[rows]
    ends = np.cumsum(matrix.indptr[rows + 1] - begins)
    sizes = np.diff(ends, prepend=0)
    at = np.arange(ends[-1]) + np.repeat(begins - ends + sizes, sizes)
    parts = matrix.data[at], matrix.indices[at], np.append(0, ends).astype(np.int32)
    return csr_array(parts, shape=(len(rows), matrix.shape[1]))


def _by_owner(values: Matrix, owner: Indices, rows: int) -> Matrix:
    """Sums over the examples of each row; shape (rows, columns)."""
    # A quarter of the time of ``np.add.reduceat`` along the first axis.
    examples = np.arange(len(owner), dtype=np.int32)
    starts = owner.searchsorted(np.arange(rows + 1)).astype(np.int32)
    ones = np.ones(len(owner), values.dtype)
    sums: Matrix = csr_array((ones, examples, starts), shape=(rows, len(owner))) @ values
    return sums
