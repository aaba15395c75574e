"""A log-linear ranker of whole plans: a softmax over the plans of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack

from dtdr.predict.plans.features import BY_TOOL, SIGNS, PlanSet

Floats = npt.NDArray[np.float64]

_PENALTY = 3.0
"""Of squared weights of features, in standard deviations."""
_TOOL_PENALTY = 30.0
"""Of squared weights of single tools. With 10, inner folds of tau_retail have fewer plans right."""
_ITERATIONS = 60
_BOUNDS = {-1: (None, 0), 0: (None, None), 1: (0, None)}


@dataclass(frozen=True, eq=False)
class PlanRanker:
    """Weights of the features of a ``PlanSet``.

    Attributes:
        dense: shape (len(SIGNS),).
        by_tool: shape (tools, BY_TOOL).
        greedy_first: whether the plan of the best tool of each step always comes first.
    """

    dense: Floats
    by_tool: Floats
    greedy_first: bool = False

    @classmethod
    def fit(cls, queries: Sequence[PlanSet], targets: Sequence[Floats], tools: int) -> Self:
        """Learn from the plans found for queries.

        Args:
            queries: the plans of each query.
            targets: for each query, the weights of the plans to choose; shape (n,).
            tools: number of tools.
        """
        from scipy.optimize import minimize

        if not queries:  # the probabilities of the search alone
            return cls(np.eye(len(SIGNS))[0], np.zeros((tools, BY_TOOL)))
        sizes = [len(one.plans) for one in queries]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        owner = np.repeat(np.arange(len(queries)), sizes)
        dense = np.concatenate([one.dense for one in queries])
        scale = np.maximum(dense.std(axis=0), 1e-6)
        rows = csr_array(hstack([csr_array(dense / scale), _by_tool(queries, tools)], format="csr"))
        columns = csr_array(rows.T)
        wanted = np.concatenate(targets)
        weight = np.add.reduceat(wanted, starts)[owner]
        size = len(SIGNS)
        penalty = np.repeat([_PENALTY, _TOOL_PENALTY], [size, tools * BY_TOOL])

        def loss(weights: Floats) -> tuple[float, Floats]:
            scores = rows @ weights
            highest = np.maximum.reduceat(scores, starts)[owner]
            shares = np.exp(scores - highest)
            sums = np.add.reduceat(shares, starts)[owner]
            value = float(wanted @ (np.log(sums) + highest - scores))
            gradient = columns @ (weight * shares / sums - wanted)
            return value + 0.5 * float(penalty @ weights**2), gradient + penalty * weights

        options = {"maxiter": _ITERATIONS}
        limits = [_BOUNDS[sign] for sign in (*SIGNS, *[0] * (tools * BY_TOOL))]
        weights = minimize(loss, 0 * penalty, jac=True, bounds=limits, options=options).x
        return cls(weights[:size] / scale, weights[size:].reshape(tools, BY_TOOL))

    def probabilities(self, query: PlanSet) -> Floats:
        """The probability of each plan; shape (n,), summing to 1."""
        scores = query.dense @ self.dense
        scores += np.einsum("nmk,mk->n", query.by_tool, self.by_tool[query.tools])
        if self.greedy_first:
            scores[query.greedy] = scores.max() + 1e-6
        shares: Floats = np.exp(scores - scores.max())
        shares /= shares.sum()
        return shares

    def best(self, query: PlanSet) -> int:
        """The position of the most probable plan."""
        return int(self.probabilities(query).argmax())

    def of_tools(self, places: Sequence[int]) -> PlanRanker:
        """The ranker of other tools, by their positions among its own, -1 for unknown ones."""
        rows = np.vstack([self.by_tool, np.zeros((1, BY_TOOL))])
        return replace(self, by_tool=rows[list(places)])


def _by_tool(queries: Sequence[PlanSet], tools: int) -> csr_array:
    """The features of single tools; shape (plans, tools * BY_TOOL)."""
    rows, columns, values = [], [], []
    start = 0
    for one in queries:
        row, column, kind = np.nonzero(one.by_tool)
        rows.append(row + start)
        columns.append(one.tools[column] * BY_TOOL + kind)
        values.append(one.by_tool[row, column, kind])
        start += len(one.plans)
    places = (np.concatenate(rows), np.concatenate(columns))
    return csr_array((np.concatenate(values), places), shape=(start, tools * BY_TOOL))
