"""Markov chains over tool calls: ``dr`` (the paper's), and ``markov-1`` and ``markov-2``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import ModelError
from dtdr.rankers.base import Arrays, History
from dtdr.rankers.calibration import Floats
from dtdr.rankers.name_ranker import NameRanker

Integers = npt.NDArray[np.integer]

MAX_COUNTED = 50_000_000
"""Limit of calls times orders. Counting this many takes 3 GB, and a model folder, which is much
smaller than its chains, may come from a stranger."""


class MarkovChains:
    """One chain of the orders 0 to N for each group of plans (paper, Algorithm 3).

    A chain is a trie over histories read backwards, padded with ``start``: its root counts what
    was called at all, the child for the last call what followed that call, the grandchild what
    followed the last two. All tries share four flat arrays, so that a lookup costs one binary
    search a call.

    Args:
        calls: shape (calls,), all plans one after the other: tool indices, and after each plan the
            last index, the end of plan.
        order: N, the longest history looked at, at least 0.
        tools: size of the vocabulary.
        labels: shape (plans,): the chain that each plan belongs to, from 0; None for a single
            chain. Every number up to the largest must have a plan.

    Attributes:
        groups: number of chains; the root of chain g is node g.
        keys: shape (nodes - groups,), sorted: ``parent * (tools + 1) + call`` of each other node,
            where the call ``tools`` means ``start``.
        offsets: shape (nodes + 1,): node i owns ``next_tools[offsets[i]:offsets[i + 1]]``.
        next_tools: tools that followed, sorted within a node.
        counts: how often each of them did.
        totals: shape (nodes,): the sum of the counts of each node.

    Raises:
        ModelError: calls or labels are not such numbers, or there are more than ``MAX_COUNTED``.
    """

    def __init__(
        self, calls: Integers, order: int, tools: int, labels: Integers | None = None
    ) -> None:
        self.order, self.tools = order, tools
        if len(calls) * (order + 1) > MAX_COUNTED:
            raise ModelError(
                f"{len(calls):,} calls are too many for chains of order {order}; fit fewer "
                "demonstrations (--sample) or a lower order"
            )
        is_end = calls == tools - 1
        plan = np.cumsum(is_end) - is_end
        self.labels = np.zeros(int(is_end.sum()), np.int32) if labels is None else labels
        self.groups = len(np.unique(self.labels))
        if (
            not (len(calls) and calls.min() >= 0 and calls.max() == calls[-1] == tools - 1)
            or len(self.labels) != is_end.sum()
            or not 0 == self.labels.min() <= self.labels.max() < self.groups
        ):
            raise ModelError("the plans of the model are damaged, or of other tools; fit it again")
        self.calls = calls = calls.astype(np.int32, copy=False)
        position = np.arange(len(calls)) - np.searchsorted(plan, plan)
        node = self.labels.astype(np.int64)[plan]
        nodes, keys, pairs = self.groups, [np.empty(0, np.int64)], [node * tools + calls]
        for lag in range(1, order + 1):
            before = np.where(position >= lag, np.roll(calls, lag), tools)
            level, child = np.unique(node * (tools + 1) + before, return_inverse=True)
            node = nodes + child
            nodes += len(level)
            keys.append(level)
            pairs.append(node * tools + calls)
        entries, counts = np.unique(np.concatenate(pairs), return_counts=True)
        self.keys = np.concatenate(keys)
        self.offsets = np.searchsorted(entries, np.arange(nodes + 1) * tools)
        self.next_tools, self.counts = entries % tools, counts.astype(np.float64)
        self.totals = np.add.reduceat(self.counts, self.offsets[:-1])

    def path(self, group: int, history: Sequence[int]) -> list[int]:
        """Nodes of ever longer suffixes of a history, as far as they were seen; root first."""
        node = group
        nodes = [node]
        length = len(history)
        for lag in range(1, self.order + 1):
            call = history[length - lag] if lag <= length else self.tools
            if call < 0:
                break
            key = node * (self.tools + 1) + call
            position = int(self.keys.searchsorted(key))
            if position == len(self.keys) or self.keys[position] != key:
                break
            node = self.groups + position
            nodes.append(node)
        return nodes

    def histories(self, group: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Every history of the N last calls that a chain has seen, with its node.

        Histories are oldest first; the index ``tools`` means ``start``.
        """
        level: list[tuple[tuple[int, ...], int]] = [((), group)]
        for _ in range(self.order):
            level = [
                ((int(key) - node * (self.tools + 1), *history), self.groups + position)
                for history, node in level
                for position, key in self._children(node)
            ]
        yield from level

    def _children(self, node: int) -> Iterator[tuple[int, int]]:
        """Position and key of each child of a node."""
        first, end = self.keys.searchsorted(
            [node * (self.tools + 1), (node + 1) * (self.tools + 1)]
        )
        yield from zip(range(first, end), self.keys[first:end].tolist(), strict=True)

    def lookup(self, group: int, history: Sequence[int]) -> Floats:
        """Counts of the tools that followed exactly the last N calls (paper, Algorithm 4).

        Args:
            group: the chain.
            history: indices of the calls, oldest first; a negative one was never seen.

        Returns:
            Shape (tools,).
        """
        row = np.zeros(self.tools)
        nodes = self.path(group, history)
        if len(nodes) == self.order + 1:
            part = slice(self.offsets[nodes[-1]], self.offsets[nodes[-1] + 1])
            row[self.next_tools[part]] = self.counts[part]
            row /= row.sum()
        return row

    def mix(self, node: int, below: Floats, strength: float) -> Floats:
        """Frequencies after a node, smoothed with ``strength`` pseudo-counts from ``below``.

        This is interpolation with a Dirichlet prior (MacKay and Peto, 1995): a node with few
        counts stays near ``below``, one with many leaves it.

        Args:
            node: from ``path``.
            below: shape (tools,), summing to 1: the estimate from shorter histories.
            strength: greater than 0.
        """
        part = slice(self.offsets[node], self.offsets[node + 1])
        total = float(self.totals[node]) + strength
        row: Floats = below * (strength / total)
        row[self.next_tools[part]] += self.counts[part] / total
        return row

    def smooth(self, node: int, below: Floats) -> Floats:
        """``mix`` as Witten and Bell (1991) do.

        A node counts as many further calls as it has different followers.
        """
        followers = self.offsets[node + 1] - self.offsets[node]
        return self.mix(node, below, float(max(followers, 1)))


def flatten(plans: Iterable[Sequence[int]], tools: int) -> Integers:
    """The calls of all plans as ``MarkovChains`` takes them; each plan without its end."""
    return np.fromiter((tool for plan in plans for tool in (*plan, tools - 1)), np.int32)


class ChainRanker(NameRanker):
    """Base of the rankers that are one Markov chain over all demonstrations.

    They do not look at the query.
    """

    SHAPES: ClassVar = {"chain_.calls": ("calls",)}

    order: ClassVar[int]
    chain_: MarkovChains

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        self._set_chain(flatten(self.plans(demonstrations), len(self.tools_)))

    def _set_chain(self, calls: Integers) -> None:
        self.chain_ = MarkovChains(calls, self.order, len(self.tools_))

    def _prepare(self, queries: Sequence[str]) -> Sequence[None]:
        return [None] * len(queries)

    def _restore(self, arrays: Arrays) -> None:
        self._set_chain(arrays["chain_.calls"])


class DependencyRetriever(ChainRanker):
    """First-order Markov chain over all demonstrations (Liu et al., 2024; paper, Section 5).

    The paper's Algorithms 3 and 4 with N = 1 and one cluster. After a tool that was never seen all
    tools are equal.

    Args:
        threshold: the paper's α, used by ``Ranking.select()``.
        seed: not used; every ranker has one.
    """

    name = "dr"
    order = 1

    def __init__(self, *, threshold: float | None = None, seed: int = 0) -> None:
        self.threshold = threshold
        self.seed = seed

    def _row(self, prepared: None, history: History) -> Floats:
        return self.chain_.lookup(0, history)


class SmoothedMarkov(ChainRanker):
    """A Markov chain in the order of the log, smoothed by those of lower order (Witten-Bell, 1991).

    It is a floor for every ranker that looks at the query.

    Args:
        seed: not used; every ranker has one.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def _row(self, prepared: None, history: History) -> Floats:
        chain = self.chain_
        row = np.full(len(self.tools_), 1 / len(self.tools_))
        for node in chain.path(0, history):
            row = chain.smooth(node, row)
        return row


class FirstOrderMarkov(SmoothedMarkov):
    """By the last call."""

    name = "markov-1"
    order = 1


class SecondOrderMarkov(SmoothedMarkov):
    """By the last two calls."""

    name = "markov-2"
    order = 2
