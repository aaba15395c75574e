"""A softmax regression on the situation: what calls returned, and what was said and done before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dtdr.errors import ModelError
from dtdr.retrievers.factored.blocks.base import (
    Arrays,
    Begin,
    Block,
    CallEvent,
    PlanUpdate,
    Query,
    TrainingSet,
)
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.observations import (
    MOST_LEFT,
    NO_CONTEXT,
    NO_OUTCOME,
    STATUSES,
    Context,
    Outcome,
)
from dtdr.retrievers.factored.query_features import EncodedQueries, Row
from dtdr.retrievers.factored.ridge import insert_rows
from dtdr.retrievers.nn import (
    Indices,
    Matrix,
    cosine,
    linear_gradient,
    log_softmax,
    softmax_cross_entropy,
    stack_rows,
    train,
)

_LEAST_RUNS = 2
"""A word counts if so many demonstrations hold it."""
_MOST_WORDS = 20_000
"""Words that count, the most frequent ones: a model of 50 tools grows by 2 MB."""
_EPOCHS, _UPDATE_EPOCHS = 20, 10
_FEW_STEPS, _SMOOTHING = 3_000, 0.02
"""More steps are learned for half the epochs, and all tools share so much of the target. On inner
folds of TRAJECT-Bench by sequence (381 tools), MRR after the first call .624 -> .629, after a
failed call .599 -> .610. Fewer steps, as of tau-bench's airline, are ranked better without."""
_BATCH = 64
_RATE, _UPDATE_RATE = 0.01, 0.01
_DECAY = 0.3
_MAX_WORK = 1e10
"""Values of rows times outputs times epochs."""
_UNSEEN = -12.0
"""Log probability of a tool without demonstrations."""
_TURNS, _EARLIER, _STEPS = 7, 7, 7
_LEFT_FLAG = _TURNS + _EARLIER + _STEPS
_FLAGS = _LEFT_FLAG + MOST_LEFT + 1
# Groups of features with one column a tool.
_EARLIER_ANY, _EARLIER_UNUSED, _EARLIER_LAST = 0, 1, 2
_ANY = _EARLIER_LAST + len(STATUSES)
_SECOND, _LAST = _ANY + 1, _ANY + 2
_RUN = _LAST + len(STATUSES)
_MOST_IN_A_ROW = 5
_LEFT = _RUN + _MOST_IN_A_ROW
_GROUPS = _LEFT + MOST_LEFT + 1
# How much parts of a row count beside the rest, which counts 1.
_QUERY_WEIGHT, _ANY_WEIGHT, _LEFT_WEIGHT = 2.0, 0.3, 2.0

Entries = list[tuple[int, float]]


class _Columns:
    """Where everything that is known of a step stands in a row of the regression.

    The first step of a turn and the later ones have columns of their own: the first is about what
    was said, the later ones about what calls returned.

    Args:
        outputs: tools with demonstrations, and the end of plan.
        query: columns of the vector of a query.
        message_words: hashes of words before the query, rising.
        output_words: hashes of words of outputs, rising.
        pairs: shape (n, 2): slots of calls that followed each other; the slot after those of the
            tools stands for the start.
    """

    def __init__(
        self,
        outputs: int,
        query: int,
        message_words: npt.NDArray[Any],
        output_words: npt.NDArray[Any],
        pairs: npt.NDArray[Any],
    ) -> None:
        self.tools, self.query = outputs - 1, query
        self.message_words, self.output_words, self.pairs = message_words, output_words, pairs
        self._message_places = {word: place for place, word in enumerate(message_words.tolist())}
        self._output_places = {word: place for place, word in enumerate(output_words.tolist())}
        self._first_query = _FLAGS + _GROUPS * self.tools
        self._first_message = self._first_query + query
        self._first_output = self._first_message + len(message_words)
        self._pairs = {(one, two): place for place, (one, two) in enumerate(pairs.tolist())}
        self._first_pair = self._first_output + len(output_words)
        self.width = self._first_pair + len(pairs)

    def first(self, query: Row, context: Context, slots: Sequence[int]) -> Entries:
        """What is known before the first call."""
        start = self._first_query
        entries = [
            (start + column, _QUERY_WEIGHT * value)
            for column, value in zip(*map(_to_list, query), strict=True)
        ]
        entries.append((min(context.turns, _TURNS - 1), 1.0))
        entries.append((_TURNS + min(len(context.calls), _EARLIER - 1), 1.0))
        calls = [(slots[call.tool], call) for call in context.calls]
        entries += [
            (self._of(_EARLIER_ANY, slot), _ANY_WEIGHT) for slot in {slot for slot, _ in calls}
        ]
        if calls:
            slot, last = calls[-1]
            entries.append((self._of(_EARLIER_LAST + last.status, slot), 1.0))
            if not last.is_used:
                entries.append((self._of(_EARLIER_UNUSED, slot), 1.0))
        words = zip(context.words.tolist(), context.weights.tolist(), strict=True)
        places = self._message_places
        entries += [(self._first_message + places[w], value) for w, value in words if w in places]
        return [entry for entry in entries if entry[0] >= 0]

    def later(self, calls: Sequence[int], outcome: Outcome) -> Entries:
        """What the calls of this turn say, by their slots, and what became of the last one."""
        entries = [(_TURNS + _EARLIER + min(len(calls), _STEPS) - 1, 1.0)]
        entries += [(self._of(_ANY, slot), 1.0) for slot in set(calls)]
        last, second = calls[-1], calls[-2] if len(calls) > 1 else self.tools
        entries.append((self._of(_SECOND, second), 1.0))
        entries.append((self._of(_LAST + outcome.status, last), 1.0))
        in_a_row = next((n for n, slot in enumerate(reversed(calls)) if slot != last), len(calls))
        entries.append((self._of(_RUN + min(in_a_row, _MOST_IN_A_ROW) - 1, last), 1.0))
        entries.append((_LEFT_FLAG + outcome.left, _LEFT_WEIGHT))
        entries.append((self._of(_LEFT + outcome.left, last), _LEFT_WEIGHT))
        if (second, last) in self._pairs:
            entries.append((self._first_pair + self._pairs[second, last], 1.0))
        places = [
            self._output_places[w] for w in outcome.words.tolist() if w in self._output_places
        ]
        value = max(len(places), 1) ** -0.5
        entries += [(self._first_output + place, value) for place in places]
        return [entry for entry in entries if entry[0] >= 0]

    def _of(self, group: int, slot: int) -> int:
        return _FLAGS + group * self.tools + slot if 0 <= slot < self.tools else -1


class Situation(Block):
    """What comes next, from the last output, the calls of earlier turns and the last messages.

    Nothing is said before more is known than names. The words are hashes.

    Args:
        columns: of the rows that it reads.
        weights: shape (columns + 1, outputs), the last row is the bias.
        slots: of the tools, as in ``TrainingSet``.
    """

    name = "situation"
    about = "what the last call returned"
    names = ("situation",)
    told_prior = "situation"
    shortlist: ClassVar = {"situation": 0.5}
    reads_runs = True

    def __init__(self, columns: _Columns, weights: Matrix, slots: Indices) -> None:
        self.columns, self.weights = columns, weights
        self._slots = slots.tolist()

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Train on the steps of the plans."""
        runs = training.runs
        assert runs is not None  # a block that reads runs is left out where there are none
        columns = _Columns(
            len(training.seen),
            training.queries.vectors.shape[1],
            _frequent(context.words for context in runs.contexts),
            _frequent(
                np.unique(np.concatenate([_NONE, *(outcome.words for outcome in outcomes)]))
                for outcomes in runs.outcomes
            ),
            _pairs(training.plans, training.slots, len(training.seen) - 1),
        )
        weights = np.zeros((columns.width + 1, len(training.seen)), np.float32)
        block = cls(columns, weights, training.slots)
        block._train(training.queries, training.plans, runs, training.seed, _EPOCHS, _RATE)
        return block

    def _train(
        self,
        queries: EncodedQueries,
        plans: EncodedPlans,
        runs: EncodedRuns,
        seed: int,
        epochs: int,
        rate: float,
    ) -> None:
        """In place: Adam along half a cosine."""
        outputs = self.weights.shape[1]
        rows, wanted = [], []
        weights = plans.weights.astype(np.float32)
        owners = []
        for step in plans.steps():
            outcomes, done = runs.outcomes[step.plan], len(step.history)
            if done:
                calls = [self._slots[tool] for tool in step.history]
                entries = self.columns.later(calls, outcomes[done - 1])
            else:
                vector = queries.vectors[[step.plan]]
                query = (vector.indices, vector.data)
                entries = self.columns.first(query, runs.contexts[step.plan], self._slots)
            entries.append((self.columns.width, 1.0))
            rows.append(_sort_entries(entries))
            slots = [self._slots[tool] for tool in step.acceptable]
            wanted.append((slots, [1 / len(slots)] * len(slots)))
            owners.append(step.plan)
        inputs = stack_rows(rows, self.columns.width + 1)
        targets = stack_rows(
            [(np.array(slots, np.int32), np.array(v, np.float32)) for slots, v in wanted], outputs
        )
        counts = weights[np.array(owners, np.intp)]
        smoothing = 0.0
        if len(rows) > _FEW_STEPS:
            smoothing, epochs = _SMOOTHING, epochs // 2

        def gradients(chosen: Indices) -> Any:
            part = inputs[chosen]
            expected = targets[chosen].toarray() * np.float32(1 - smoothing)
            expected += np.float32(smoothing / outputs)
            _, error = softmax_cross_entropy(part @ self.weights, expected, counts[chosen])
            return {"weights": linear_gradient(part, error)}

        epochs = max(2, min(epochs, int(_MAX_WORK / max(inputs.nnz * outputs, 1))))
        train(
            {"weights": self.weights},
            gradients,
            len(rows),
            epochs=epochs,
            batch_size=_BATCH,
            rate=lambda epoch: cosine(rate, epoch / epochs),
            rng=np.random.default_rng(seed),
            weight_decay=_DECAY,
        )
        # Rounded as they are saved, so that a loaded model ranks alike to the last bit.
        self.weights[:] = self.weights.astype(np.float16)

    def update(self, update: PlanUpdate) -> Block:
        """Learn further plans beside some that are known, once enough have come."""
        runs = update.replay.runs
        if update.rehearsal is None or runs is None:
            return self
        training, rehearsal = update.training, update.rehearsal
        if update.is_refit:
            return self.fit(training)
        block = Situation(self.columns, self.weights.copy(), training.slots)
        block._train(
            update.replay.queries.subset(rehearsal),
            training.plans.subset(update.replay.plans[rehearsal]),
            runs.subset(rehearsal),
            training.seed,
            _UPDATE_EPOCHS,
            _UPDATE_RATE,
        )
        return block

    def renumber(self, training: TrainingSet, slots: Indices) -> Block:
        """Move the outputs and the columns of tools; a new tool starts as unlikely as any."""
        old, weights = self.columns, self.weights
        # Where each old slot is now; one more for the start, one for what is gone.
        places = np.full(old.tools + 2, -1, np.int32)
        places[slots[:-1][slots[:-1] >= 0]] = np.flatnonzero(slots[:-1] >= 0)
        places[old.tools] = len(slots) - 1
        pairs = places[old.pairs]
        still = (pairs >= 0).all(axis=1)
        columns = _Columns(len(slots), old.query, old.message_words, old.output_words, pairs[still])
        groups = weights[_FLAGS : _FLAGS + _GROUPS * old.tools]
        groups = groups.reshape(_GROUPS, old.tools, weights.shape[1])
        padded = np.concatenate(
            [groups, np.zeros_like(groups, shape=(_GROUPS, 1, weights.shape[1]))], axis=1
        )
        kept = padded[:, np.where(slots < 0, old.tools, slots)[:-1]]
        rows = np.concatenate(
            [
                weights[:_FLAGS],
                kept.reshape(-1, weights.shape[1]),
                weights[_FLAGS + _GROUPS * old.tools : old.width - len(pairs)],
                weights[old.width - len(pairs) : -1][still],
                weights[-1:],
            ]
        )
        fresh = np.zeros((len(rows), 1), np.float32)
        fresh[-1] = weights[-1].min()
        moved = np.concatenate([rows, fresh], axis=1)[
            :, np.where(slots < 0, weights.shape[1], slots)
        ]
        return Situation(columns, np.ascontiguousarray(moved), training.slots)

    def widen(self, training: TrainingSet, first: int, count: int) -> Block:
        """Rows of zeros for the new words."""
        old = self.columns
        columns = _Columns(
            old.tools + 1, old.query + count, old.message_words, old.output_words, old.pairs
        )
        weights = insert_rows(self.weights, _FLAGS + _GROUPS * old.tools + first, count)
        return Situation(columns, weights, training.slots)

    def start(self, query: Query, out: Matrix) -> Begin:
        """Everything is written by the state."""
        return partial(_SituationState, self, query)

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Hashes of the words, and the weights."""
        return {
            "message_words": self.columns.message_words.astype(np.int32),
            "output_words": self.columns.output_words.astype(np.int32),
            "pairs": self.columns.pairs.astype(np.int32),
            "weights": self.weights.astype(np.float16),
        }

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The regression that was saved."""
        query = training.featurizer.words.dimension + training.featurizer.shapes.dimension
        columns = _Columns(
            len(training.seen),
            query,
            arrays["message_words"],
            arrays["output_words"],
            arrays["pairs"],
        )
        weights = arrays["weights"].astype(np.float32)
        if weights.shape != (columns.width + 1, len(training.seen)):
            raise ModelError("the regression on situations does not fit its tools; fit it again")
        return cls(columns, weights, training.slots)

    def read(self, entries: Entries) -> Matrix:
        """The logits of a row; shape (outputs,)."""
        places, values = zip(*entries, strict=True)
        logits: Matrix = np.array(values, np.float32) @ self.weights[list(places)]
        logits += self.weights[-1]
        return logits


class _SituationState:
    __slots__ = ("_block", "_calls", "_is_told", "_outcome", "_query", "_row", "_slots")

    def __init__(self, block: Situation, query: Query, rows: Matrix) -> None:
        self._block, self._query, self._row = block, query, rows[0]
        slots, tools = block._slots, query.view.tools
        self._slots = slots[:-1] if tools is None else [slots[tool] for tool in tools.tolist()]
        self._calls: list[int] = []
        self._outcome = NO_OUTCOME
        self._is_told = query.context is not NO_CONTEXT

    def call(self, event: CallEvent) -> None:
        self._calls.append(self._block._slots[event.tool])
        self._outcome = event.outcome
        if event.outcome is not NO_OUTCOME:
            self._is_told = True

    def write(self) -> None:
        if not self._is_told:
            return
        block, query = self._block, self._query
        if self._calls:
            entries = block.columns.later(self._calls, self._outcome)
        else:
            entries = block.columns.first(query.features.vector, query.context, block._slots)
        values = log_softmax(block.read(entries))
        self._row[:] = np.append(values, np.float32(_UNSEEN))[self._slots]

    def describe(self, columns: Indices, prior: Matrix, out: Matrix) -> None:
        return


_NONE = np.empty(0, np.int32)


def _to_list(values: Any) -> list[Any]:
    items: list[Any] = values.tolist()
    return items


def _frequent(words: Iterable[npt.NDArray[np.int32]]) -> npt.NDArray[np.int32]:
    """Hashes that enough demonstrations hold, rising."""
    values, counts = np.unique(np.concatenate([_NONE, *words]), return_counts=True)
    often = counts >= _LEAST_RUNS
    values, counts = values[often], counts[often]
    if len(values) > _MOST_WORDS:
        values = np.sort(values[np.argsort(-counts, kind="stable")[:_MOST_WORDS]])
    return values.astype(np.int32)


def _pairs(plans: EncodedPlans, slots: Indices, start: int) -> npt.NDArray[np.int32]:
    """Slots of calls and of those before them, where enough plans hold both; shape (pairs, 2).

    Args:
        plans: of the demonstrations.
        slots: of the tools.
        start: what stands before the first call.
    """
    plans_with: Counter[tuple[int, int]] = Counter()
    calls, place = slots[plans.calls].tolist(), 0
    for length in plans.lengths.tolist():
        own = calls[place : place + length]
        plans_with.update(set(pairwise([start, *own])))
        place += length
    pairs = [pair for pair, count in plans_with.items() if count >= _LEAST_RUNS and min(pair) >= 0]
    return np.array(sorted(pairs), np.int32).reshape(-1, 2)


def _sort_entries(entries: Entries) -> tuple[npt.NDArray[np.int32], Matrix]:
    columns, values = zip(*sorted(entries), strict=True)
    return np.array(columns, np.int32), np.array(values, np.float32)
