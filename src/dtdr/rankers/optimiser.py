"""The optimiser and the training loop of small networks in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from dtdr.rankers.nn import Gradients, Indices, Matrix, RowGradient

_CHUNK = 32_768
"""Numbers that a step of Adam works on at once, so that they stay in a core's own cache. A whole
matrix of TRAJECT-Bench (20,417 terms, 382 tools) went twelve times through memory."""


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
