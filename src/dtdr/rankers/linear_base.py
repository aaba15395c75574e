"""Base of ``lr`` and ``dtdr-l``: a linear layer on the vector of a text, and what it trains on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.rankers.array_checks import require
from dtdr.rankers.calibration import Floats
from dtdr.rankers.linear_layer import LinearLayer, Loss, Optimisation
from dtdr.rankers.name_ranker import NameRanker, Recipe, check_recipe
from dtdr.rankers.vectors import rows, softmax
from dtdr.text import encoders
from dtdr.text.encoders.base import Encoder

PAPER = Optimisation(
    loss="bce", epochs=10, learning_rate=1e-3, decay=0.9, weight_decay=1e-5, batch_size=32
)
"""Settings of Appendix C, "Classifier optimization"; the batch size is not given there."""


class LinearRetriever(NameRanker):
    """A linear layer with a recipe.

    Args:
        recipe: ``"default"`` or ``"paper"``; each keyword below that is not None overrides it.
        encoder: its name, or the encoder.
        loss: ``"softmax"`` or ``"bce"``, see ``Optimisation``.
        epochs: passes over the training steps.
        learning_rate: of Adam, in the first epoch.
        decay: factor on the learning rate after each epoch.
        weight_decay: factor on the weights that is added to their gradient.
        batch_size: training steps a step of Adam.
        threshold: the paper's α, used by ``Ranking.select()``.
        seed: order of the training steps.

    Raises:
        InputError: a parameter is out of range.
    """

    uses_encoder = True
    RECIPES: ClassVar[dict[str, Optimisation]]

    encoder: Encoder
    layer_: LinearLayer

    def __init__(
        self,
        *,
        recipe: Recipe = "default",
        encoder: str | Encoder = encoders.DEFAULT,
        loss: Loss | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        decay: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        threshold: float | None = None,
        seed: int = 0,
    ) -> None:
        check_recipe(recipe)
        preset = self.RECIPES[recipe]
        # The values of a recipe are stored one by one: a saved model does not change its
        # meaning when a later version measures better settings.
        self.recipe = recipe
        self.loss = preset.loss if loss is None else loss
        self.epochs = preset.epochs if epochs is None else epochs
        self.learning_rate = preset.learning_rate if learning_rate is None else learning_rate
        self.decay = preset.decay if decay is None else decay
        self.weight_decay = preset.weight_decay if weight_decay is None else weight_decay
        self.batch_size = preset.batch_size if batch_size is None else batch_size
        self.threshold = threshold
        self.seed = seed
        self._optimisation()  # checks
        self.encoder = self._choose_encoder(encoder)

    def default_params(self) -> dict[str, Any]:
        """Those of the recipe."""
        return super().default_params() | vars(self.RECIPES[self.recipe])

    def _optimisation(self) -> Optimisation:
        return Optimisation(
            self.loss,
            self.epochs,
            self.learning_rate,
            self.decay,
            self.weight_decay,
            self.batch_size,
        )

    def _train(self, texts: Sequence[str], targets: csr_array) -> None:
        vectors = self.encoder.encode(texts)
        self.layer_ = LinearLayer.train(vectors, targets, self._optimisation(), seed=self.seed)

    def _predict(self, texts: Sequence[str]) -> list[Floats]:
        """For each text, probabilities of shape (tools,).

        Both losses end in a softmax, as in the paper: for ``bce`` it gives each tool's share of
        the odds of its sigmoid.
        """
        return [softmax(self.layer_.logits(row)) for row in rows(self.encoder.encode(texts))]

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return self.layer_.state()

    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        require(state, {"weights", "bias"})
        self.layer_ = LinearLayer.restore(
            state, dimension=self.encoder.dimension, tools=len(self.tools_)
        )


@dataclass(frozen=True)
class TrainingSteps:
    """The teacher-forced steps of demonstrations, in their order.

    Attributes:
        demonstration: shape (steps,): position of the demonstration a step is from.
        histories: tool indices called before each step.
        acceptable: shape (steps, tools): 1 for each acceptable next tool.
        following: shape (steps, tools): 1 for the tool that the demonstration called next.
    """

    demonstration: list[int]
    histories: list[tuple[int, ...]]
    acceptable: csr_array
    following: csr_array


def training_steps(
    demonstrations: Sequence[Demonstration], index: Mapping[str, int]
) -> TrainingSteps:
    """Steps of demonstrations whose tools all have an index, the end of plan included."""
    owners: list[int] = []
    histories: list[tuple[int, ...]] = []
    accepted: list[list[int]] = []
    called: list[list[int]] = []
    for position, demonstration in enumerate(demonstrations):
        calls = tuple(index[name] for name in demonstration.plan.tools)
        for count, step in enumerate(demonstration.plan.steps()):
            owners.append(position)
            histories.append(calls[:count])
            accepted.append(sorted(index[name] for name in step.targets))
            called.append([(*calls, index[END])[count]])
    return TrainingSteps(
        owners, histories, indicators(accepted, len(index)), indicators(called, len(index))
    )


def indicators(columns: Sequence[Sequence[int]], width: int) -> csr_array:
    """Shape (rows, width): 1 in the given columns of each row."""
    starts = np.cumsum([0, *map(len, columns)])
    flat = np.fromiter((column for row in columns for column in row), np.int64, starts[-1])
    return csr_array((np.ones(len(flat), np.float32), flat, starts), shape=(len(columns), width))
