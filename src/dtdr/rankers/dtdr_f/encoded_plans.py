"""The plans of demonstrations as flat arrays of tool indices: all that is kept of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.errors import ModelError

REMOVED = -1
"""Index of a call of a tool that was removed from the vocabulary."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A teacher-forced step: position of its plan, calls before it, acceptable next tools."""

    plan: int
    history: tuple[int, ...]
    acceptable: tuple[int, ...]


def is_parallel(call: ToolCall | None, before: ToolCall | None) -> bool:
    """Whether a call is of the same message of the agent as the call before it."""
    return call is not None and before is not None and None is not call.step == before.step


def canonical_order(calls: Sequence[ToolCall], index: Mapping[str, int]) -> list[int]:
    """Positions of calls, parallel ones by their tools: their order must not change a ranking."""
    step = 0
    keys = []
    for at, call in enumerate(calls):
        step += not is_parallel(call, calls[at - 1] if at else None)
        keys.append((step, index.get(call.tool, REMOVED), at))
    return [at for _, _, at in sorted(keys)]


class EncodedPlans:
    """Calls and dependencies of plans. Never changed once made.

    Args:
        calls: shape (calls,): the tool of each call, plan after plan; ``REMOVED`` is none.
        lengths: shape (plans,): calls of each plan.
        edges: shape (edges, 2): a call and a call that it depends on, as positions in ``calls``.
        weights: shape (plans,): how much each plan counts; 1 for a success that has not aged.
        parallel: shape (calls,): whether each call is of the same step as the one before it.
        tools: size of the vocabulary; its last index is the end of plan.
    """

    def __init__(
        self,
        calls: npt.NDArray[np.int32],
        lengths: npt.NDArray[np.int32],
        edges: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float64],
        parallel: npt.NDArray[np.bool_],
        tools: int,
    ) -> None:
        self.calls, self.lengths, self.edges, self.weights = calls, lengths, edges, weights
        self.parallel, self.tools = parallel, tools

    @classmethod
    def of(
        cls,
        demonstrations: Sequence[Demonstration],
        index: Mapping[str, int],
        weights: Sequence[float] | None = None,
    ) -> Self:
        """The plans of demonstrations."""
        calls: list[int] = []
        parallel: list[bool] = []
        edges: list[tuple[int, int]] = []
        for item in demonstrations:
            first, made = len(calls), item.plan.calls
            order = canonical_order(made, index)
            place = {at: first + number for number, at in enumerate(order)}
            calls += [index[made[at].tool] for at in order]
            ordered = [None, *(made[at] for at in order)]
            parallel += [is_parallel(call, before) for before, call in pairwise(ordered)]
            edges += [
                (place[later], place[source])
                for later, sources in enumerate(item.plan.prerequisites)
                for source in sorted(sources)
            ]
        return cls(
            np.array(calls, np.int32),
            np.array([len(item.plan.tools) for item in demonstrations], np.int32),
            np.array(sorted(edges), np.int32).reshape(-1, 2),
            np.ones(len(demonstrations)) if weights is None else np.array(weights, np.float64),
            np.array(parallel, np.bool_),
            len(index),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Shape (plans + 1,): where the calls of each plan begin."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    def plan(self, position: int) -> list[int]:
        """The calls of one plan."""
        calls: list[int] = self.calls[self.starts[position] : self.starts[position + 1]].tolist()
        return calls

    def edges_of_plans(self) -> list[list[tuple[int, int]]]:
        """``(earlier, later)`` positions within each plan of every dependency."""
        edges: list[list[tuple[int, int]]] = [[] for _ in range(len(self))]
        owners = np.searchsorted(self.starts, self.edges[:, 0], side="right") - 1
        within = self.edges - self.starts[owners, None]
        for owner, (later, earlier) in zip(owners.tolist(), within.tolist(), strict=True):
            edges[owner].append((earlier, later))
        return edges

    @cached_property
    def call_weights(self) -> npt.NDArray[np.float64]:
        """The weight of the plan of each call."""
        return np.repeat(self.weights, self.lengths)

    @cached_property
    def frequency(self) -> npt.NDArray[np.float64]:
        """Weighted number of calls of each tool; shape (tools,)."""
        known = self.calls != REMOVED
        counts: npt.NDArray[np.float64] = np.bincount(
            self.calls[known], self.call_weights[known], self.tools
        ).astype(np.float64)  # whole numbers where there is no call
        return counts

    @cached_property
    def called(self) -> csr_array:
        """Shape (plans, tools): how often each plan calls each tool."""
        known = self.calls != REMOVED
        owner = np.repeat(np.arange(len(self)), self.lengths)[known]
        places = (owner, self.calls[known])
        return csr_array((np.ones(len(owner)), places), shape=(len(self), self.tools))

    @cached_property
    def seen(self) -> npt.NDArray[np.intp]:
        """The tools that plans call, sorted, and the end of plan."""
        tools = np.append(self.calls[self.calls != REMOVED], self.tools - 1)
        return np.unique(tools).astype(np.intp)

    @cached_property
    def new_tool_share(self) -> float:
        """How likely a call of a further plan is to a tool that no plan calls.

        Good's estimate (Biometrika 1953): the share of calls to tools that one plan calls once.
        """
        callers = np.bincount(self.called.indices, minlength=self.tools)
        return float((callers == 1).sum() / max(callers.sum(), 1))

    def count_pairs(self, first: npt.NDArray[np.int32], second: npt.NDArray[np.int32]) -> csr_array:
        """Weights of pairs of one call each by their tools; shape (tools, tools).

        Args:
            first: shape (calls,): the tool of one call, its row; removed ones are left out.
            second: shape (calls,): that of the other, its column.
        """
        known = (first != REMOVED) & (second != REMOVED)
        places = (first[known], second[known])
        shape = (self.tools, self.tools)
        return csr_array((self.call_weights[known], places), shape=shape)

    def following(self) -> npt.NDArray[np.int32]:
        """Shape (calls,): the tool of the call after each, the end of plan after the last."""
        after = np.append(self.calls[1:], np.int32(0))[: len(self.calls)]
        after[self.starts[1:][self.lengths > 0] - 1] = self.tools - 1
        return after

    def subset(self, positions: npt.NDArray[np.intp]) -> EncodedPlans:
        """The plans at some positions, each named once."""
        lengths = self.lengths[positions]
        ends = np.cumsum(lengths, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        flat = np.arange(total) + np.repeat(self.starts[positions] - (ends - lengths), lengths)
        place = np.full(len(self.calls), -1, np.int32)
        place[flat] = np.arange(total, dtype=np.int32)
        edges = place[self.edges]
        return EncodedPlans(
            self.calls[flat],
            lengths,
            edges[edges[:, 0] >= 0],
            self.weights[positions],
            self.parallel[flat],
            self.tools,
        )

    def concatenate(self, other: EncodedPlans, decay: float = 1.0) -> EncodedPlans:
        """These plans, each counting ``decay`` times as much as before, and the others."""
        return EncodedPlans(
            np.concatenate([self.calls, other.calls]),
            np.concatenate([self.lengths, other.lengths]),
            np.concatenate([self.edges, other.edges + np.int32(len(self.calls))]),
            np.concatenate([self.weights * decay, other.weights]),
            np.concatenate([self.parallel, other.parallel]),
            self.tools,
        )

    def renumber(self, position: Sequence[int], tools: int) -> EncodedPlans:
        """The plans in another vocabulary; ``position[old]`` is the new index or ``REMOVED``."""
        lookup = np.array([*position, REMOVED], np.int32)
        calls = lookup[self.calls]
        return EncodedPlans(calls, self.lengths, self.edges, self.weights, self.parallel, tools)

    def steps(self) -> Iterator[PlanStep]:
        """Every step of every plan, as ``Plan.steps`` gives them.

        A step at which only tools that were removed are acceptable is left out.
        """
        # A call is ready as soon as the last call it needs is done.
        after = np.zeros(len(self.calls), np.int64)
        np.maximum.at(after, self.edges[:, 0], self.edges[:, 1] + 1)
        after = np.maximum(after - np.repeat(self.starts[:-1], self.lengths), 0)
        flat, ready_after = self.calls.tolist(), after.tolist()
        for plan, (start, end) in enumerate(pairwise(self.starts.tolist())):
            calls, waits = tuple(flat[start:end]), ready_after[start:end]
            for done in range(len(calls) + 1):
                ready = {
                    tool
                    for tool, wait in zip(calls[done:], waits[done:], strict=True)
                    if wait <= done and tool != REMOVED
                }
                if ready or done == len(calls):
                    acceptable = tuple(sorted(ready)) or (self.tools - 1,)
                    yield PlanStep(plan, calls[:done], acceptable)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What the constructor takes, but for the number of tools."""
        return {
            "calls": self.calls,
            "lengths": self.lengths,
            "edges": self.edges,
            "weights": self.weights,
            "parallel": self.parallel.astype(np.uint8),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], tools: int) -> Self:
        """Rebuild from the output of ``arrays``.

        Raises:
            ModelError: the arrays do not fit together or the vocabulary.
        """
        calls, lengths, edges, weights, parallel = (
            arrays[name] for name in ("calls", "lengths", "edges", "weights", "parallel")
        )
        if (
            not lengths.sum() == len(calls) == len(parallel)
            or len(weights) != len(lengths)
            or not (weights > 0).all()
            or (len(calls) and not REMOVED <= calls.min() <= calls.max() < tools)
            or (len(edges) and not 0 <= edges.min() <= edges.max() < len(calls))
        ):
            raise ModelError("the plans of the model do not fit its tools; fit it again")
        return cls(calls, lengths, edges, weights, parallel.astype(np.bool_), tools)
