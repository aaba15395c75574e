"""A linear layer over vectors of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from scipy.sparse import csr_array

from dtdr.data.progress import progress_bar
from dtdr.errors import InputError, check_at_least, check_choice
from dtdr.rankers import nn
from dtdr.rankers.calibration import Floats
from dtdr.rankers.nn import Matrix
from dtdr.rankers.vectors import Row, product
from dtdr.text.encoders.base import Vectors

Loss = Literal["softmax", "bce"]
LOSSES = ("softmax", "bce")


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
        check_choice("loss", self.loss, LOSSES)
        check_at_least(1, epochs=self.epochs, batch_size=self.batch_size)
        for name in ("learning_rate", "decay"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be greater than 0")
        check_at_least(0, weight_decay=self.weight_decay)


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
        with progress_bar("training the linear layer", how.epochs) as advance:
            nn.train(
                {"weights": layer.weights, "bias": layer.bias},
                lambda batch: layer.gradients(vectors[batch], targets[batch], how.loss),
                vectors.shape[0],
                epochs=how.epochs,
                batch_size=how.batch_size,
                rate=lambda epoch: how.learning_rate * how.decay ** int(epoch),
                rng=np.random.default_rng(seed),
                weight_decay=how.weight_decay,
                decoupled=False,
                advance=advance,
            )
        return layer

    def gradients(
        self, vectors: Vectors, targets: csr_array, loss: Loss
    ) -> dict[str, Matrix | nn.RowGradient]:
        """Gradients of the mean loss for weights and bias."""
        expected = targets.toarray().astype(np.float32)
        logits = vectors @ self.weights + self.bias
        if loss == "softmax":
            expected /= expected.sum(axis=1, keepdims=True)
            _, error = nn.softmax_cross_entropy(logits, expected)
        else:
            _, error = nn.binary_cross_entropy(logits, expected)
        return {"weights": nn.linear_gradient(vectors, error), "bias": error.sum(axis=0)}

    def logits(self, row: Row) -> Floats:
        """Shape (tools,) for one vector."""
        result: Floats = (product(row, self.weights) + self.bias).astype(np.float64)
        return result
