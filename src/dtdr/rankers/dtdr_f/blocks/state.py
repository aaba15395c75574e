"""A random forest on the state: the latest values of all outputs, the calls, and the words.

It knows the values that each tool took or returned last, in this turn or an earlier one. The most
frequent ones that three groups of demonstrations have are columns, and so are differences of two
numbers that separate next tools. So it learns rules such as "an amount above the limit needs an
approval". Conditions on one of these that say whether a run still calls a tool are further columns:
of a tool that few runs call, at many different moments, the trees see too few steps. Where several
tools are due at once, ``due_first`` says which comes first.

Example: ``get_claim`` returned an amount of 1,200 and, three calls later, ``get_policy`` a limit of
1,000. The column of their difference is 200. If .9 of the trees then predict ``ask_approval`` among
50 tools, ``state_probability`` is .9 for it, and ``state`` is log(.95 x .9 + .05 / 50) = -.155.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dtdr.errors import ModelError
from dtdr.rankers.base import Arrays
from dtdr.rankers.dtdr_f.blocks.block import Block, BlockState, CallEvent, Query, TrainingSet
from dtdr.rankers.dtdr_f.blocks.state_columns import (
    COUNT,
    EARLIER,
    FIRST_SLOT,
    LAST,
    MISSING,
    NUMBERS,
    OUTPUT,
    QUERY,
    RUN,
    SAID,
    SECOND,
    SIZES,
    STATUS,
    OwnerColumns,
    are_values,
    choose_keys,
    groups_of,
)
from dtdr.rankers.dtdr_f.observations import NO_CONTEXT, Context
from dtdr.rankers.dtdr_f.outcomes import NO_OUTCOME, Outcome
from dtdr.rankers.dtdr_f.queries import Row
from dtdr.rankers.dtdr_f.value_pairs import (
    choose_loops,
    choose_pairs,
    differences,
    lowered_by_pairs,
)
from dtdr.rankers.dtdr_f.value_rules import NO_RULES, Rules, find_rules
from dtdr.rankers.dtdr_f.values import IN_QUERY, NUMERIC, Values
from dtdr.rankers.feature_rows import FeatureRows
from dtdr.rankers.nn import Indices, Matrix
from dtdr.rankers.sorted_keys import find_sorted
from dtdr.rankers.trees import Forest
from dtdr.rankers.vectors import rows as rows_of

_MOST_ROWS = 20_000
"""Steps that the forest learns from."""
_SMOOTHING = np.float32(0.05)
"""Share of the probability that all tools have."""


class StateRows(FeatureRows):
    """The prediction of the forest, and of the conditions; all 0 while only names are known."""

    state: Matrix  # log of the tool's share of the trees, with ``_SMOOTHING``
    state_probability: Matrix  # share of the tool, 0 for tools without demonstrations
    due_first: Matrix  # how likely it comes first of the tools that conditions say are due


class _TrainingSteps(NamedTuple):
    """Steps to learn from, one for each acceptable tool.

    Attributes:
        table: shape (steps, columns).
        wanted: shape (steps,): the slot of the tool.
        weights: shape (steps,): one by the number of acceptable tools.
        runs: shape (2, steps): the run, and its group.
    """

    table: Matrix
    wanted: Indices
    weights: Matrix
    runs: Indices


class State(Block):
    """Predict the next tool by a random forest on everything that the agent knows.

    Args:
        keys: shape (columns,), sorted: the owner, kind and hash of each column.
        pairs: shape (2, n): columns whose difference is a further column.
        rules: on all of these, further columns.
        forest: learned from rows of these columns; None where names alone were known.
        training: what they were learned from.
    """

    name = "state"
    about = "values that calls returned"
    rows = StateRows
    prior: ClassVar = {"state": 0.5}
    shortlist: ClassVar = {"state": 0.5}

    def __init__(
        self,
        keys: npt.NDArray[np.int64],
        pairs: Indices,
        rules: Rules,
        forest: Forest | None,
        training: TrainingSet,
    ) -> None:
        self.keys, self.pairs, self.rules, self.forest = keys, pairs, rules, forest
        self.slots, self.seen = training.slots, training.seen
        owners, low = keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32)
        size = len(training.seen)
        bounds = owners.searchsorted(np.arange(FIRST_SLOT + size + 1)).tolist()
        spans = [slice(*pair) for pair in pairwise(bounds)]
        columns_of_owners = [OwnerColumns(low, span) for span in spans]
        self.query_values, self.run, self.words, *self.tools = columns_of_owners
        outputs = self.words.begin + int(self.words.keys.searchsorted(OUTPUT))
        self.output_words = slice(outputs, self.words.span.stop)
        self.width = len(keys)
        pairs_end = self.width + len(pairs[0])
        rules_end = pairs_end + len(rules.low)
        self.pair_span, self.rule_span = slice(self.width, pairs_end), slice(pairs_end, rules_end)
        # The last column takes what has none; no tree reads it.
        self.start_row = np.zeros(rules_end + 1, np.float32)
        self.start_row[: self.width][are_values(keys) & (low < NUMERIC)] = MISSING
        self.at = {
            kind: self._columns_of(RUN, kind, size) for kind in (LAST, SECOND, COUNT, EARLIER)
        }
        self.best_rules = rules.best
        counted = {column: slot for slot, column in enumerate(self.at[COUNT])}
        slots = [counted[column] for column in rules.counts[self.best_rules].tolist()]
        self.due_tools = training.seen[np.array(slots, np.intp)]
        self.status_at = self._columns_of(RUN, STATUS, 4)
        self.sizes_at = np.array(self._columns_of(RUN, NUMBERS, len(SIZES)))

    def _columns_of(self, owner: int, kind: int, count: int) -> list[int]:
        """The column of each slot, or the last one."""
        wanted = (owner << 32) + kind + np.arange(count)
        places, known = find_sorted(self.keys, wanted)
        return [int(at) if is_known else -1 for at, is_known in zip(places, known, strict=True)]

    @classmethod
    def fit(cls, training: TrainingSet) -> Self:
        """Fit the forest to the steps of the plans; nothing is learned from names alone."""
        no_pairs = np.empty((2, 0), np.intp)
        nothing = cls(np.empty(0, np.int64), no_pairs, NO_RULES, None, training)
        if training.data.has_names_only:
            return nothing
        block = cls(choose_keys(training), no_pairs, NO_RULES, None, training)
        steps = block._read_steps(training)
        if steps is None:
            return nothing
        pairs = block._choose_pairs(steps)
        table = np.concatenate(
            [steps.table[:, :-1], differences(steps.table, pairs, MISSING)], axis=1
        )
        rules = block._find_rules(table, pairs, steps)
        last_column = np.zeros((len(table), 1), np.float32)
        table = np.concatenate([table, rules.read(table), last_column], axis=1)
        block = cls(block.keys, pairs, rules, None, training)
        classes, size, seed = steps.wanted, len(training.seen), training.seed
        block.forest = Forest.fit(table, classes, size, weights=steps.weights, seed=seed)
        return block

    def _read_steps(self, training: TrainingSet) -> _TrainingSteps | None:
        """The steps of the plans to learn from, at most ``_MOST_ROWS``; None if there is none."""
        rows, wanted, weights, plans = [], [], [], []
        for plan, row, acceptable in self._iter_rows(training):
            for tool in acceptable:
                rows.append(row)
                wanted.append(training.slots[tool])
                weights.append(1 / len(acceptable))
                plans.append(plan)
        if not rows:
            return None
        rng = np.random.default_rng(training.seed)
        if len(rows) > _MOST_ROWS:
            kept = np.sort(rng.choice(len(rows), _MOST_ROWS, replace=False))
            rows, wanted, weights, plans = (
                [part[at] for at in kept] for part in (rows, wanted, weights, plans)
            )
        runs = np.array([plans, groups_of(training.data)[plans]])
        return _TrainingSteps(np.stack(rows), np.array(wanted), np.array(weights, np.float32), runs)

    def _choose_pairs(self, steps: _TrainingSteps) -> Indices:
        """Columns whose differences are further columns: loops over items, then pairs of values."""
        table, wanted = steps.table, steps.wanted
        numeric = np.flatnonzero(self.start_row[: self.width] == MISSING)
        numeric = numeric[(self.keys[numeric] & 0xFFFFFFFF) < IN_QUERY]
        at_last, at_count = np.array(self.at[LAST]), np.array(self.at[COUNT])
        is_last = table[:, at_last] * (at_last >= 0) > 0
        last = np.where(is_last, np.arange(len(at_last)), -1).max(axis=1)
        values = np.flatnonzero(are_values(self.keys))
        loops = choose_loops(table, values, at_count, last, wanted)
        return np.concatenate([loops, choose_pairs(table, numeric, MISSING, last, wanted)], axis=1)

    def _find_rules(self, table: Matrix, pairs: Indices, steps: _TrainingSteps) -> Rules:
        """The conditions on values and differences, and which comes first of tools that are due."""
        values = np.flatnonzero(are_values(self.keys))
        columns = np.append(values, np.arange(self.width, table.shape[1]))
        counts, lowered_by = np.array(self.at[COUNT]), lowered_by_pairs(self.width, pairs)
        known = counts[counts >= 0]
        rules = find_rules(table, columns, MISSING, known, steps.runs, lowered_by[columns])
        called = counts[steps.wanted]
        return rules.with_order(rules.read(table), called, steps.weights, steps.runs[0])

    def _iter_rows(self, training: TrainingSet) -> Iterator[tuple[int, Matrix, tuple[int, ...]]]:
        """Each step of a run with outputs: the run, the row, and the acceptable tools."""
        data = training.data
        queries = rows_of(training.featurizer.vectors)
        plan, start, state = -1, None, None
        for step in data.steps():
            if step.plan != plan:
                plan = step.plan
                start = self.first(queries[plan], data.contexts[plan], data.query_values[plan])
            parallel = data.columns["parallel"][plan]
            done = len(step.history)
            # Parallel calls have not returned while another of their step is chosen.
            pending = done
            if done < len(parallel) and parallel[done]:
                pending = int(np.flatnonzero(parallel[:done] == 0)[-1])
            state = start
            outcomes = data.outcomes[plan]
            assert state is not None
            for at, tool in enumerate(step.history):
                outcome = outcomes[at] if at < pending else NO_OUTCOME
                state = state.add(self.slots[tool], outcome, is_parallel=bool(parallel[at]))
            if state.is_known:
                row = state.with_words()
                row[-1] = 0
                yield plan, row, step.acceptable

    def first(self, words: Row, context: Context, values: Values) -> _StateRow:
        """The state before the first call."""
        row = self.start_row.copy()
        self.query_values.write(row, values.keys, values.values)
        self.words.write(row, (words[0] + QUERY).astype(np.int32), words[1])
        self.words.write(row, (context.words + SAID).astype(np.int32), context.weights)
        at = self.at[EARLIER]
        for (tool, _), of_call in zip(context.calls, context.values, strict=True):
            slot = self.slots[tool]
            if slot >= 0:
                row[at[slot]] += 1
                self.tools[slot].replace(row, self.start_row, of_call)
        row[self.sizes_at[1]] = len(context.calls)
        return _StateRow(self, row, context is not NO_CONTEXT)

    def start(self, query: Query, rows: StateRows) -> BlockState | None:
        """Features before the first call."""
        if self.forest is None:
            return None
        return self.first(query.features.words, query.context, query.values)

    def arrays(self) -> Arrays:
        """The columns and the forest."""
        forest = {} if self.forest is None else self.forest.arrays()
        return {
            "keys": self.keys,
            "pairs": self.pairs.astype(np.int32),
            "rule_columns": np.array([self.rules.columns, self.rules.counts], np.int32),
            "rule_bounds": np.array([self.rules.low, self.rules.high], np.float32),
            "rule_order": self.rules.behind,
            **{f"forest_{name}": array for name, array in forest.items()},
        }

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The block whose ``arrays`` these are."""
        parts = {
            name.removeprefix("forest_"): array
            for name, array in arrays.items()
            if name.startswith("forest_")
        }
        keys, pairs = arrays["keys"], arrays["pairs"].astype(np.intp)
        if pairs.shape[:1] != (2,) or (
            pairs.size and not 0 <= pairs.min() <= pairs.max() < len(keys)
        ):
            raise ModelError("the pairs of values of the model are damaged; fit it again")
        width = len(keys) + pairs.shape[1]
        columns, bounds = arrays["rule_columns"].astype(np.intp), arrays["rule_bounds"]
        if (
            columns.shape != bounds.shape
            or columns.shape[:1] != (2,)
            or (columns.size and not 0 <= columns.min() <= columns.max() < width)
        ):
            raise ModelError("the rules of the model are damaged; fit it again")
        are_left = lowered_by_pairs(len(keys), pairs)[columns[0]] == columns[1]
        low, high = bounds
        rules = Rules(columns[0], columns[1], low, high, are_left, arrays["rule_order"])
        if rules.behind.shape != (len(rules.best),) * 2 or (rules.behind > 0).any():
            raise ModelError("the order of rules of the model is damaged; fit it again")
        width += columns.shape[1] + 1
        forest = Forest.restore(parts, width, len(training.seen)) if parts else None
        return cls(keys, pairs, rules, forest, training)


class _StateRow(NamedTuple):
    """The row of features after some calls.

    Attributes:
        row: shape (columns + pairs + rules + 1,), without words of outputs; never changed.
        is_known: whether a call had an outcome, or something came before the query; a first query
            alone does not count.
        step: slots of the calls of the last step.
        before: slots of the step before it.
        distinct: slots that were called.
        calls: how many.
        outcomes: of the calls of the last step.
    """

    block: State
    row: Matrix
    is_known: bool
    step: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    distinct: frozenset[int] = frozenset()
    calls: int = 0
    outcomes: tuple[Outcome, ...] = ()

    def with_words(self) -> Matrix:
        """A copy of the row, with the words of the outputs of the last step."""
        row = self.row.copy()
        for outcome in self.outcomes:
            words = outcome.words + np.int32(OUTPUT)
            self.block.words.write(row, words, _ones(len(words)))
        return row

    def add(self, slot: int, outcome: Outcome, *, is_parallel: bool) -> _StateRow:
        """The state after one more call of the tool in this slot, -1 if it is not known."""
        block, row = self.block, self.row.copy()
        step, before, outcomes = self.step, self.before, (*self.outcomes, outcome)
        last_at, second_at = block.at[LAST], block.at[SECOND]
        if not is_parallel:
            for other in before:
                row[second_at[other]] = 0
            for other in step:
                row[last_at[other]], row[second_at[other]] = 0, 1
            row[block.status_at] = 0
            step, before, outcomes = (), step, (outcome,)
        if slot >= 0:
            row[last_at[slot]] = 1
            row[block.at[COUNT][slot]] += 1
            span = block.tools[slot]
            if slot in step:
                span.merge(row, block.start_row, outcome.values)
            else:
                span.replace(row, block.start_row, outcome.values)
            step = (*step, slot)
        row[block.status_at[outcome.status]] = 1
        distinct = self.distinct if slot in self.distinct else self.distinct | {slot}
        calls = self.calls + 1
        at = block.sizes_at
        left = max(outcome.left, float(row[at[2]])) if is_parallel else outcome.left
        row[at[0]], row[at[2]], row[at[3]] = calls, left, len(distinct)
        is_known = self.is_known or outcome is not NO_OUTCOME
        return _StateRow(block, row, is_known, step, before, distinct, calls, outcomes)

    def call(self, event: CallEvent, rows: StateRows) -> _StateRow:
        slot = self.block.slots[event.tool]
        return self.add(slot, event.outcome, is_parallel=event.is_parallel)

    def write(self, rows: StateRows) -> None:
        block = self.block
        if not self.is_known or block.forest is None:
            return
        row = self.with_words()
        row[block.pair_span] = differences(row, block.pairs, MISSING)
        row[block.rule_span] = due = block.rules.read(row)
        row[-1] = 0
        best = due.take(block.best_rules)
        rows.due_first[block.due_tools] = block.rules.first(best[None])[0]
        shares = block.forest.predict(row)
        share, smoothed = rows.state_probability, rows.state
        share.fill(0)
        share[block.seen] = shares
        np.multiply(share, 1 - _SMOOTHING, out=smoothed)
        smoothed += _SMOOTHING / len(smoothed)
        np.log(smoothed, out=smoothed)


def _ones(count: int) -> Matrix:
    return np.ones(count, np.float32)
