"""How unlike the demonstrations' queries a query is, by its place in an encoder's space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.errors import ModelError
from dtdr.rankers.array_checks import require_shape
from dtdr.rankers.calibration import Floats
from dtdr.rankers.kmeans import Matrix, principal_directions
from dtdr.rankers.vectors import Row, product, rows
from dtdr.text.encoders.base import Encoder, Vectors

_LEAST_SPREAD = 1e-3
"""Squared length; equal queries do not spread at all."""
_RIDGE = 0.1
"""Part of the mean variance that is added to each."""
_FOLDS = 5
_JUDGED = 3_000
"""Queries that the threshold is learned from, so that it costs no more than seconds."""

DISTANCE = {f"density.{name}" for name in ("directions", "mean", "whitening", "floor")}
"""Names of the arrays of a distance and its threshold."""

FALSE_ALARMS = 0.02
"""Share of the queries like the demonstrations' that are taken for unlike. A false alarm only shows
more tools than are needed. With it dtdr-f notices 98 % of other sets' queries and of gibberish on
five validation sets, with half of it 95 %."""

Scorer = Callable[[Row], float]
"""Gives a vector's score, higher where the training queries are."""


class Mahalanobis:
    """Minus the squared Mahalanobis distance from the training queries (paper, Limitations).

    Sparse vectors have more dimensions than there are queries. So the covariance is that of the
    plane in which the queries spread most, with one variance for every direction outside of it, as
    in probabilistic PCA (Tipping and Bishop 1999). All that lies outside shares one squared length
    of 1: to estimate it changed no AUROC. The score is the distance per dimension.

    Args:
        directions: shape (dimension, columns): the plane.
        mean: shape (columns,): of the training queries.
        whitening: shape (columns, columns): what makes their covariance the identity.
    """

    def __init__(self, directions: Matrix, mean: Matrix, whitening: Matrix) -> None:
        self.directions, self.mean, self.whitening = directions, mean, whitening

    @classmethod
    def fit(cls, vectors: Vectors, *, seed: int = 0) -> Self:
        """Learn from vectors of length 1, shape (n, dimension)."""
        directions = principal_directions(vectors, seed)
        places = np.asarray(vectors @ directions, np.float64)
        columns = directions.shape[1]
        covariance = np.atleast_2d(np.cov(places.T, bias=True))
        ridge = max(_RIDGE * np.trace(covariance), _LEAST_SPREAD) / columns
        values, axes = np.linalg.eigh(covariance + ridge * np.eye(columns))
        return cls(
            directions,
            places.mean(axis=0).astype(np.float32),
            np.asarray(axes / np.sqrt(values), np.float32),
        )

    def score(self, row: Row) -> float:
        """Of one vector; one without any known term lies outside of the plane as a whole."""
        place = product(row, self.directions)
        white = (place - self.mean) @ self.whitening
        dimension, columns = self.directions.shape
        away: float = max(0.0, 1.0 - float(place @ place)) * (dimension - columns)
        return -(float(white @ white) + away) / float(dimension)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "density.directions": self.directions,
            "density.mean": self.mean,
            "density.whitening": self.whitening,
        }

    @classmethod
    def restore(cls, state: Mapping[str, npt.NDArray[Any]], *, dimension: int) -> Self:
        """What ``state`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the shapes do not fit together or the encoder.
        """
        columns = state["density.mean"].size
        return cls(
            require_shape(state, "density.directions", (dimension, columns)),
            require_shape(state, "density.mean", (columns,)),
            require_shape(state, "density.whitening", (columns, columns)),
        )


def fit_threshold(
    queries: Sequence[str],
    vectors: Vectors,
    fit: Callable[[Vectors], Scorer],
    refit: Callable[[Sequence[int]], Encoder] | None,
    *,
    seed: int,
) -> float | None:
    """The score below which a query is unlike the training queries.

    Each fold's queries are judged by what was fitted without them.

    Args:
        queries: the training queries; of equal ones, one is judged.
        vectors: theirs, shape (n, dimension).
        fit: learns scores from some of the vectors.
        refit: an encoder that knows the queries at those positions only; None where the encoder
            does not learn.
        seed: of the folds.

    Returns:
        The threshold, or None for fewer than two different queries.
    """
    distinct = list({text: position for position, text in enumerate(queries)}.values())
    order = np.random.default_rng(seed).permutation(distinct)[:_JUDGED]
    if len(order) < 2:
        return None
    scores: list[float] = []
    for fold in range(min(_FOLDS, len(order))):
        held = np.arange(len(order)) % _FOLDS == fold
        known, new = order[~held].tolist(), order[held].tolist()
        inside, judged = vectors[known], vectors[new]
        if refit is not None:
            encoder = refit(known)
            inside = encoder.encode([queries[position] for position in known])
            judged = encoder.encode([queries[position] for position in new])
        score = fit(inside)
        scores += [score(row) for row in rows(judged)]
    return threshold_of(np.array(scores))


def save_threshold(threshold: float | None) -> dict[str, npt.NDArray[Any]]:
    """The threshold as an array of shape (1,), NaN where there is none."""
    return {"density.floor": np.array([np.nan if threshold is None else threshold])}


def load_threshold(state: Mapping[str, npt.NDArray[Any]]) -> float | None:
    """The threshold that ``save_threshold`` gave.

    Raises:
        ModelError: it is not one.
    """
    threshold = float(require_shape(state, "density.floor", (1,))[0])
    if np.isinf(threshold):
        raise ModelError("the out-of-distribution threshold is not a number; fit the model again")
    return None if np.isnan(threshold) else threshold


def threshold_of(
    scores: npt.NDArray[np.floating], *, false_alarms: float = FALSE_ALARMS
) -> float | None:
    """The score below which a query is unlike the demonstrations.

    With enough scores it is the conformal bound, which a further query of the same kind falls
    below at most ``false_alarms`` of the time, whatever the distribution. With fewer than
    ``1 / false_alarms - 1`` no score is low enough for that, and it is the lower prediction bound
    of a normal distribution with that mean and deviation.

    Args:
        scores: shape (n,): of the demonstrations' own queries, each by a model without it.
        false_alarms: share of such queries that may fall below.

    Returns:
        The threshold; None for fewer than two scores, which say nothing.
    """
    count = len(scores)
    if count < 2:
        return None
    values: Floats = np.sort(np.asarray(scores, np.float64))
    rank = int((count + 1) * false_alarms + 1e-9)
    if rank:
        return float(values[rank - 1])
    from scipy.special import stdtrit

    reach = stdtrit(count - 1, false_alarms) * np.sqrt(1 + 1 / count)
    return float(values.mean() + reach * values.std(ddof=1))
