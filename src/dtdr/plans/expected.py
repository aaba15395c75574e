"""Which tools a plan calls and how often, from the words of its query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.errors import ModelError

Floats = npt.NDArray[np.float64]

_RIDGE = 0.3
_MOST_PLANS = 3_000
"""Plans that are regressed on, of more: time is cubic in them."""
MOST_COUNT = 4
"""More calls of one tool count as so many."""
_LEAST_PROBABILITY = 0.005
_LEAST_VARIANCE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedCalls:
    """What the words of one query let expect of each tool.

    Attributes:
        log_odds: shape (tools,): that the plan has a call of it; 0 where nothing is known.
        counts: shape (tools,): how often it is called.
        precision: shape (tools,): half of one over the variance of the counts; 0 where nothing is
            known.
    """

    log_odds: Floats
    counts: Floats
    precision: Floats

    def padded(self, tools: int) -> ExpectedCalls:
        """The same with further tools, of which nothing is known."""
        more = (0, tools - len(self.log_odds))
        return ExpectedCalls(*(np.pad(one, more) for one in self._arrays()))

    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        return self.log_odds, self.counts, self.precision

    def mismatch(self, tool: int, count: int) -> float:
        """How far so many calls are from what is expected, squared, in variances."""
        return float(self.precision[tool] * (min(count, MOST_COUNT) - self.counts[tool]) ** 2)


class CallRegression:
    """Ridge regression of presence and number of calls on the words of queries, in the dual.

    Args:
        coefficients: shape (plans, 2, tools), of each remembered plan for presence and number.
        mean: shape (2, tools).
        variance: shape (tools,): of the numbers of plans that were left out.
    """

    def __init__(
        self,
        coefficients: npt.NDArray[np.float32],
        mean: Floats,
        variance: Floats,
    ) -> None:
        self._coefficients, self._mean, self._variance = coefficients, mean, variance

    @classmethod
    def fit(
        cls, rows: csr_array, plans: Sequence[Sequence[int]], tools: int, *, seed: int = 0
    ) -> tuple[Self, Floats]:
        """Learn from remembered plans.

        Args:
            rows: shape (plans, words), each of length 1.
            plans: the tools of each.
            tools: how many there are.
            seed: which plans are taken of many.

        Returns:
            The regression, and what it would predict of each plan had it not seen it, in closed
            form; shape (plans, 2, tools).
        """
        count = len(plans)
        chosen = np.arange(count)
        if count > _MOST_PLANS:
            rng = np.random.default_rng(seed)
            chosen = np.sort(rng.choice(count, _MOST_PLANS, replace=False))
        targets = _targets(plans, tools)
        mean = targets.mean(axis=0)
        some = csr_array(rows[chosen])
        kernel = (some @ some.T).toarray().astype(np.float64)
        inverse = np.linalg.inv(kernel + _RIDGE * np.eye(len(chosen)))
        dual = np.tensordot(inverse, targets[chosen] - mean, axes=1)
        coefficients = np.zeros((count, 2, tools), np.float32)
        coefficients[chosen] = dual
        held_out = mean + np.tensordot((rows @ some.T).toarray().astype(float), dual, axes=1)
        held_out[chosen] = targets[chosen] - dual / np.diag(inverse)[:, None, None]
        variance = ((targets[:, 1] - held_out[:, 1]) ** 2).mean(axis=0) + _LEAST_VARIANCE
        return cls(coefficients, mean, variance), held_out

    def with_plans(
        self, rows: csr_array, plans: Sequence[Sequence[int]], tools: int
    ) -> CallRegression:
        """After further plans, each learned as if it were the only one (Kaczmarz's projection).

        Args:
            rows: of all plans that are remembered now, the further ones last.
            plans: the tools of the further ones.
            tools: how many there are now.
        """
        plans = plans[-rows.shape[0] :]
        more = tools - self._mean.shape[1]
        mean = np.pad(self._mean, ((0, 0), (0, more)))
        variance = np.pad(self._variance, (0, more), constant_values=1.0)
        grown = np.pad(self._coefficients, ((0, len(plans)), (0, 0), (0, more)))
        coefficients = grown[len(grown) - rows.shape[0] :]
        for number, target in zip(
            range(rows.shape[0] - len(plans), rows.shape[0]), _targets(plans, tools), strict=True
        ):
            cosines = (rows @ csr_array(rows[[number]]).T).toarray()[:, 0]
            error = target - mean - np.tensordot(cosines, coefficients, axes=1)
            coefficients[number] = error / (1 + _RIDGE)
        return CallRegression(coefficients, mean, variance)

    def predict(self, cosines: npt.NDArray[np.float32]) -> Floats:
        """Presence and number of calls of each tool; shape (2, tools).

        Args:
            cosines: shape (plans,): of a query with those of the remembered plans.
        """
        near = np.flatnonzero(cosines)
        predicted: Floats = self._mean + np.tensordot(
            cosines[near], self._coefficients[near], axes=1
        )
        return predicted

    def expect(self, predicted: Floats) -> ExpectedCalls:
        """What a prediction lets expect; shape (2, tools)."""
        presence = np.clip(predicted[0], _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
        return ExpectedCalls(np.log(presence / (1 - presence)), predicted[1], 0.5 / self._variance)

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "coefficients": self._coefficients.astype(np.float16),
            "mean": self._mean.astype(np.float32),
            "variance": self._variance.astype(np.float32),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], plans: int, tools: int) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        coefficients, mean, variance = (
            arrays[name] for name in ("coefficients", "mean", "variance")
        )
        fits = (
            coefficients.shape == (plans, 2, tools)
            and mean.shape == (2, tools)
            and variance.shape == (tools,)
            and (variance > 0).all()
        )
        if not fits:
            raise ModelError("what plans call by words does not fit together; fit the model again")
        return cls(
            coefficients.astype(np.float32), mean.astype(np.float64), variance.astype(np.float64)
        )


def _targets(plans: Sequence[Sequence[int]], tools: int) -> Floats:
    """Presence and number of calls of each tool in each plan; shape (plans, 2, tools)."""
    targets = np.zeros((len(plans), 2, tools))
    for row, plan in zip(targets, plans, strict=True):
        for tool, count in Counter(plan).items():
            row[:, tool] = 1, min(count, MOST_COUNT)
    return targets
