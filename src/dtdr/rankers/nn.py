"""Small networks in numpy: one optimiser, one training loop, one backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dtdr.text.sparse import csc_array, csr_array

Matrix: TypeAlias = npt.NDArray[np.float32]
Indices: TypeAlias = npt.NDArray[np.intp]

_CHUNK = 32_768
"""Numbers that a step of Adam works on at once, so that they stay in a core's own cache. A whole
matrix of TRAJECT-Bench (20,417 terms, 382 tools) went twelve times through memory."""


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


class Adam:
    """Adam (Kingma and Ba, 2015, Alg. 1), in place.

    Args:
        parameters: by name; matrices or vectors, float32.
        weight_decay: of matrices, separate from the step (Loshchilov and Hutter, 2019); vectors are
            biases and do not decay. Rows of a matrix that a ``RowGradient`` leaves out stay as they
            are: a batch of 64 queries has only some of the words.
    """

    def __init__(self, parameters: Mapping[str, Matrix], weight_decay: float) -> None:
        self._parameters = {
            name: array.reshape(len(array), -1) for name, array in parameters.items()
        }
        self._matrices = {name for name, array in parameters.items() if array.ndim > 1}
        self._first = {name: np.zeros_like(array) for name, array in self._parameters.items()}
        self._second = {name: np.zeros_like(array) for name, array in self._parameters.items()}
        self._weight_decay = weight_decay
        widest = max((array.shape[1] for array in self._parameters.values()), default=1)
        # New temporaries are cleared by the system at every step.
        self._spare = np.empty((4, max(_CHUNK, widest)), np.float32)
        self.steps = 0

    def step(self, gradients: Gradients, rate: float) -> None:
        """One step at this learning rate."""
        self.steps += 1
        # The two bias corrections, and the factors of new gradients, which the moments leave out,
        # as one factor on the rate and one on epsilon.
        root = math.sqrt((1 - 0.999**self.steps) / 0.001)
        size, tiny = 0.1 * rate * root / (1 - 0.9**self.steps), 1e-8 * root
        for name, gradient in gradients.items():
            array, first, second = self._parameters[name], self._first[name], self._second[name]
            decay = self._weight_decay if name in self._matrices else 0.0
            settings = rate, size, tiny, decay
            rows = max(1, _CHUNK // max(1, array.shape[1]))
            if isinstance(gradient, RowGradient):
                for start in range(0, len(gradient.rows), rows):
                    part = gradient.rows[start : start + rows]
                    change = gradient.values[start : start + rows]
                    # The mode spares numpy a copy; all rows exist.
                    values, moment, squares = (
                        whole.take(part, axis=0, out=self._part(index, change), mode="clip")
                        for index, whole in enumerate((array, first, second), 1)
                    )
                    self._move(values, change, moment, squares, settings)
                    array[part], first[part], second[part] = values, moment, squares
                continue
            gradient = gradient.reshape(array.shape)
            for start in range(0, len(array), rows):
                span = slice(start, start + rows)
                self._move(array[span], gradient[span], first[span], second[span], settings)

    def _part(self, index: int, like: Matrix) -> Matrix:
        """A spare array of the shape of another."""
        part: Matrix = self._spare[index, : like.size].reshape(like.shape)
        return part

    def _move(
        self,
        values: Matrix,
        gradient: Matrix,
        first: Matrix,
        second: Matrix,
        settings: tuple[float, float, float, float],
    ) -> None:
        rate, size, tiny, decay = settings
        change = self._part(0, values)
        if decay:
            values *= np.float32(1 - rate * decay)
        first *= np.float32(0.9)
        first += gradient
        np.square(gradient, out=change)
        second *= np.float32(0.999)
        second += change
        np.sqrt(second, out=change)
        change += np.float32(tiny)
        np.divide(first, change, out=change)
        change *= np.float32(size)
        values -= change


def cosine(rate: float, done: float, least: float = 0.05) -> float:
    """A learning rate that falls along half a cosine, to the share ``least`` at ``done`` = 1."""
    return rate * (least + (1 - least) * 0.5 * (1 + math.cos(math.pi * done)))


def train(
    parameters: Mapping[str, Matrix],
    gradients: Callable[[Indices], Gradients],
    examples: int,
    *,
    epochs: int,
    batch_size: int,
    rate: Callable[[float], float],
    rng: np.random.Generator,
    weight_decay: float = 0.01,
    averaged: float = 0.0,
    advance: Callable[[], None] = lambda: None,
) -> None:
    """Train parameters in place on batches in random order.

    Args:
        parameters: what ``Adam`` moves.
        gradients: of the mean loss on the examples of these numbers.
        examples: how many there are.
        epochs: passes over them.
        batch_size: examples a step.
        rate: the learning rate after this many epochs, whole or in part.
        rng: the order of the examples.
        weight_decay: see ``Adam``.
        averaged: the parameters end as their mean over this share of the steps, the last ones
            (stochastic weight averaging, Izmailov et al., 2018); 0: as they are after the last.
        advance: called once an epoch, to show progress.
    """
    optimiser = Adam(parameters, weight_decay)
    batches = -(-examples // batch_size)
    left = int(averaged * epochs * batches)
    averages = sum(array.size for array in parameters.values()) if left else 0
    mean, latest = np.zeros((2, averages), np.float32)
    first, done = epochs * batches - left, 0
    for epoch in range(epochs):
        advance()
        order = rng.permutation(examples)
        for batch in range(batches):
            examples_of_batch = order[batch * batch_size : (batch + 1) * batch_size]
            optimiser.step(gradients(examples_of_batch), rate(epoch + batch / batches))
            done += 1
            if done > first:
                np.concatenate([array.ravel() for array in parameters.values()], out=latest)
                latest -= mean
                latest *= np.float32(1 / (done - first))
                mean += latest
    if left:
        ends = np.cumsum([array.size for array in parameters.values()])
        for array, part in zip(parameters.values(), np.split(mean, ends[:-1]), strict=True):
            array[:] = part.reshape(array.shape)


# -- layers ------------------------------------------------------------------------------------


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


def _by_owner(values: Matrix, owner: Indices, rows: int) -> Matrix:
    """Sums over the examples of each row; shape (rows, columns)."""
    # A quarter of the time of ``np.add.reduceat`` along the first axis.
    examples = np.arange(len(owner), dtype=np.int32)
    starts = owner.searchsorted(np.arange(rows + 1)).astype(np.int32)
    ones = np.ones(len(owner), values.dtype)
    sums: Matrix = csr_array((ones, examples, starts), shape=(rows, len(owner))) @ values
    return sums


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
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Matrix = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
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
