"""Where queries lie in an encoder's space: likelihood under clusters, and Mahalanobis distance.

Both are what the paper's Limitations name for noticing queries unlike the demonstrations. Both see
a plane, in which the training queries spread most, and how much of a query lies outside of it: with
more dimensions than queries, it is the outside that tells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dtdr.errors import ModelError
from dtdr.rankers.array_checks import require_shape
from dtdr.rankers.calibration import Floats
from dtdr.rankers.kmeans import Clusters, Matrix, principal_directions
from dtdr.rankers.vectors import Row, product, rows, unit
from dtdr.text.encoders.base import Encoder, Vectors

_LEAST_SPREAD = 1e-3
"""Squared length; of one demonstration or of equal ones, which spread not at all."""
_LEAST_VARIANCE = 1e-9
"""Of one dimension; ``fit`` gives more than a thousand times as much."""
_RIDGE = 0.1
"""Part of the mean variance that is added to each: .992 mean AUROC on five validation sets with
MiniLM, as with Ledoit and Wolf's shrinkage."""
_FOLDS = 5
_JUDGED = 3_000
"""Queries that the threshold is learned from, so that it costs no more than seconds."""

FALSE_ALARMS = 0.02
"""Share of the queries like the demonstrations' that are taken for unlike. A false alarm only shows
more tools than are needed. With it dtdr-f notices 98 % of other sets' queries and of gibberish on
five validation sets, with half of it 95 %."""


class Density(ABC):
    """A score of vectors, higher where the training queries are.

    Args:
        directions: shape (dimension, columns): the plane; None where it is the whole space.
        outside: variance of one dimension outside of the plane, times their number: the squared
            length that queries like the training ones have there.
        dimension: of the encoder's vectors. Scores are divided by it, so that models of more and
            of fewer queries, which know more and fewer terms, are comparable.
    """

    _outside_weight: ClassVar[float]
    """What squares outside of the plane count."""

    def __init__(self, directions: Matrix | None, outside: float, dimension: int) -> None:
        self.directions, self.outside, self.dimension = directions, outside, dimension

    def split(self, row: Row) -> tuple[npt.NDArray[Any], float]:
        """Place of a vector in the plane, and its squared length outside, from 0 to 1.

        A text without any known term lies outside as a whole.
        """
        if self.directions is None:
            return row, 0.0
        place = product(row, self.directions)
        return place, max(0.0, 1.0 - float(place @ place))

    def score(self, row: Row) -> float:
        """Of one vector."""
        place, rest = self.split(row)
        total, hidden = self._score_inside(place), self.dimension - len(place)
        if hidden:
            total -= self._outside_weight * hidden * rest / self.outside
        return total / self.dimension

    @abstractmethod
    def _score_inside(self, place: npt.NDArray[Any]) -> float:
        """What a place in the plane says, before it is divided by the dimension."""


class ClusterLikelihood(Density):
    """Log likelihood of a vector under equal normal distributions at the clusters, a dimension.

    Up to a constant. Each distribution has one variance inside of the plane of the clusters and
    one outside. AUROC on five validation sets, lowest and mean: lexical .904 and .985, MiniLM .940
    and .991.

    Args:
        clusters: their centres.
        log_shares: shape (clusters,): logarithm of each cluster's share of the training queries.
        inside: variance of one dimension inside.
        outside: see ``Density``.
        dimension: see ``Density``.
    """

    _outside_weight = 0.5

    def __init__(
        self, clusters: Clusters, log_shares: Floats, inside: float, outside: float, dimension: int
    ) -> None:
        super().__init__(clusters.projection, outside, dimension)
        self.clusters, self.log_shares, self.inside = clusters, log_shares, inside

    @classmethod
    def fit(cls, vectors: Vectors, clusters: Clusters, labels: npt.NDArray[np.int64]) -> Self:
        """Learn the shares and the variances.

        Args:
            vectors: shape (n, dimension): what was clustered.
            clusters: what ``Clusters.fit`` gave.
            labels: shape (n,): the cluster of each vector.
        """
        shares = np.bincount(labels, minlength=len(clusters.centres)) / len(labels)
        places, outside = vectors, 0.0
        if clusters.projection is not None:
            places = np.asarray(vectors @ clusters.projection)
            outside = _mean_outside(places)
            places = unit(places)
        inside = float(((places - clusters.centres[labels]) ** 2).sum(axis=1).mean())
        inside = max(inside, _LEAST_SPREAD) / clusters.centres.shape[1]
        return cls(clusters, np.log(shares), inside, outside, vectors.shape[1])

    def _score_inside(self, place: npt.NDArray[Any]) -> float:
        if self.directions is not None:
            place = unit(place)
        squares = self.clusters.squared_distances(place) + place @ place
        terms = self.log_shares - squares / (2 * self.inside)
        best = terms.max()
        return float(best + np.log(np.exp(terms - best).sum()))

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save beside those of the clusters."""
        return {
            "density.log_shares": self.log_shares,
            "density.variances": np.array([self.inside, self.outside]),
        }

    @classmethod
    def restore(
        cls, state: Mapping[str, npt.NDArray[Any]], clusters: Clusters, *, dimension: int
    ) -> Self:
        """What ``state`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the shapes do not fit the clusters, or a variance is none.
        """
        shares = require_shape(state, "density.log_shares", (len(clusters.centres),))
        inside, outside = require_shape(state, "density.variances", (2,)).tolist()
        least = 0 if clusters.projection is None else np.nextafter(0, 1)
        if not inside > _LEAST_VARIANCE or not outside >= least:
            raise ModelError("the variances of the clusters are damaged; fit the model again")
        return cls(clusters, shares, inside, outside, dimension)


class Mahalanobis(Density):
    """Minus the squared Mahalanobis distance from the training queries, a dimension.

    Inside of the plane with the whole, regularised covariance; outside with one variance for all
    directions, as in probabilistic PCA (Tipping and Bishop 1999). AUROC on five validation sets,
    lowest and mean: lexical .903 and .985, MiniLM .965 and .992.

    Args:
        directions: see ``Density``.
        mean: shape (columns,): of the training queries.
        whitening: shape (columns, columns): what makes their covariance the identity.
        outside: see ``Density``.
    """

    _outside_weight = 1.0
    directions: Matrix

    def __init__(self, directions: Matrix, mean: Matrix, whitening: Matrix, outside: float) -> None:
        super().__init__(directions, outside, len(directions))
        self.mean, self.whitening = mean, whitening

    @classmethod
    def fit(cls, vectors: Vectors, *, seed: int = 0) -> Self:
        """Learn from vectors of shape (n, dimension)."""
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
            _mean_outside(places),
        )

    def _score_inside(self, place: npt.NDArray[Any]) -> float:
        white = (place - self.mean) @ self.whitening
        return -float(white @ white)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "density.directions": self.directions,
            "density.mean": self.mean,
            "density.whitening": self.whitening,
            "density.outside": np.array([self.outside]),
        }

    @classmethod
    def restore(cls, state: Mapping[str, npt.NDArray[Any]], *, dimension: int) -> Self:
        """What ``state`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the shapes do not fit together or the encoder.
        """
        columns = state["density.mean"].size
        outside = float(require_shape(state, "density.outside", (1,))[0])
        if not outside > 0:
            raise ModelError("the variance of the queries is damaged; fit the model again")
        return cls(
            require_shape(state, "density.directions", (dimension, columns)),
            require_shape(state, "density.mean", (columns,)),
            require_shape(state, "density.whitening", (columns, columns)),
            outside,
        )


def fit_threshold(
    density: Density,
    queries: Sequence[str],
    vectors: Vectors,
    fit: Callable[[Vectors], Density],
    refit: Callable[[Sequence[int]], Encoder] | None,
    *,
    seed: int,
) -> float | None:
    """Set what lies outside by queries that a model has not seen, and give the threshold of scores.

    The training queries themselves lie closer to the plane that was fitted to them: .40 outside
    for 270 queries of T-Eval, .62 for those that the plane was fitted without.

    Args:
        density: fitted to all vectors; its ``outside`` is set.
        queries: the training queries; of equal ones, one is judged.
        vectors: theirs, shape (n, dimension).
        fit: a density from some of the vectors.
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
    judged: list[tuple[Density, list[Row]]] = []
    for fold in range(min(_FOLDS, len(order))):
        held = np.arange(len(order)) % _FOLDS == fold
        known, new = order[~held].tolist(), order[held].tolist()
        if refit is None:
            judged.append((fit(vectors[known]), rows(vectors[new])))
            continue
        encoder = refit(known)
        partial = fit(encoder.encode([queries[position] for position in known]))
        judged.append((partial, rows(encoder.encode([queries[position] for position in new]))))
    outside = [partial.split(row)[1] for partial, held_out in judged for row in held_out]
    density.outside = max(float(np.mean(outside)), _LEAST_SPREAD)
    scores: list[float] = []
    for partial, held_out in judged:
        partial.outside = density.outside
        scores += [partial.score(row) for row in held_out]
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


def _mean_outside(places: npt.NDArray[Any]) -> float:
    return max(1.0 - float((places * places).sum(axis=1).mean()), _LEAST_SPREAD)


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
