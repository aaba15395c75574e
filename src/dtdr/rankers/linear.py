"""``lr`` and ``dtdr-l``: a linear layer on the vector of the query, alone or with the history."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import progress_bar
from dtdr.data.run import Run
from dtdr.errors import InputError, check_at_least, check_choice
from dtdr.rankers import nn
from dtdr.rankers.base import UNKNOWN, History
from dtdr.rankers.calibration import Floats
from dtdr.rankers.name_ranker import NameRanker, Recipe, StaticRanker, check_recipe, recipe_encoder
from dtdr.rankers.nn import Matrix
from dtdr.rankers.optimiser import train
from dtdr.rankers.out_of_distribution import DistanceRanker, Placed
from dtdr.rankers.vectors import fit_encoder, product, rows, softmax
from dtdr.text import encoders
from dtdr.text.encoders.base import MAX_CHARACTERS, Encoder, Vectors
from dtdr.text.sparse import csr_array
from dtdr.text.words import name_words

MAX_CALLS = 64
"""Calls of a history that are written into the text, the last ones; no plan of the five public
sets has more than a quarter of it."""


Loss = Literal["softmax", "bce"]


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
        check_choice("loss", self.loss, get_args(Loss))
        check_at_least(1, epochs=self.epochs, batch_size=self.batch_size)
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate is {self.learning_rate}; it must be greater than 0")
        if not 0 < self.decay <= 1:
            raise InputError(f"decay is {self.decay}; it must be above 0 and at most 1")
        if not self.weight_decay >= 0:
            raise InputError(f"weight_decay is {self.weight_decay}; it must be at least 0")


def train_layer(
    vectors: Vectors, targets: csr_array, how: Optimisation, *, seed: int = 0
) -> tuple[Matrix, Matrix]:
    """Train ``logits = vector @ weights + bias`` from zero.

    Args:
        vectors: shape (examples, dimension), dense or CSR.
        targets: shape (examples, tools), at least 0: the weight of each right answer. Under
            ``softmax``, rows are taken as distributions and must not be empty.
        how: the optimisation.
        seed: order of the examples.

    Returns:
        The weights, shape (dimension, tools), and the bias, shape (tools,).
    """
    weights = np.zeros((vectors.shape[1], targets.shape[1]), np.float32)
    bias = np.zeros(targets.shape[1], np.float32)

    def gradients(batch: nn.Indices) -> nn.Gradients:
        inputs, expected = vectors[batch], targets[batch].toarray().astype(np.float32)
        logits = inputs @ weights + bias
        if how.loss == "softmax":
            expected /= expected.sum(axis=1, keepdims=True)
            _, error = nn.softmax_cross_entropy(logits, expected)
        else:
            _, error = nn.binary_cross_entropy(logits, expected)
        gradient, decay = nn.linear_gradient(inputs, error), weights * np.float32(how.weight_decay)
        if isinstance(gradient, nn.RowGradient):
            decay[gradient.rows] += gradient.values
        else:
            decay += gradient
        return {"weights": decay, "bias": error.sum(axis=0)}

    with progress_bar("training the linear layer", how.epochs) as advance:
        train(
            {"weights": weights, "bias": bias},
            gradients,
            vectors.shape[0],
            epochs=how.epochs,
            batch_size=how.batch_size,
            rate=lambda epoch: how.learning_rate * how.decay ** int(epoch),
            rng=np.random.default_rng(seed),
            weight_decay=0,
            advance=advance,
        )
    return weights, bias


PAPER = Optimisation(
    loss="bce", epochs=10, learning_rate=1e-3, decay=0.9, weight_decay=1e-5, batch_size=1
)
"""Settings of Appendix C, "Classifier optimization". Algorithm 5 updates after each example.

The printed loss of Appendix I.2 has the terms of right answers only, which every weight could lower
without end; its text says binary cross-entropy, which ``bce`` is."""


class LinearRetriever(NameRanker):
    """A linear layer with a recipe.

    Args:
        recipe: ``"default"`` or ``"paper"``; each keyword below that is not None overrides it.
        encoder: its name, or the encoder.
        loss, epochs, learning_rate, decay, weight_decay, batch_size: see ``Optimisation``.
        threshold: the paper's α, used by ``Ranking.select()``.
        seed: order of the training steps.

    Raises:
        InputError: a parameter is out of range.
    """

    uses_encoder = True
    RECIPES: ClassVar[dict[str, Optimisation]]

    SHAPES: ClassVar = {"weights_": ("dimension", "tools"), "bias_": ("tools",)}

    encoder: Encoder
    weights_: Matrix
    bias_: Matrix

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
        options = {
            "loss": loss,
            "epochs": epochs,
            "learning_rate": learning_rate,
            "decay": decay,
            "weight_decay": weight_decay,
            "batch_size": batch_size,
        }
        changed: dict[str, Any] = {
            name: value for name, value in options.items() if value is not None
        }
        self.recipe = recipe
        self._optimisation = replace(self.RECIPES[recipe], **changed)
        self.threshold = threshold
        self.seed = seed
        self.encoder = recipe_encoder(encoder, recipe)

    def _train(self, texts: Sequence[str], targets: csr_array) -> None:
        vectors = self.encoder.encode(texts)
        self.weights_, self.bias_ = train_layer(
            vectors, targets, self._optimisation, seed=self.seed
        )

    def _predict(self, texts: Sequence[str]) -> list[Floats]:
        """For each text, probabilities of shape (tools,).

        Both losses end in a softmax, as in the paper: for ``bce`` it gives each tool's share of
        the odds of its sigmoid.
        """
        return [
            softmax((product(row, self.weights_) + self.bias_).astype(np.float64))
            for row in rows(self.encoder.encode(texts))
        ]


class LearnedRetriever(LinearRetriever, StaticRanker):
    """LR: a linear layer on the query's vector (Erdogan et al., 2024; paper, Section 5).

    ``recipe="paper"`` learns which tools the plan uses, the end of plan among them, with one
    binary cross-entropy a tool. The default learns, with one softmax, at how many of the plan's
    steps each tool is acceptable, at a higher rate for 20 epochs.
    """

    name = "lr"
    RECIPES: ClassVar[dict[str, Optimisation]] = {
        "paper": PAPER,
        "default": replace(
            PAPER,
            loss="softmax",
            epochs=20,
            learning_rate=0.03,
            weight_decay=1e-4,
            batch_size=32,
        ),
    }

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        queries = [demonstration.query for demonstration in demonstrations]
        self.encoder = fit_encoder(self.encoder, queries)
        if self.recipe == "paper":
            plans = [{*item.plan.tools, END} for item in demonstrations]
            used = [sorted(self._index[name] for name in plan) for plan in plans]
            targets = indicators(used, len(self.tools_))
        else:
            owners, _, acceptable = training_steps(demonstrations, self._index)
            places = (owners, range(len(owners)))
            targets = csr_array(csr_array((np.ones(len(owners), np.float32), places)) @ acceptable)
        self._train(queries, targets)

    def _prepare(self, queries: Sequence[str]) -> Sequence[Floats]:
        return self._predict(queries)


class DTDRLinear(LinearRetriever, DistanceRanker):
    """DTDR-L (paper, Section 4 and Appendix I.2, Algorithms 5 and 6).

    ``recipe="paper"`` writes the names of the calls behind the query and trains as Appendix C says.
    The default trains one softmax over all tools at a hundred times the rate for 20 epochs, and
    writes the history in its own words (``history_tokens``) where the encoder learns its
    vocabulary, in plain words otherwise (``history_sentence``).

    A query's familiarity is minus its squared Mahalanobis distance from the training queries
    (paper, Limitations), and ``recipe="default"`` shows all tools below the threshold of it.
    """

    name = "dtdr-l"
    SHAPES: ClassVar = LinearRetriever.SHAPES | DistanceRanker.SHAPES
    RECIPES: ClassVar[dict[str, Optimisation]] = {
        "paper": PAPER,
        "default": replace(PAPER, loss="softmax", epochs=20, learning_rate=0.1, batch_size=64),
    }

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        owners, histories, acceptable = training_steps(demonstrations, self._index)
        queries = [demonstration.query for demonstration in demonstrations]
        history_texts = [self._history_text(history) for history in histories]
        learned = [[query] for query in queries]
        for text, owner in zip(history_texts, owners, strict=True):
            learned[owner].append(text)
        # Each query once: a word must be in two demonstrations, not in two steps of one.
        self.encoder = fit_encoder(self.encoder, [*queries, *history_texts])
        self._fit_distance(queries, self.encoder.encode(queries), learned)
        texts = [
            self._text(queries[position], history)
            for position, history in zip(owners, histories, strict=True)
        ]
        self._train(texts, acceptable)

    def _history_text(self, history: History) -> str:
        names = [self._names[index] for index in history[-MAX_CALLS:] if index != UNKNOWN]
        if self.recipe == "paper":
            return " ".join(names)
        return history_tokens(names) if self.encoder.learned else history_sentence(names)

    def _text(self, query: str, history: History) -> str:
        written = self._history_text(history)[: MAX_CHARACTERS // 2]
        # A long query gives way: the encoder would cut the history off.
        return f"{query[: MAX_CHARACTERS - len(written) - 1]} {written}"

    def _prepare(self, queries: Sequence[str]) -> Sequence[Placed]:
        scores = map(self.distance_.score, rows(self.encoder.encode(queries)))
        return [Placed(*pair) for pair in zip(queries, scores, strict=True)]

    def _row(self, prepared: Placed, history: History) -> Floats:
        return self._predict([self._text(prepared.prepared, history)])[0]

    def score_all(self, prepared: Sequence[Placed], runs: Sequence[Run]) -> Floats:
        """See ``Ranker.score_all``; the encoder reads all texts at once."""
        texts = [
            self._text(query.prepared, self.positions(run))
            for query, run in zip(prepared, runs, strict=True)
        ]
        return np.stack(self._predict(texts))


def history_sentence(names: Sequence[str]) -> str:
    """A history in plain words, for encoders that know language but not tool names."""
    words = [name_words(name) for name in names] or ["none"]
    return f"Done so far: {', then '.join(words)}. Last call: {words[-1]}."


def history_tokens(names: Sequence[str]) -> str:
    """A history in words that no query uses: each call, how often it was made, and the last call.

    Words are repeated so that the query's, which are many more and rarer, do not drown them (MRR
    .886 once each, .898 repeated, on the validation fold of TinyAgent; .661 and .672 on T-Eval).
    """
    words = [re.sub(r"\W+", "_", name) for name in names]
    called = [f"did_{word}" for word in words for _ in range(2)]
    often = [f"did_{word}_{count}" for word, count in Counter(words).items()]
    last = f"last_{words[-1]}" if words else "last_start"
    return " ".join([*called, *often, last, last, last])


def training_steps(
    demonstrations: Sequence[Demonstration], index: Mapping[str, int]
) -> tuple[list[int], list[tuple[int, ...]], csr_array]:
    """The teacher-forced steps of demonstrations, whose tools all have an index, in their order.

    Returns:
        Of each step the position of its demonstration, and the tool indices called before it; and
        1 for each acceptable next tool, end of plan included, shape (steps, tools).
    """
    owners: list[int] = []
    histories: list[tuple[int, ...]] = []
    accepted: list[list[int]] = []
    for position, demonstration in enumerate(demonstrations):
        calls = tuple(index[name] for name in demonstration.plan.tools)
        for count, step in enumerate(demonstration.plan.steps()):
            owners.append(position)
            histories.append(calls[:count])
            accepted.append(sorted(index[name] for name in step.targets))
    return owners, histories, indicators(accepted, len(index))


def indicators(columns: Sequence[Sequence[int]], width: int) -> csr_array:
    """Shape (rows, width): 1 in the given columns of each row."""
    return nn.stack_rows([(row, [1.0] * len(row)) for row in columns], width)
