"""Demonstrations as arrays: what a fit learns from, and all that a model keeps to learn again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.rankers.dtdr_f.encoding import QUERY_COLUMNS, RUN_COLUMNS, encode_run, encode_texts
from dtdr.rankers.dtdr_f.observations import NO_CONTEXT, REMOVED, Context
from dtdr.rankers.dtdr_f.outcomes import NO_OUTCOME, Outcome
from dtdr.rankers.dtdr_f.ragged import Ragged
from dtdr.rankers.dtdr_f.values import Values
from dtdr.rankers.folds import divide
from dtdr.rankers.nn import Indices
from dtdr.text.encoders.base import Encoder
from dtdr.text.sparse import csr_array

MOST_TOOLS = 1_024
"""Tools with weights. During a fit, each pair of them takes some 100 bytes: sixty plans of random
names, 490 kB as JSON, took 3.6 GB, and take 0.5 GB."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A teacher-forced step: position of its plan, calls before it, acceptable next tools."""

    plan: int
    history: tuple[int, ...]
    acceptable: tuple[int, ...]


class EncodedDemonstrations:
    """Queries, plans and runs by columns. Never changed once made.

    Args:
        columns: the values of each demonstration by name. Of a query, what ``QueryText`` has. Of a
            plan, the tool of each call (``REMOVED`` is none), whether it is ``parallel`` to the one
            before it, pairs of a later call and an earlier one that it depends on, by place, the
            hash of the ``group`` (0 is none), and one bit per tool, 1 for those that the run was
            not offered (empty if none). Of a run, the parts of its ``Context`` and ``Outcome``s.
            To show it: its ``id`` as UTF-8, and the ``order`` in which each call was made.
        tools: size of the vocabulary; its last index is the end of plan.
    """

    def __init__(self, columns: Mapping[str, Ragged], tools: int) -> None:
        self.columns, self.tools = columns, tools
        self.calls, self.starts = columns["calls"].values, columns["calls"].starts
        self.lengths = columns["calls"].sizes
        self.groups = columns["group"].values

    @classmethod
    def of(
        cls,
        demonstrations: Sequence[Demonstration],
        index: Mapping[str, int],
        encoder: Encoder | None = None,
    ) -> Self:
        """Read demonstrations; ``index`` has the positions of the tools in the vocabulary."""
        read = [encode_run(item, index) for item in demonstrations]
        columns = {
            name: Ragged.of([row[name] for row in read], dtype)
            for name, dtype in RUN_COLUMNS.items()
        }
        texts = encode_texts([item.query for item in demonstrations], encoder)
        return cls({**texts, **columns}, len(index))

    def __len__(self) -> int:
        return len(self.lengths)

    def subset(self, rows: Indices) -> EncodedDemonstrations:
        """The demonstrations at these positions."""
        columns = {name: column.subset(rows) for name, column in self.columns.items()}
        return EncodedDemonstrations(columns, self.tools)

    def concatenate(self, other: EncodedDemonstrations) -> EncodedDemonstrations:
        """These demonstrations, then others of the same tools."""
        columns = {
            name: column.concatenate(other.columns[name]) for name, column in self.columns.items()
        }
        return EncodedDemonstrations(columns, self.tools)

    def renumber(self, position: Sequence[int], tools: int) -> EncodedDemonstrations:
        """The same in another vocabulary; ``position[old]`` is the new index or ``REMOVED``."""
        lookup = np.array([*position, REMOVED], np.int32)
        calls, before = self.columns["calls"], self.columns["before"]
        earlier = before.values.copy()  # of each call its tool, then its status
        earlier[::2] = lookup[earlier[::2]]
        columns = {
            **self.columns,
            "calls": Ragged(lookup[calls.values], calls.sizes),
            "before": Ragged(earlier, before.sizes),
        }
        if self.absent is not None:
            kept = np.flatnonzero(lookup[:-1] != REMOVED)
            absent = np.zeros((len(self), tools), np.bool_)
            absent[:, lookup[kept]] = self.absent[:, kept]
            columns["absent"] = Ragged.of([*np.packbits(absent, axis=1)], np.uint8)
        return EncodedDemonstrations(columns, tools)

    def limit_tools(self) -> EncodedDemonstrations:
        """The same with calls of the ``MOST_TOOLS`` tools called most; others count as removed."""
        if np.count_nonzero(self.frequency) <= MOST_TOOLS:
            return self
        position = np.full(self.tools, REMOVED)
        often = np.argsort(-self.frequency, kind="stable")[:MOST_TOOLS]
        position[often], position[-1] = often, self.tools - 1
        return self.renumber(position.tolist(), self.tools)

    # -- plans ---------------------------------------------------------------------------------

    def plan(self, row: int) -> list[int]:
        """The calls of one plan."""
        calls: list[int] = self.columns["calls"][row].tolist()
        return calls

    def id(self, row: int) -> str:
        """The id of one demonstration."""
        return self.columns["id"][row].tobytes().decode("utf-8", "replace")

    def calls_as_made(self, row: int) -> list[int]:
        """The calls of one plan in the order of the log."""
        order = np.argsort(self.columns["order"][row])
        calls: list[int] = self.columns["calls"][row][order].tolist()
        return calls

    @cached_property
    def frequency(self) -> npt.NDArray[np.float64]:
        """Number of calls of each tool; shape (tools,)."""
        known = self.calls[self.calls != REMOVED]
        return np.bincount(known, minlength=self.tools).astype(np.float64)

    @cached_property
    def called(self) -> csr_array:
        """Shape (plans, tools): how often each plan calls each tool."""
        known = self.calls != REMOVED
        owner = self.columns["calls"].owner[known]
        places = (owner, self.calls[known])
        return csr_array((np.ones(len(owner)), places), shape=(len(self), self.tools))

    @cached_property
    def seen(self) -> npt.NDArray[np.intp]:
        """The tools that plans call, sorted, and the end of plan."""
        return np.append(self.frequency.nonzero()[0], self.tools - 1)

    @cached_property
    def new_tool_share(self) -> float:
        """How likely a call of a further plan is to a tool that no plan calls.

        Good's estimate (Biometrika 1953): the share of calls to tools that one plan calls once.
        """
        callers = np.bincount(self.called.indices, minlength=self.tools)
        return float((callers == 1).sum() / max(callers.sum(), 1))

    def steps(self) -> Iterator[PlanStep]:
        """Every step of every plan, as ``Plan.steps`` gives them.

        A step at which only tools that were removed are acceptable is left out.
        """
        pairs = self.columns["edges"]
        for plan in range(len(self)):
            calls = tuple(self.plan(plan))
            # A call is ready as soon as the last call it needs is done.
            waits = [0] * len(calls)
            for later, earlier in pairs[plan].reshape(-1, 2).tolist():
                waits[later] = max(waits[later], earlier + 1)
            for done in range(len(calls) + 1):
                ready = {
                    tool
                    for tool, wait in zip(calls[done:], waits[done:], strict=True)
                    if wait <= done and tool != REMOVED
                }
                if ready or done == len(calls):
                    acceptable = tuple(sorted(ready)) or (self.tools - 1,)
                    yield PlanStep(plan, calls[:done], acceptable)

    # -- runs ----------------------------------------------------------------------------------

    @cached_property
    def has_names_only(self) -> bool:
        """Whether nothing is known but queries and names of calls."""
        known = ("before", "said_weights", "status")
        return not any(self.columns[name].values.any() for name in known)

    @cached_property
    def contexts(self) -> list[Context]:
        """The contexts of the queries."""
        columns, contexts = self.columns, []
        for row in range(len(self)):
            words = columns["said"][row]
            calls = tuple(map(tuple, columns["before"][row].reshape(-1, 2).tolist()))
            weights = columns["said_weights"][row].astype(np.float32)
            is_known = calls or len(words)
            values = _split_values(
                *(
                    columns[name][row]
                    for name in ("earlier_keys", "earlier_values", "earlier_counts")
                )
            )
            context = Context(calls, words, weights, values) if is_known else NO_CONTEXT
            contexts.append(context)
        return contexts

    @cached_property
    def query_values(self) -> list[Values]:
        """The numbers and dates in each query."""
        keys, values = self.columns["asked_keys"], self.columns["asked_values"]
        return [Values(keys[row], values[row]) for row in range(len(self))]

    @cached_property
    def outcomes(self) -> list[list[Outcome]]:
        """The outcomes of the calls of each plan."""
        columns = self.columns
        words, facts = (
            Ragged(columns[name].values, columns[counts].values.astype(np.int64))
            for name, counts in (("output_words", "word_counts"), ("facts", "fact_counts"))
        )
        known = zip(columns["status"].values.tolist(), columns["left"].values.tolist(), strict=True)
        values = _split_values(
            *(columns[name].values for name in ("value_keys", "values", "value_counts"))
        )
        outcomes = [
            Outcome(status, words[at], facts[at], left, values[at]) if status else NO_OUTCOME
            for at, (status, left) in enumerate(known)
        ]
        return [outcomes[start:end] for start, end in pairwise(self.starts.tolist())]

    @cached_property
    def texts(self) -> Ragged:
        """Hashed stems of what the agent wrote before each call."""
        counts = self.columns["text_counts"].values.astype(np.int64)
        return Ragged(self.columns["text_words"].values, counts)

    @cached_property
    def absent(self) -> npt.NDArray[np.bool_] | None:
        """Shape (plans, tools): the tools that each run was not offered; None if no run tells."""
        column = self.columns["absent"]
        if not len(column.values):
            return None
        is_told, absent = column.sizes > 0, np.zeros((len(self), self.tools), np.bool_)
        bits = column.values.reshape(np.count_nonzero(is_told), -1)
        absent[is_told] = np.unpackbits(bits, axis=1, count=self.tools)
        return absent

    # -- folds ---------------------------------------------------------------------------------

    def assign_folds(self, folds: int, seed: int) -> Indices:
        """The fold of each demonstration; -1 for those that are never held out.

        Every other group with several demonstrations is kept in one fold, and those of the rest
        are divided at random: the ranker learns what the blocks say of groups that they know and
        of groups that they do not.
        """
        rng = np.random.default_rng(seed)
        single_names = np.arange(len(self)) << 32
        distinct, counts = np.unique(self.groups, return_counts=True)
        together = rng.permutation(distinct[(counts > 1) & (distinct > 0)])[::2]
        names = np.where(np.isin(self.groups, together), self.groups, single_names + (1 << 32))
        units, unit = np.unique(names, return_inverse=True)
        return divide(len(units), len(self), folds, rng)[unit]

    def held_apart(self, fold: Indices) -> npt.NDArray[np.bool_]:
        """Whether the whole group of each demonstration is in one fold; shape (n,).

        Without a group (0), a demonstration is always apart from the others.
        """
        _, group = np.unique(self.groups, return_inverse=True)
        groups = group.max(initial=0) + 1
        first_fold, last_fold = np.full(groups, fold.max()), np.full(groups, -1)
        np.minimum.at(first_fold, group, fold)
        np.maximum.at(last_fold, group, fold)
        is_in_one_fold = first_fold[group] == last_fold[group]
        apart: npt.NDArray[np.bool_] = is_in_one_fold | (self.groups == 0)
        return apart

    @property
    def halves(self) -> npt.NDArray[np.intp]:
        """Shape (n,): 0 or 1; demonstrations of one group are in one half."""
        distinct, group = np.unique(self.groups, return_inverse=True)
        is_grouped = (self.groups > 0) & (len(distinct) > 2)
        return np.where(is_grouped, group, np.arange(len(self))) % 2

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        parts = [column.arrays(name) for name, column in self.columns.items()]
        return {name: array for part in parts for name, array in part.items()}

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], tools: int) -> Self:
        """Rebuild from the output of ``arrays``.

        Raises:
            KeyError: an array is missing.
            ModelError: rows do not fit their values.
        """
        return cls(
            {name: Ragged.restore(arrays, name) for name in QUERY_COLUMNS | RUN_COLUMNS}, tools
        )


def _split_values(
    keys: npt.NDArray[Any], values: npt.NDArray[Any], counts: npt.NDArray[Any]
) -> tuple[Values, ...]:
    """The values of each call."""
    if not len(counts):
        return ()
    ends = np.cumsum(counts, dtype=np.int64)[:-1]
    return tuple(map(Values, np.split(keys, ends), np.split(values, ends)))
