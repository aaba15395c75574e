"""A softmax regression on the outputs of the last calls, earlier messages and earlier calls.

It knows which words, keys, flags and thresholds in the outputs of the agent's last step, and which
calls before it, go with which next call; before the first call, the words of the query and of
earlier messages. So it learns rules on what was just returned. It remembers nothing of outputs
before the last step: the block ``state`` does that.

Example: ``get_invoice`` returned ``{"approvals": 2, "paid": false}``. The flag ``paid`` and each
threshold up to 2 that ``approvals`` reaches are columns, the more of them the less each counts: of
five, 2 / sqrt(5) = .89. If the call failed instead, ``failed`` is 1 for ``get_invoice``, and
``any_failed`` is 1 for all tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.observations import NO_CONTEXT, Context
from dtdr.rankers.dtdr_f.outcomes import EMPTY, ERROR, NO_OUTCOME, Outcome
from dtdr.rankers.dtdr_f.queries import Row
from dtdr.rankers.dtdr_f.ragged import Ragged, count_rows
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Matrix, log_softmax, stack_rows
from dtdr.rankers.softmax_regression import fit_softmax
from dtdr.rankers.sorted_keys import find_sorted
from dtdr.rankers.vectors import rows as rows_of

_LEAST_RUNS = 2
"""A word, a fact or a pair of tools counts if this many demonstrations contain it."""
_MOST_KEYS = 20_000
"""Keys that count, the most frequent ones: a model of 50 tools grows by 2 MB."""
_EPOCHS, _BATCH, _RATE, _DECAY = 20, 64, 0.01, 0.3
_LEAST_UPDATES = 300
"""Steps of Adam: 50 runs would be 60, too few for a rule on a number."""
_FEW_STEPS, _SMOOTHING = 3_000, 0.02
"""More steps are learned for half the epochs, and all tools share this much of the target. MRR on
TRAJECT by sequence after the first call .624 -> .629; fewer steps, as of tau-bench's airline, are
ranked better without."""
_MAX_WORK = 1e10
"""Values of rows times outputs times epochs."""
_UNSEEN = -12.0
"""Log probability of a tool without demonstrations."""
_MOST_IN_A_ROW = 5
# Weights of parts of a row; the rest has weight 1.
_QUERY_WEIGHT, _EARLIER_WEIGHT, _LEFT_WEIGHT, _FACT_WEIGHT = 2.0, 0.3, 2.0, 2.0
# The kind of a key. 24 bits of a key are a tool's slot, 32 bits its other content.
_EARLIER_TOOL, _EARLIER_LAST, _QUERY, _CALLED, _SECOND, _STATUS, _RUN, _LEFT, _LEFT_OF = range(9)
_SAID, _WORD, _FACT, _PAIR = range(9, 13)
_COUNTED_ONCE = _SAID
"""Keys from here on count only if ``_LEAST_RUNS`` demonstrations contain them."""

Entries = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


_KIND_BITS = 56
"""Bits of a key below its kind."""


def _key(kind: int, slot: int, what: int = 0) -> int:
    return (kind << _KIND_BITS) | ((slot + 2) << 32) | what


def _join(single: Mapping[int, float], *many: tuple[int, npt.NDArray[Any], Any]) -> Entries:
    """Keys of a step's features, and how much each counts.

    Args:
        single: by key.
        many: a key, what is added to it, and how much each of these counts.
    """
    begin = len(single)
    size = begin + sum(len(what) for _, what, _ in many)
    keys, values = np.empty(size, np.int64), np.empty(size)
    keys[:begin], values[:begin] = list(single), list(single.values())
    for key, what, counts in many:
        part = slice(begin, begin := begin + len(what))
        np.add(what, np.int64(key), out=keys[part])
        values[part] = counts
    return keys, values


def _first_entries(query: Row, context: Context, slots: Sequence[int]) -> Entries:
    """Features before the first call."""
    single = {_key(_EARLIER_TOOL, slots[tool]): _EARLIER_WEIGHT for tool, _ in context.calls}
    for tool, status in context.calls[-1:]:
        single[_key(_EARLIER_LAST, slots[tool], status)] = 1.0
    return _join(
        single,
        (_key(_QUERY, -1), query[0], _QUERY_WEIGHT * query[1]),
        (_key(_SAID, -1), context.words, context.weights),
    )


def _later_entries(calls: Sequence[tuple[int, Outcome]], last_step: int) -> Entries:
    """Entries of this turn's calls, by their slots, and of the last step's outputs.

    Args:
        calls: all calls and what became of them.
        last_step: the first call of the last step: of those the agent has not answered yet.
    """
    single = {_key(_CALLED, slot): 1.0 for slot, _ in calls}
    second = calls[last_step - 1][0] if last_step else -2
    single[_key(_SECOND, second)] = 1.0
    step = calls[last_step:]
    if len(step) == 1:
        slot = step[0][0]
        row = next((n for n, (other, _) in enumerate(reversed(calls)) if other != slot), len(calls))
        single[_key(_RUN, slot, min(row, _MOST_IN_A_ROW))] = 1.0
    least: dict[int, int] = {}
    for slot, outcome in step:
        single[_key(_STATUS, slot, outcome.status)] = 1.0
        single[_key(_PAIR, slot, second + 2)] = 1.0
        least[slot] = min(outcome.left, least.get(slot, outcome.left))
    for slot, left in least.items():
        single[_key(_LEFT, -1, left)] = single[_key(_LEFT_OF, slot, left)] = _LEFT_WEIGHT
    facts = [(_key(_FACT, slot), outcome.facts, _FACT_WEIGHT) for slot, outcome in step]
    words = step[0][1].words
    if len(step) > 1:
        words = np.unique(np.concatenate([outcome.words for _, outcome in step]))
    return _join(single, *facts, (_key(_WORD, -1), words, 1.0))


class LastOutputRows(FeatureRows):
    """Features of the outputs of the last step."""

    last_output: Matrix  # log probability of the tool by the regression
    failed: Matrix  # 1 for a tool of the last step whose call failed
    returned_nothing: Matrix  # 1 for a tool of the last step whose output was empty
    any_failed: Matrix  # 1 where a call of the last step failed; the same for every tool
    called_earlier: Matrix  # 1 for a tool that an earlier turn called


_OF_LAST_STEP = LastOutputRows.span("failed", "any_failed")


class LastOutput(Block):
    """Predict the next tool from the outputs of the last step, the calls and the last messages.

    Later steps of a turn read all outputs since the agent's last message, in any order. Some thirty
    examples teach a rule on a number. The features stay 0 while only names are known.

    Args:
        keys: shape (columns,), sorted: what the rows are about.
        weights: shape (columns + 1, seen), the last row is the bias.
        training: what they were learned from.
    """

    name = "last_output"
    about = "what the last calls returned"
    rows = LastOutputRows
    prior: ClassVar = {"last_output": 0.5}
    shortlist: ClassVar = {"last_output": 0.5}
    learned = ("keys", "weights")

    def __init__(self, keys: npt.NDArray[np.int64], weights: Matrix, training: TrainingSet) -> None:
        self.keys, self.weights = keys, weights
        self.slots, self.seen = training.slots, training.seen

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Train on the steps of the plans; nothing is learned where names alone are known."""
        data, slots, outputs = training.data, training.slots, len(training.seen)
        block = cls(np.empty(0, np.int64), np.zeros((1, outputs), np.float32), training)
        if data.has_names_only:
            return block
        rows, wanted, owner = [], [], []
        queries = rows_of(training.featurizer.vectors)
        for step in data.steps():
            if step.history:
                calls = [slots[tool] for tool in step.history]
                known = list(zip(calls, data.outcomes[step.plan], strict=False))
                parallel = data.columns["parallel"][step.plan]
                first_calls = np.flatnonzero(parallel[: len(calls)] == 0)
                rows.append(_later_entries(known, int(first_calls[-1])))
            else:
                rows.append(_first_entries(queries[step.plan], data.contexts[step.plan], slots))
            wanted.append([slots[tool] for tool in step.acceptable])
            owner.append(step.plan)
        block.keys = _frequent(Ragged.of([keys for keys, _ in rows], np.int64), np.array(owner))
        read = [block.columns(entries) for entries in rows]
        inputs = stack_rows(
            [([*places, len(block.keys)], [*values, 1.0]) for places, values in read],
            len(block.keys) + 1,
        )
        steps = len(rows)
        smoothing, epochs = (_SMOOTHING, _EPOCHS // 2) if steps > _FEW_STEPS else (0.0, _EPOCHS)
        epochs = max(epochs, _LEAST_UPDATES * _BATCH // steps)
        block.weights, _ = fit_softmax(
            inputs,
            wanted,
            np.arange(steps),
            outputs,
            absent=None if data.absent is None else data.absent[owner][:, training.seen],
            smoothing=smoothing,
            epochs=max(2, min(epochs, int(_MAX_WORK / max(inputs.nnz * outputs, 1)))),
            batch_size=_BATCH,
            rate=_RATE,
            weight_decay=_DECAY,
            seed=training.seed,
        )
        return block

    def columns(self, entries: Entries) -> Row:
        """The columns of the known keys, and their values."""
        keys, values = entries
        places, known = find_sorted(self.keys, keys)
        places, values, kinds = places[known], values[known], keys[known] >> _KIND_BITS
        for kind in (_WORD, _FACT):  # all words together have the length of one
            of_kind = kinds == kind
            if (count := int(np.count_nonzero(of_kind))) > 1:
                values[of_kind] /= count**0.5
        return places, values.astype(np.float32)

    def start(self, query: Query, rows: LastOutputRows) -> BlockState:
        """Features before the first call."""
        for tool, _ in query.context.calls:
            if tool >= 0:
                rows.called_earlier[tool] = 1
        known = query.context is not NO_CONTEXT
        return _LastOutputState(self, query.features.words, query.context, known)


class _LastOutputState(NamedTuple):
    block: LastOutput
    query: Row
    context: Context
    is_known: bool
    calls: tuple[tuple[int, Outcome], ...] = ()
    last_step: int = 0

    def call(self, event: CallEvent, rows: LastOutputRows) -> _LastOutputState:
        block, query, context, is_known, calls, last_step = self
        outcome = event.outcome
        if not event.is_parallel:
            last_step = len(calls)
            if is_known:
                rows.table[_OF_LAST_STEP] = 0
        calls = (*calls, (block.slots[event.tool], outcome))
        if outcome is not NO_OUTCOME:
            is_known = True
            failed, nothing = outcome.status == ERROR, outcome.status == EMPTY
            if event.tool >= 0:
                rows.failed[event.tool], rows.returned_nothing[event.tool] = failed, nothing
            if failed:
                rows.any_failed.fill(1)
        return _LastOutputState(block, query, context, is_known, calls, last_step)

    def write(self, rows: LastOutputRows) -> None:
        block = self.block
        if not self.is_known or len(block.weights) == 1:
            return
        if self.calls:
            entries = _later_entries(self.calls, self.last_step)
        else:
            entries = _first_entries(self.query, self.context, block.slots)
        rows.last_output.fill(_UNSEEN)
        places, values = block.columns(entries)
        logits = values @ block.weights.take(places, axis=0) + block.weights[-1]
        rows.last_output[block.seen] = log_softmax(logits)


def _frequent(keys: Ragged, owner: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """Keys of enough demonstrations, sorted.

    Args:
        keys: of each step.
        owner: shape (steps,): the demonstration of each.
    """
    distinct, key_index = np.unique(keys.values, return_inverse=True)
    _, counts = count_rows(key_index.astype(np.uint32), owner[keys.owner])
    often = (counts >= _LEAST_RUNS) | (distinct >> _KIND_BITS < _COUNTED_ONCE)
    distinct, counts = distinct[often], counts[often]
    return np.sort(distinct[np.argsort(-counts, kind="stable")[:_MOST_KEYS]])
