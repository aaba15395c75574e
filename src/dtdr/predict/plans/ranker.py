"""A log-linear ranker of whole plans: a softmax over the candidates of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.errors import ModelError
from dtdr.predict.plans.features import DENSE, LEVELS, SURFACE, PlanFeatures

Floats = npt.NDArray[np.float64]

_DENSE_PENALTY, _TOOL_PENALTY, _PAIR_PENALTY = 3.0, 3.0, 10.0
"""Of squared weights. Ten times less or more for pairs and surface changed the share of right first
plans by less than .01 on inner folds of TinyAgent and T-Eval. With .5 for the first, .558 of
T-Eval's are among five, with this .576."""
_ITERATIONS = 40
_PAIR = 0.5
_SPAN = 1 / 3
_TERMS = LEVELS * (1 + len(SURFACE))


@dataclass(frozen=True, eq=False)
class PlanRanker:
    """Weights of what ``PlanFeatures`` say of a plan.

    Attributes:
        mean, scale, dense: shape (len(DENSE),).
        tools: shape (tools, LEVELS, 1 + len(SURFACE)): of a first, second and third call of each,
            alone and by what is counted in the query.
        spans: shape (tools,): of what spans say.
        pairs: codes of pairs of tools that stand in one plan, rising, and their weights.
    """

    mean: Floats
    scale: Floats
    dense: Floats
    tools: Floats
    spans: Floats
    pairs: tuple[npt.NDArray[np.int64], Floats]

    @classmethod
    def fit(cls, queries: Sequence[PlanFeatures], targets: Sequence[Floats], tools: int) -> Self:
        """Learn from the candidates of queries.

        Args:
            queries: what is known of the candidates of each.
            targets: of each, the weights of the candidates to choose; shape (n,).
            tools: how many there are.
        """
        from scipy.optimize import minimize

        if not queries:
            return cls._by_beam(tools)
        design = _Design(queries, tools)
        wanted = np.concatenate(targets)
        weight = np.add.reduceat(wanted, design.starts)[design.owner]

        def loss(weights: Floats) -> tuple[float, Floats]:
            scores = design.scores(weights)
            highest = np.maximum.reduceat(scores, design.starts)[design.owner]
            shares = np.exp(scores - highest)
            sums = np.add.reduceat(shares, design.starts)
            value = float(wanted @ (np.log(sums)[design.owner] + highest - scores))
            error = weight * shares / sums[design.owner] - wanted
            penalty = design.penalty * weights
            return value + 0.5 * float(weights @ penalty), design.gradient(error) + penalty

        solution = minimize(
            loss,
            np.zeros(len(design.penalty)),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _ITERATIONS},
        )
        return cls(design.mean, design.scale, *design.split(solution.x))

    @classmethod
    def _by_beam(cls, tools: int) -> Self:
        """By the probability of the beam alone."""
        dense = np.zeros(len(DENSE))
        dense[DENSE.index("log_probability")] = 1
        return cls(
            np.zeros(len(DENSE)),
            np.ones(len(DENSE)),
            dense,
            np.zeros((tools, LEVELS, 1 + len(SURFACE))),
            np.zeros(tools),
            (np.empty(0, np.int64), np.empty(0)),
        )

    def probabilities(self, query: PlanFeatures) -> Floats:
        """Of each candidate; shape (n,), summing to 1."""
        scores = (query.dense - self.mean) / self.scale @ self.dense
        known = query.tools < len(self.tools)
        tools, counts = query.tools[known], query.counts[:, known]
        by_level = self.tools[tools] @ np.append(1.0, query.surface)
        gained = np.concatenate([np.zeros((1, len(tools))), np.cumsum(by_level, axis=1).T])
        scores += np.take_along_axis(gained, np.minimum(counts, LEVELS), axis=0).sum(axis=1)
        scores += query.spans[:, known] @ self.spans[tools] * _SPAN
        codes, weights = self.pairs
        if len(codes):
            code = tools[:, None] * len(self.tools) + tools
            place = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
            together = np.triu(np.where(codes[place] == code, weights[place], 0), 1)
            present = (counts > 0).astype(float)
            scores += _PAIR * ((present @ together) * present).sum(axis=1)
        shares: Floats = np.exp(scores - scores.max())
        shares /= shares.sum()
        return shares

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "mean": self.mean,
            "scale": self.scale,
            "dense": self.dense,
            "tools": self.tools.astype(np.float32),
            "spans": self.spans.astype(np.float32),
            "pairs": self.pairs[0],
            "pair_weights": self.pairs[1].astype(np.float32),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        tools, codes = arrays["tools"], arrays["pairs"]
        fits = (
            tools.shape == (len(arrays["spans"]), LEVELS, 1 + len(SURFACE))
            and codes.shape == arrays["pair_weights"].shape
            and (np.diff(codes) > 0).all()
            and all(arrays[name].shape == (len(DENSE),) for name in ("mean", "scale", "dense"))
            and (arrays["scale"] > 0).all()
        )
        if not fits:
            raise ModelError("the ranker of plans does not fit together; fit the model again")
        mean, scale, dense = (
            arrays[name].astype(np.float64) for name in ("mean", "scale", "dense")
        )
        return cls(
            mean,
            scale,
            dense,
            tools.astype(np.float64),
            arrays["spans"].astype(np.float64),
            (codes.astype(np.int64), arrays["pair_weights"].astype(np.float64)),
        )


class _Design:
    """The features of all candidates of many queries, and where their weights stand in a vector.

    Weights by what is counted in the query are a matrix for each tool and level: the candidates
    have few tools and the queries few counts, so their products are never written out.
    """

    def __init__(self, queries: Sequence[PlanFeatures], tools: int) -> None:
        sizes = np.array([len(one) for one in queries])
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.owner = np.repeat(np.arange(len(queries)), sizes)
        dense = np.concatenate([one.dense for one in queries])
        self.mean, self.scale = dense.mean(axis=0), np.maximum(dense.std(axis=0), 1e-6)
        self._dense = (dense - self.mean) / self.scale
        self._tools, n = tools, len(dense)
        rows, levels, pair_rows, codes = [], [], [], []
        span_rows, span_columns, span_values = [], [], []
        for one, start in zip(queries, self.starts.tolist(), strict=True):
            for level in range(LEVELS):
                row, column = np.nonzero(one.counts > level)
                rows.append(row + start)
                levels.append(one.tools[column] * LEVELS + level)
            row, column = np.nonzero(one.counts)
            span_rows.append(row + start)
            span_columns.append(one.tools[column])
            span_values.append(one.spans[row, column] * _SPAN)
            first, second = np.triu_indices(len(one.tools), 1)
            row, pair = np.nonzero((one.counts[:, first] > 0) & (one.counts[:, second] > 0))
            pair_rows.append(row + start)
            codes.append(one.tools[first[pair]] * tools + one.tools[second[pair]])
        self._row, self._level = np.concatenate(rows), np.concatenate(levels)
        self._place = self.owner[self._row] * tools * LEVELS + self._level
        self._counted = np.stack([np.append(1.0, one.surface) for one in queries])
        self._spans = csr_array(
            (
                np.concatenate(span_values),
                (np.concatenate(span_rows), np.concatenate(span_columns)),
            ),
            shape=(n, tools),
        )
        self.codes, inverse = np.unique(np.concatenate(codes), return_inverse=True)
        paired = np.concatenate(pair_rows)
        self._pairs = csr_array(
            (np.full(len(paired), _PAIR), (paired, inverse)), shape=(n, len(self.codes))
        )
        self._spans_by_tool, self._pairs_by_code = (
            csr_array(self._spans.T),
            csr_array(self._pairs.T),
        )
        counted = np.full(1 + len(SURFACE), _PAIR_PENALTY)
        counted[0] = _TOOL_PENALTY
        self.penalty = np.concatenate(
            [
                np.full(len(DENSE), _DENSE_PENALTY),
                np.tile(counted, tools * LEVELS),
                np.full(tools, _TOOL_PENALTY),
                np.full(len(self.codes), _PAIR_PENALTY),
            ]
        )

    def _cut(self, weights: Floats) -> list[Floats]:
        sizes = (len(DENSE), self._tools * _TERMS, self._tools)
        return list(np.split(weights, np.cumsum(sizes)))

    def scores(self, weights: Floats) -> Floats:
        dense, tools, spans, pairs = self._cut(weights)
        by_query = self._counted @ tools.reshape(-1, self._counted.shape[1]).T
        scores: Floats = self._dense @ dense + self._spans @ spans + self._pairs @ pairs
        scores += np.bincount(self._row, by_query.ravel()[self._place], len(scores))
        return scores

    def gradient(self, error: Floats) -> Floats:
        size = len(self._counted) * self._tools * LEVELS
        by_query = np.bincount(self._place, error[self._row], size).reshape(len(self._counted), -1)
        return np.concatenate(
            [
                self._dense.T @ error,
                (by_query.T @ self._counted).ravel(),
                self._spans_by_tool @ error,
                self._pairs_by_code @ error,
            ]
        )

    def split(
        self, weights: Floats
    ) -> tuple[Floats, Floats, Floats, tuple[npt.NDArray[np.int64], Floats]]:
        dense, tools, spans, pairs = self._cut(weights)
        by_tool = tools.reshape(self._tools, LEVELS, -1)
        return dense, by_tool, spans, (self.codes.astype(np.int64), pairs)
