"""A network on query and history that says which tool comes next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.rankers.dtdr_f.blocks.block import (
    Arrays,
    Begin,
    Block,
    CallEvent,
    Query,
    TrainingSet,
    View,
)
from dtdr.rankers.dtdr_f.queries import QueryFeatures
from dtdr.rankers.nn import (
    Indices,
    Input,
    Matrix,
    Network,
    RowGradient,
    cosine,
    dropout,
    softmax_cross_entropy,
    stack_rows,
    train,
)

_LAST_CALLS = 3
_POSITIONS = 12
"""One-hot positions in a plan: 0 to 10, and 11 or later."""
_GROUPS = 2 + _LAST_CALLS
"""Groups of features with one column a tool: number of calls, whether any, and the last calls."""
_MAX_COUNT, _MAX_LENGTH = 8, 20
"""Further calls of one tool, and of a plan, change nothing; no public plan makes more than seven
of one tool."""
_SMOOTHING = 0.02
"""Label smoothing: a plan that was not recorded can be as good."""
_UNSEEN = np.float32(-9)
"""Log probability of a tool that no demonstration calls."""

_EPOCHS, _FULL_EPOCHS = 40, 1_300
"""Passes, and plans up to which all are made. 25 instead of 40: MRR -.007 on TinyAgent."""
_FEW_PLANS, _FEW_EPOCHS = 30, 100
"""This few plans are learned longer, in small batches: MRR with 20 plans, T-Eval .543 -> .548,
TinyAgent .796 -> .802."""
_BATCHES = ((_FEW_PLANS, 16, 3e-3), (500, 64, 3e-3), (3_000, 128, 4e-3), (math.inf, 256, 3e-3))
"""Queries a batch and learning rate up to this many plans."""
_DROPPED = 0.5

_HALVES = ("words", "history", "output")
"""Saved in half the bytes."""


class NextTool(Block):
    """One hidden layer on the sum of a query part and a history part.

    Args:
        parameters: ``words``, ``surface`` and ``history`` (features, width), ``hidden_bias``
            (width,), ``output`` (width, seen tools), ``output_bias`` (seen tools,).
        training: what they were learned from.
    """

    name = "next_tool"
    about = "query and last calls, by a network"
    names = ("log_probability",)
    prior: ClassVar = {"log_probability": 0.6}
    shortlist: ClassVar = {"log_probability": 1.0}

    def __init__(self, parameters: dict[str, Matrix], training: TrainingSet) -> None:
        self.parameters = parameters
        self._slots: list[int] = training.slots.tolist()
        self._seen = np.sort(training.seen)
        self._places = training.slots[self._seen]
        # A hidden unit that is always 1 carries the bias.
        self._output = np.ascontiguousarray(
            np.concatenate([parameters["output"], parameters["output_bias"][None]]).T
        )
        self._calls = _CallWeights(parameters["history"], len(self._output))

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Train from random weights."""
        examples = _Examples.of(training)
        rng = np.random.default_rng(training.seed)
        width, outputs = training.width, len(training.seen)
        sizes = {
            "words": examples.queries.shape[1],
            "surface": examples.surface.shape[1],
            "history": examples.histories.shape[1],
        }
        parameters: dict[str, Matrix] = {
            name: rng.standard_normal((size, width), np.float32) * np.float32(0.1)
            for name, size in sizes.items()
        }
        # What no query has is learned no weight: its random one must not count in another query.
        parameters["surface"][~examples.surface.any(axis=0)] = 0
        parameters["hidden_bias"] = np.zeros(width, np.float32)
        scale = np.float32(0.5 / np.sqrt(width))
        parameters["output"] = rng.standard_normal((width, outputs), np.float32) * scale
        parameters["output_bias"] = np.zeros(outputs, np.float32)
        _train(Network(parameters), examples, training.seed)
        return cls(parameters, training)

    def _hidden(self, query: QueryFeatures) -> Matrix:
        """What a query adds to the hidden layer; shape (width + 1,)."""
        columns, values = query.vector
        weights = self.parameters
        hidden = np.empty(self._output.shape[1], np.float32)
        part = hidden[:-1]
        np.matmul(values, weights["words"][columns], out=part)
        part += query.text.surface @ weights["surface"]
        part += weights["hidden_bias"]
        hidden[-1] = 1
        return hidden

    def relevance(self, query: QueryFeatures, memo: dict[str, Matrix]) -> Matrix:
        """The outputs before any call."""
        hidden = memo[self.name] = self._hidden(query)
        relevance = np.full(len(self._slots) - 1, _UNSEEN)
        relevance[self._seen] = (self._output @ np.maximum(hidden, 0))[self._places]
        return relevance

    def start(self, query: Query, out: Matrix) -> Begin:
        """Tools without demonstrations have one low value; the others are written at each step."""
        hidden, view = query.memo.get(self.name), query.view
        if hidden is None:
            hidden = self._hidden(query.features)
        out[0] = _UNSEEN
        output = self._output.take(view.slots, axis=0)
        return partial(_NextToolState, self._slots, self._calls, hidden, output, view)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The parameters of the network."""
        return {
            name: array.astype(np.float16) if name in _HALVES else array
            for name, array in self.parameters.items()
        }

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The network that was saved."""
        parameters = {name: array.astype(np.float32) for name, array in arrays.items()}
        return cls(parameters, training)


class _NextToolState:
    __slots__ = ("_calls", "_hidden", "_lags", "_length", "_output", "_row", "_seen", "_slots")

    def __init__(
        self,
        slots: list[int],
        calls: _CallWeights,
        hidden: Matrix,
        output: Matrix,
        view: View,
        rows: Matrix,
    ) -> None:
        self._slots, self._calls, self._hidden = slots, calls, hidden
        self._output, self._seen, self._row = output, view.seen, rows[0]
        self._lags = (-1, -1, -1)
        self._length = 0

    def call(self, event: CallEvent) -> None:
        self._length += 1
        slot = self._slots[event.tool]
        self._lags = (slot, self._lags[0], self._lags[1])
        if slot >= 0:
            if event.count == 1:
                self._hidden = self._hidden + self._calls.first[slot]
            elif event.count <= _MAX_COUNT:
                self._hidden = self._hidden + self._calls.again[slot]

    def write(self) -> None:
        calls = self._calls
        hidden = self._hidden + calls.positions[min(self._length, _MAX_LENGTH)]
        for slot, weights in zip(self._lags, calls.lags, strict=True):
            if slot >= 0:
                hidden += weights[slot]
        np.maximum(hidden, 0, out=hidden)
        logits = self._output @ hidden
        highest = logits[logits.argmax()]
        if self._seen is None:
            np.subtract(logits, highest, out=self._row)
        else:
            logits -= highest
            self._row[self._seen] = logits


class _CallWeights:
    """The weights of ``history`` by their meaning, with one more unit that they do not change.

    Attributes:
        first: what the first call of a tool adds, one row a tool.
        again: what every further call of it adds.
        lags: what the last call adds, the one before it, and so on.
        positions: one row a number of calls made, up to ``_MAX_LENGTH``.
    """

    def __init__(self, history: Matrix, outputs: int) -> None:
        history = np.concatenate([history, np.zeros_like(history[:, :1])], axis=1)
        size = outputs - 1
        groups = history[: _GROUPS * size].reshape(_GROUPS, size, history.shape[1])
        # Lists of rows: taking one costs a tenth of indexing a matrix.
        self.first, self.again = list(groups[0] + groups[1]), list(groups[0])
        self.lags = tuple(map(list, groups[2:]))
        tail = history[_GROUPS * size :]
        lengths = np.arange(_MAX_LENGTH + 1)
        slope = (lengths / 5).astype(np.float32)[:, None] * tail[_POSITIONS]
        self.positions = list(tail[np.minimum(lengths, _POSITIONS - 1)] + slope)


@dataclass(frozen=True, slots=True)
class _Examples:
    """Steps of plans.

    Attributes:
        queries: shape (plans, words + shapes).
        surface: shape (plans, surface features).
        histories: shape (steps, history features).
        owner: shape (steps,), sorted: the plan of each step.
        targets: shape (steps, outputs): the smoothed distribution less what each output has alike.
        smoothing: what that is.
        weights: shape (steps,): how much each counts; None for all alike.
    """

    queries: csr_array
    surface: Matrix
    histories: csr_array
    owner: Indices
    targets: csr_array
    smoothing: float
    weights: Matrix | None

    @classmethod
    def of(cls, training: TrainingSet) -> _Examples:
        plans, slots, outputs = training.plans, training.slots.tolist(), len(training.seen)
        rows, targets, owner = [], [], []
        for step in plans.steps():
            rows.append(_history_features([slots[tool] for tool in step.history], outputs))
            share = (1 - _SMOOTHING) / len(step.acceptable)
            columns = [slots[tool] for tool in step.acceptable]
            targets.append((columns, [share] * len(columns)))
            owner.append(step.plan)
        weights = plans.weights.astype(np.float32)
        return cls(
            training.featurizer.shape_vectors,
            training.featurizer.queries.surface,
            stack_rows(rows, _GROUPS * (outputs - 1) + _POSITIONS + 1),
            np.array(owner, np.intp),
            stack_rows(targets, outputs),
            _SMOOTHING / outputs,
            None if (weights == 1).all() else weights[owner],
        )


def _train(network: Network, examples: _Examples, seed: int) -> None:
    """In place: Adam along half a cosine, half of the hidden layer dropped."""
    rng = np.random.default_rng(seed)
    plans, width = len(examples.surface), len(network.parameters["hidden_bias"])
    batch, rate = next((size, rate) for most, size, rate in _BATCHES if plans <= most)
    epochs = _FEW_EPOCHS if plans <= _FEW_PLANS else _EPOCHS
    if plans > _FULL_EPOCHS:
        epochs = max(3, int(_EPOCHS * (_FULL_EPOCHS / plans) ** 0.6))
    lengths = np.bincount(examples.owner, minlength=plans)
    starts = np.cumsum(lengths) - lengths

    def gradients(chosen: Indices) -> dict[str, Matrix | RowGradient]:
        counts = lengths[chosen]
        owner = np.repeat(np.arange(len(chosen)), counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        steps = starts[chosen][owner] + within
        targets: Matrix = examples.targets[steps].toarray()
        targets += np.float32(examples.smoothing)
        weights = None if examples.weights is None else examples.weights[steps]
        inputs = {
            "words": Input(csr_array(examples.queries[chosen]), owner),
            "surface": Input(examples.surface[chosen], owner),
            "history": Input(csr_array(examples.histories[steps])),
        }
        return network.gradients(
            inputs,
            lambda logits: softmax_cross_entropy(logits, targets, weights),
            dropout(rng, (len(steps), width), _DROPPED),
        )[1]

    train(
        network.parameters,
        gradients,
        plans,
        epochs=epochs,
        batch_size=batch,
        rate=lambda epoch: cosine(rate, epoch / epochs),
        rng=rng,
    )
    # Rounded as they are saved, so that a loaded model ranks alike to the last bit.
    for name in _HALVES:
        network.parameters[name][:] = network.parameters[name].astype(np.float16)


def _history_features(history: Sequence[int], outputs: int) -> tuple[list[int], list[float]]:
    """Columns and values: calls of each tool, whether called, the last three calls, position.

    Slots below 0 are calls of unknown tools: they count for the position only.
    """
    size = outputs - 1
    columns: list[int] = []
    values: list[float] = []
    for tool, count in Counter(history).items():
        if tool >= 0:
            columns += (tool, size + tool)
            values += (float(min(count, _MAX_COUNT)), 1.0)
    for lag, tool in enumerate(reversed(history[-_LAST_CALLS:])):
        if tool >= 0:
            columns.append((2 + lag) * size + tool)
            values.append(1.0)
    base = _GROUPS * size
    columns += (base + min(len(history), _POSITIONS - 1), base + _POSITIONS)
    values += (1.0, min(len(history), _MAX_LENGTH) / 5)
    return columns, values
