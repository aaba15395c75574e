"""A log-linear ranker of whole plans: a softmax over the candidates of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack

from dtdr.errors import ModelError
from dtdr.predict.plans.features import SIGNS, PlanFeatures

Floats = npt.NDArray[np.float64]

_PENALTY = 3.0
"""Of squared weights of features, in standard deviations."""
_TOOL_PENALTY = 10.0
"""Of squared weights of single tools. With 3, inner folds of T-Eval have fewer right, with 30 those
of TinyAgent."""
_ITERATIONS = 60
LEVELS = 3
"""A third call of a tool and each further one have the same weights."""
_SPAN = 1 / 3
_BOUNDS = {-1: (None, 0), 0: (None, None), 1: (0, None)}


@dataclass(frozen=True, eq=False)
class PlanRanker:
    """Weights of what ``PlanFeatures`` say of a plan.

    A weight has the sign of its feature or is 0, so that what the ranker learned from seldom is
    never held against the right plan.

    Attributes:
        dense: shape (len(SIGNS),).
        tools: shape (tools, LEVELS + 1): of a first, second and third call of each, and of what
            spans say of it.
        greedy_first: whether the plan of the best tool of each step comes first whatever its
            weight.
    """

    dense: Floats
    tools: Floats
    greedy_first: bool = False

    @classmethod
    def fit(cls, queries: Sequence[PlanFeatures], targets: Sequence[Floats], tools: int) -> Self:
        """Learn from the candidates of queries.

        Args:
            queries: features of the candidates of each.
            targets: of each, the weights of the candidates to choose; shape (n,).
            tools: how many there are.
        """
        from scipy.optimize import minimize

        if not queries:  # by the beam alone
            order = [-float(name == "log_rank") for name in SIGNS]
            return cls(np.array(order), np.zeros((tools, LEVELS + 1)))
        sizes = [len(one) for one in queries]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        owner = np.repeat(np.arange(len(queries)), sizes)
        dense = np.concatenate([one.dense for one in queries])
        scale = np.maximum(dense.std(axis=0), 1e-6)
        rows = csr_array(hstack([csr_array(dense / scale), _by_tool(queries, tools)], format="csr"))
        columns = csr_array(rows.T)
        wanted = np.concatenate(targets)
        weight = np.add.reduceat(wanted, starts)[owner]
        single = tools * (LEVELS + 1)
        penalty = np.repeat([_PENALTY, _TOOL_PENALTY], [len(SIGNS), single])

        def loss(weights: Floats) -> tuple[float, Floats]:
            scores = rows @ weights
            highest = np.maximum.reduceat(scores, starts)[owner]
            shares = np.exp(scores - highest)
            sums = np.add.reduceat(shares, starts)[owner]
            value = float(wanted @ (np.log(sums) + highest - scores))
            gradient = columns @ (weight * shares / sums - wanted)
            return value + 0.5 * float(penalty @ weights**2), gradient + penalty * weights

        solution = minimize(
            loss,
            np.zeros(len(penalty)),
            jac=True,
            method="L-BFGS-B",
            bounds=[_BOUNDS[sign] for sign in SIGNS.values()] + [_BOUNDS[0]] * single,
            options={"maxiter": _ITERATIONS},
        )
        weights = solution.x
        by_tool = weights[len(SIGNS) :].reshape(tools, LEVELS + 1)
        return cls(weights[: len(SIGNS)] / scale, by_tool)

    def probabilities(self, query: PlanFeatures) -> Floats:
        """Of each candidate; shape (n,), summing to 1."""
        known = query.tools < len(self.tools)
        weights, counts = self.tools[query.tools[known]], query.counts[:, known]
        scores = query.dense @ self.dense + _SPAN * (query.spans[:, known] @ weights[:, LEVELS])
        for level in range(LEVELS):
            scores += (counts > level) @ weights[:, level]
        if self.greedy_first:
            scores[query.greedy] = scores.max() + 1e-6
        shares: Floats = np.exp(scores - scores.max())
        shares /= shares.sum()
        return shares

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "dense": self.dense,
            "tools": self.tools.astype(np.float32),
            "greedy_first": np.array([self.greedy_first]),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        dense, tools = arrays["dense"].astype(np.float64), arrays["tools"].astype(np.float64)
        if dense.shape != (len(SIGNS),) or tools.ndim != 2 or tools.shape[1] != LEVELS + 1:
            raise ModelError("the ranker of plans does not fit together; fit the model again")
        return cls(dense, tools, bool(arrays["greedy_first"][0]))


def _by_tool(queries: Sequence[PlanFeatures], tools: int) -> csr_array:
    """What weights of single tools see; shape (candidates, tools * (LEVELS + 1))."""
    rows, columns, values = [], [], []
    start = 0
    for one in queries:
        for level in range(LEVELS + 1):
            said = _SPAN * one.spans if level == LEVELS else (one.counts > level).astype(float)
            row, column = np.nonzero(said)
            rows.append(row + start)
            columns.append(one.tools[column] * (LEVELS + 1) + level)
            values.append(said[row, column])
        start += len(one)
    places = (np.concatenate(rows), np.concatenate(columns))
    return csr_array((np.concatenate(values), places), shape=(start, tools * (LEVELS + 1)))
