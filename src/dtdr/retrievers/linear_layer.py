"""A linear layer over vectors of texts, trained with Adam in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.encoders.base import Vectors
from dtdr.errors import InputError, ModelError, unknown_choice
from dtdr.progress import track
from dtdr.ranking import Floats
from dtdr.retrievers.base import softmax
from dtdr.retrievers.vectors import Row, product

Loss = Literal["softmax", "bce"]
LOSSES = ("softmax", "bce")
Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Optimisation:
    """How a layer is trained.

    Args:
        loss: ``softmax``, the cross-entropy of one softmax over all tools, or ``bce``, the sum of
            one binary cross-entropy a tool.
        epochs: passes over the examples.
        learning_rate: of Adam, in the first epoch.
        decay: factor on the learning rate after each epoch.
        weight_decay: factor on the weights that is added to their gradient.
        batch_size: examples a step.

    Raises:
        InputError: a value is out of range.
    """

    loss: Loss
    epochs: int
    learning_rate: float
    decay: float
    weight_decay: float
    batch_size: int

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise unknown_choice("loss", str(self.loss), LOSSES)
        for name, low in (("epochs", 1), ("batch_size", 1)):
            if getattr(self, name) < low:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {low}")
        for name in ("learning_rate", "decay"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be greater than 0")
        if not self.weight_decay >= 0:
            raise InputError(f"weight_decay is {self.weight_decay}; it must be at least 0")


class LinearLayer:
    """``logits = vector @ weights + bias``; weights (dimension, tools), bias (tools,), float32."""

    def __init__(self, weights: Matrix, bias: Matrix) -> None:
        self.weights = weights
        self.bias = bias

    @classmethod
    def train(
        cls, vectors: Vectors, targets: csr_array, how: Optimisation, *, seed: int = 0
    ) -> Self:
        """Train from zero.

        Args:
            vectors: shape (examples, dimension), dense or CSR.
            targets: shape (examples, tools), at least 0: the weight of each right answer. Under
                ``softmax``, rows are taken as distributions and must not be empty.
            how: the optimisation.
            seed: order of the examples.
        """
        weights = np.zeros((vectors.shape[1], targets.shape[1]), np.float32)
        layer = cls(weights, np.zeros(targets.shape[1], np.float32))
        adam = _Adam([layer.weights, layer.bias], how.weight_decay)
        order = np.random.default_rng(seed)
        for epoch in track(range(how.epochs), "training the linear layer", how.epochs):
            rate = how.learning_rate * how.decay**epoch
            shuffled = order.permutation(vectors.shape[0])
            for start in range(0, len(shuffled), how.batch_size):
                batch = shuffled[start : start + how.batch_size]
                adam.step(layer._gradients(vectors[batch], targets[batch], how.loss), rate)
        return layer

    def _gradients(self, vectors: Vectors, targets: csr_array, loss: Loss) -> list[Matrix]:
        """Gradients of the mean loss for weights and bias."""
        wanted = targets.toarray().astype(np.float32)
        logits = vectors @ self.weights + self.bias
        if loss == "softmax":
            totals = wanted.sum(axis=1, keepdims=True)
            error = softmax(logits) - wanted / totals
        else:
            error = _sigmoid(logits) - wanted
        error /= np.float32(len(wanted))
        return [np.asarray(vectors.T @ error, np.float32), error.sum(axis=0)]

    def logits(self, row: Row) -> Floats:
        """Shape (tools,) for one vector."""
        result: Floats = (product(row, self.weights) + self.bias).astype(np.float64)
        return result

    # -- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {"weights": self.weights, "bias": self.bias}

    @classmethod
    def restore(cls, state: Mapping[str, npt.NDArray[Any]], *, dimension: int, tools: int) -> Self:
        """The layer that ``state`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the shapes are not those of the encoder and the tools.
        """
        weights, bias = state["weights"], state["bias"]
        if weights.shape != (dimension, tools) or bias.shape != (tools,):
            raise ModelError(
                f"the linear layer has shapes {weights.shape} and {bias.shape}, expected "
                f"{(dimension, tools)} and {(tools,)} for its encoder and tools; fit it again"
            )
        return cls(weights.astype(np.float32), bias.astype(np.float32))


class _Adam:
    """Adam (Kingma and Ba, 2015, Alg. 1), with weight decay added to the gradient of matrices."""

    def __init__(self, parameters: list[Matrix], weight_decay: float) -> None:
        self.parameters = parameters
        self.weight_decay = np.float32(weight_decay)
        self.first = [np.zeros_like(array) for array in parameters]
        self.second = [np.zeros_like(array) for array in parameters]
        # Large temporaries are given back to the system and cleared again at every step.
        self.spare = [np.empty_like(array) for array in parameters]
        self.steps = 0

    def step(self, gradients: list[Matrix], rate: float) -> None:
        self.steps += 1
        # The two bias corrections as one factor on the rate and one on epsilon.
        root = np.sqrt(1 - 0.999**self.steps)
        size = np.float32(rate * root / (1 - 0.9**self.steps))
        tiny = np.float32(1e-8 * root)
        for array, gradient, first, second, spare in zip(
            self.parameters, gradients, self.first, self.second, self.spare, strict=True
        ):
            if self.weight_decay and array.ndim > 1:
                np.multiply(array, self.weight_decay, out=spare)
                gradient += spare
            first *= np.float32(0.9)
            np.multiply(gradient, np.float32(0.1), out=spare)
            first += spare
            second *= np.float32(0.999)
            np.square(gradient, out=gradient)
            gradient *= np.float32(0.001)
            second += gradient
            np.sqrt(second, out=gradient)
            gradient += tiny
            np.divide(first, gradient, out=gradient)
            gradient *= size
            array -= gradient


def _sigmoid(logits: Matrix) -> Matrix:
    # tanh does not overflow, exp does.
    result: Matrix = np.float32(0.5) * (np.tanh(np.float32(0.5) * logits) + np.float32(1))
    return result
