"""A log-linear ranker of whole plans: a softmax over the plans found for a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack

from dtdr.errors import ModelError
from dtdr.predict.plans.features import BY_TOOL, SIGNS, PlanFeatures

Floats = npt.NDArray[np.float64]

_PENALTY = 3.0
"""Of squared weights of features, in standard deviations."""
_TOOL_PENALTY = 10.0
"""Of squared weights of single tools. With 3, inner folds of UltraTool have fewer plans right."""
_ITERATIONS = 60
_BOUNDS = {-1: (None, 0), 0: (None, None), 1: (0, None)}


@dataclass(frozen=True, eq=False)
class PlanRanker:
    """Weights of what ``PlanFeatures`` say of a plan.

    A weight has the sign of its feature or is 0, so that what the ranker learned from seldom is
    never held against the right plan.

    Attributes:
        dense: shape (len(SIGNS),).
        by_tool: shape (tools, BY_TOOL).
        greedy_first: whether the plan of the best tool of each step comes first whatever its
            weight.
    """

    dense: Floats
    by_tool: Floats
    greedy_first: bool = False

    @classmethod
    def fit(cls, queries: Sequence[PlanFeatures], targets: Sequence[Floats], tools: int) -> Self:
        """Learn from the plans found for queries.

        Args:
            queries: features of the plans of each.
            targets: of each, the weights of the plans to choose; shape (n,).
            tools: how many there are.
        """
        from scipy.optimize import minimize

        if not queries:  # by the search alone
            order = [float(name == "log_probability") for name in SIGNS]
            return cls(np.array(order), np.zeros((tools, BY_TOOL)))
        sizes = [len(one) for one in queries]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        owner = np.repeat(np.arange(len(queries)), sizes)
        dense = np.concatenate([one.dense for one in queries])
        scale = np.maximum(dense.std(axis=0), 1e-6)
        rows = csr_array(hstack([csr_array(dense / scale), _by_tool(queries, tools)], format="csr"))
        columns = csr_array(rows.T)
        wanted = np.concatenate(targets)
        weight = np.add.reduceat(wanted, starts)[owner]
        single = tools * BY_TOOL
        penalty = np.repeat([_PENALTY, _TOOL_PENALTY], [len(SIGNS), single])

        def loss(weights: Floats) -> tuple[float, Floats]:
            scores = rows @ weights
            highest = np.maximum.reduceat(scores, starts)[owner]
            shares = np.exp(scores - highest)
            sums = np.add.reduceat(shares, starts)[owner]
            value = float(wanted @ (np.log(sums) + highest - scores))
            gradient = columns @ (weight * shares / sums - wanted)
            return value + 0.5 * float(penalty @ weights**2), gradient + penalty * weights

        weights = minimize(
            loss,
            np.zeros(len(penalty)),
            jac=True,
            method="L-BFGS-B",
            bounds=[_BOUNDS[sign] for sign in SIGNS.values()] + [_BOUNDS[0]] * single,
            options={"maxiter": _ITERATIONS},
        ).x
        return cls(weights[: len(SIGNS)] / scale, weights[len(SIGNS) :].reshape(tools, BY_TOOL))

    def probabilities(self, query: PlanFeatures) -> Floats:
        """Of each plan; shape (n,), summing to 1."""
        scores = query.dense @ self.dense
        scores += np.einsum("nmk,mk->n", query.by_tool, self.by_tool[query.tools])
        if self.greedy_first:
            scores[query.greedy] = scores.max() + 1e-6
        shares: Floats = np.exp(scores - scores.max())
        shares /= shares.sum()
        return shares

    def of_tools(self, known: Sequence[str], names: Sequence[str]) -> PlanRanker:
        """The ranker of other tools: those that it does not know have no weights.

        Args:
            known: names of its tools.
            names: of the others.
        """
        place = {name: number for number, name in enumerate(known)}
        rows = np.vstack([self.by_tool, np.zeros((1, BY_TOOL))])
        by_tool = rows[[place.get(name, -1) for name in names]]
        return PlanRanker(self.dense, by_tool, self.greedy_first)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "dense": self.dense,
            "by_tool": self.by_tool.astype(np.float32),
            "greedy_first": np.array([self.greedy_first]),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], tools: int) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        dense, by_tool = arrays["dense"].astype(np.float64), arrays["by_tool"].astype(np.float64)
        if dense.shape != (len(SIGNS),) or by_tool.shape != (tools, BY_TOOL):
            raise ModelError("the ranker of plans does not fit together; fit the model again")
        return cls(dense, by_tool, bool(arrays["greedy_first"][0]))


def _by_tool(queries: Sequence[PlanFeatures], tools: int) -> csr_array:
    """What weights of single tools see; shape (plans, tools * BY_TOOL)."""
    rows, columns, values = [], [], []
    start = 0
    for one in queries:
        row, column, kind = np.nonzero(one.by_tool)
        rows.append(row + start)
        columns.append(one.tools[column] * BY_TOOL + kind)
        values.append(one.by_tool[row, column, kind])
        start += len(one)
    places = (np.concatenate(rows), np.concatenate(columns))
    return csr_array((np.concatenate(values), places), shape=(start, tools * BY_TOOL))
