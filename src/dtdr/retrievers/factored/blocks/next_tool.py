"""A network on query and history that says which tool comes next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.errors import ModelError
from dtdr.retrievers.factored.blocks.base import (
    Arrays,
    Begin,
    Block,
    CallEvent,
    PlanUpdate,
    Query,
    TrainingSet,
    View,
)
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.query_features import EncodedQueries, QueryFeatures
from dtdr.retrievers.factored.ridge import insert_rows, pick_columns
from dtdr.retrievers.nn import (
    Indices,
    Input,
    Matrix,
    Network,
    RowGradient,
    cosine,
    dropout,
    softmax_cross_entropy,
    train,
)

_LAST_CALLS = 3
_POSITIONS = 12
"""One-hot positions in a plan: 0 to 10, and 11 or later."""
_GROUPS = 2 + _LAST_CALLS
"""Groups of features with one column a tool: number of calls, whether any, and the last calls."""
_MAX_COUNT = 8
"""Further calls of one tool change nothing; no public plan makes more than seven."""
_MAX_LENGTH = 20
"""Calls after which the position does not grow any more."""
_SMOOTHING = 0.02
"""Label smoothing: a plan that was not recorded can be as good."""
_UNSEEN = np.float32(-9)
"""Log probability of a tool that no demonstration calls."""

_EPOCHS = 40
_FULL_EPOCHS = 1_300
"""Plans up to which all epochs are made; more plans need fewer passes."""
_FEW_PLANS, _FEW_EPOCHS = 30, 100
"""So few plans are learned longer, in small batches: 20 are one batch of 64, and 40 steps of Adam
are too few. MRR with 20 plans, three draws: T-Eval .543 -> .548, TinyAgent .796 -> .802."""
_BATCHES = ((_FEW_PLANS, 16, 3e-3), (500, 64, 3e-3), (3_000, 128, 4e-3), (math.inf, 256, 3e-3))
"""Queries a batch and learning rate up to so many plans. In batches of 64, 794 plans took a third
longer, with the same validation MRR; of 80 plans, batches of 128 do not learn enough. 25 epochs
instead of 40 cost .007 of validation MRR on TinyAgent."""
_DROPPED = 0.5
_UPDATE_EPOCHS, _UPDATE_RATE, _UPDATE_BATCH = 4, 5e-4, 32
"""Twice to three times the passes or the rate changed validation MRR by less than .004."""

_HALVES = ("words", "history")
"""Saved in half the bytes."""
_PARAMETERS = (*_HALVES, "surface", "hidden_bias", "output", "output_bias")


def epochs_for(plans: int) -> int:
    """Passes over so many plans: 40, more up to 30 plans, and fewer above 1,300."""
    if plans <= _FEW_PLANS:
        return _FEW_EPOCHS
    if plans <= _FULL_EPOCHS:
        return _EPOCHS
    return max(3, int(_EPOCHS * (_FULL_EPOCHS / plans) ** 0.6))


class NextTool(Block):
    """One hidden layer on the sum of a query part and a history part.

    There is no linear path beside the hidden layer: with one, validation MRR on TinyAgent was .007
    lower.

    Args:
        network: inputs ``words``, ``surface`` and ``history``; one output a seen tool.
        slots: shape (tools + 1,): the output of each tool, -1 where it has none.
    """

    name = "next_tool"
    about = "query and last calls, by a network"
    names = ("log_probability",)
    prior = "log_probability"
    shortlist: ClassVar = {"log_probability": 1.0}

    def __init__(self, network: Network, slots: Indices) -> None:
        self.network = network
        self._slots: list[int] = slots.tolist()
        self._of_tools, self._seen = slots[:-1], (slots[:-1] >= 0).nonzero()[0]
        values = network.parameters
        # A hidden unit that is always 1 carries the bias.
        self._output = np.ascontiguousarray(
            np.concatenate([values["output"], values["output_bias"][None]]).T
        )
        self._calls = _CallWeights(values["history"], len(self._output))

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Train from random weights."""
        examples = _Examples.of(training.queries, training.plans, training)
        rng = np.random.default_rng(training.seed)
        width, outputs = training.width, len(training.seen)
        sizes = {
            "words": examples.queries.vectors.shape[1],
            "surface": examples.queries.surface.shape[1],
            "history": examples.histories.shape[1],
        }
        parameters: dict[str, Matrix] = {
            name: rng.standard_normal((size, width), np.float32) * np.float32(0.1)
            for name, size in sizes.items()
        }
        parameters["hidden_bias"] = np.zeros(width, np.float32)
        scale = np.float32(0.5 / np.sqrt(width))
        parameters["output"] = rng.standard_normal((width, outputs), np.float32) * scale
        parameters["output_bias"] = np.zeros(outputs, np.float32)
        network = Network(parameters)
        plans = len(training.plans)
        batch, rate = next((size, rate) for most, size, rate in _BATCHES if plans <= most)
        _train(network, examples, epochs_for(plans), batch, rate, training.seed)
        return cls(network, training.slots)

    def update(self, update: PlanUpdate) -> Block:
        """Learn further plans beside some that are known, once enough have come."""
        if update.rehearsal is None:
            return self
        training, replay = update.training, update.replay
        if update.is_refit:
            return self.fit(training)
        plans = training.plans.subset(replay.plans[update.rehearsal])
        examples = _Examples.of(replay.queries.subset(update.rehearsal), plans, training)
        network = self.network.copy()
        _train(network, examples, _UPDATE_EPOCHS, _UPDATE_BATCH, _UPDATE_RATE, training.seed)
        return NextTool(network, training.slots)

    def renumber(self, training: TrainingSet, slots: Indices) -> Block:
        """Move the outputs; a new one starts as unlikely as the least likely."""
        values = self.network.parameters
        bias = values["output_bias"]
        moved = {
            "output": pick_columns(values["output"], slots),
            "output_bias": np.append(bias, bias.min())[np.where(slots < 0, len(bias), slots)],
            "history": _renumber_history(values["history"], slots, len(bias)),
        }
        return NextTool(Network({**values, **moved}), training.slots)

    def widen(self, training: TrainingSet, first: int, count: int) -> Block:
        """Rows of zeros for the new words."""
        values = self.network.parameters
        words = insert_rows(values["words"], first, count)
        return NextTool(Network({**values, "words": words}), training.slots)

    def _hidden(self, query: QueryFeatures) -> Matrix:
        """What a query adds to the hidden layer; shape (width + 1,)."""
        columns, values = query.vector
        weights = self.network.parameters
        hidden = np.empty(self._output.shape[1], np.float32)
        part = hidden[:-1]
        np.matmul(values, weights["words"][columns], out=part)
        part += query.surface @ weights["surface"]
        part += weights["hidden_bias"]
        hidden[-1] = 1
        return hidden

    def relevance(self, query: QueryFeatures, memo: dict[str, Matrix]) -> Matrix:
        """The outputs before any call."""
        hidden = memo[self.name] = self._hidden(query)
        relevance = np.full(len(self._of_tools), _UNSEEN)
        relevance[self._seen] = self._output @ np.maximum(hidden, 0)
        return relevance

    def start(self, query: Query, out: Matrix) -> Begin:
        """Tools without demonstrations have one low value; the others are written at each step."""
        hidden, view = query.memo.get(self.name), query.view
        if hidden is None:
            hidden = self._hidden(query.features)
        output = self._output
        if view.tools is not None:
            slots = self._of_tools[view.tools if view.seen is None else view.tools[view.seen]]
            output = output.take(slots, axis=0)
        out[0] = _UNSEEN
        return partial(_NextToolState, self._slots, self._calls, hidden, output, view)

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The parameters of the network."""
        return {
            name: array.astype(np.float16) if name in _HALVES else array
            for name, array in self.network.parameters.items()
        }

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The network that was saved."""
        parameters = {name: arrays[name].astype(np.float32) for name in _PARAMETERS}
        words = training.featurizer.words.dimension + training.featurizer.shapes.dimension
        outputs = len(training.seen)
        width = len(parameters["hidden_bias"])
        expected = {
            "words": (words, width),
            "history": (_history_width(outputs), width),
            "surface": (len(parameters["surface"]), width),
            "output": (width, outputs),
            "output_bias": (outputs,),
        }
        for name, shape in expected.items():
            if parameters[name].shape != shape:
                raise ModelError(
                    f"array {name!r} of the next-tool network has shape {parameters[name].shape}, "
                    f"expected {shape}; fit it again"
                )
        return cls(Network(parameters), training.slots)


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

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        """Nothing about new tools."""


class _CallWeights:
    """The weights of ``history`` by what they stand for, with one more unit that they leave alone.

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
        queries: one a plan.
        histories: shape (steps, history features).
        owner: shape (steps,), rising: the plan of each step.
        targets: shape (steps, outputs): the smoothed distribution less what each output has alike.
        smoothing: what that is.
        weights: shape (steps,): how much each counts; None for all alike.
    """

    queries: EncodedQueries
    histories: csr_array
    owner: Indices
    targets: csr_array
    smoothing: float
    weights: Matrix | None

    @classmethod
    def of(cls, queries: EncodedQueries, plans: EncodedPlans, training: TrainingSet) -> _Examples:
        slots, outputs = training.slots.tolist(), len(training.seen)
        rows, targets, owner = [], [], []
        for step in plans.steps():
            rows.append(_history_features([slots[tool] for tool in step.history], outputs))
            share = (1 - _SMOOTHING) / len(step.acceptable)
            columns = [slots[tool] for tool in step.acceptable]
            targets.append((columns, [share] * len(columns)))
            owner.append(step.plan)
        weights = plans.weights.astype(np.float32)
        return cls(
            queries,
            _stack(rows, _history_width(outputs)),
            np.array(owner, np.intp),
            _stack(targets, outputs),
            _SMOOTHING / outputs,
            None if (weights == 1).all() else weights[owner],
        )


def _stack(rows: Sequence[tuple[list[int], list[float]]], width: int) -> csr_array:
    """``stack_rows`` of short lists, of which an array each would cost more than all the rest."""
    starts = np.cumsum([0, *(len(columns) for columns, _ in rows)], dtype=np.int32)
    columns = np.fromiter(chain.from_iterable(columns for columns, _ in rows), np.int32)
    values = np.fromiter(chain.from_iterable(values for _, values in rows), np.float32)
    return csr_array((values, columns, starts), shape=(len(rows), width))


def _train(
    network: Network, examples: _Examples, epochs: int, batch: int, rate: float, seed: int
) -> None:
    """In place: Adam along half a cosine, half of the hidden layer dropped."""
    rng = np.random.default_rng(seed)
    plans, width = len(examples.queries), len(network.parameters["hidden_bias"])
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
        queries = examples.queries
        inputs = {
            "words": Input(queries.vectors[chosen], owner),
            "surface": Input(queries.surface[chosen], owner),
            "history": Input(examples.histories[steps]),
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
        network.parameters[name] = network.parameters[name].astype(np.float16).astype(np.float32)


def _history_width(outputs: int) -> int:
    """Number of history features for so many outputs, end of plan included."""
    return _GROUPS * (outputs - 1) + _POSITIONS + 1


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


def _renumber_history(history: Matrix, slots: Indices, outputs: int) -> Matrix:
    """Rows of ``history`` for other outputs; a new one (-1) has zeros."""
    size, width = outputs - 1, history.shape[1]
    groups = history[: _GROUPS * size].reshape(_GROUPS, size, width)
    padded = np.concatenate([groups, np.zeros((_GROUPS, 1, width), np.float32)], axis=1)
    moved = padded[:, np.where(slots < 0, size, slots)[:-1]].reshape(-1, width)
    return np.concatenate([moved, history[_GROUPS * size :]])
