"""Where queries lie in an encoder's space: likelihood under clusters, and Mahalanobis distance.

Both are what the paper's Limitations name for noticing queries unlike the demonstrations. Both see
a plane of at most ``REDUCED`` directions, in which the training queries spread most, and how much
of a query lies outside of it: with more dimensions than queries, it is the outside that tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.encoders.base import Vectors
from dtdr.errors import ModelError
from dtdr.ranking import Floats
from dtdr.retrievers.clusters import Clusters, Matrix, principal_directions
from dtdr.retrievers.familiarity import floor_of
from dtdr.retrievers.state import require_shape
from dtdr.retrievers.vectors import Row, product, unit

_LEAST_SPREAD = 1e-3
"""Squared length; of one demonstration or of equal ones, which spread not at all."""
_RIDGE = 0.1
"""Part of the mean variance that is added to each: .992 mean AUROC on five validation sets with
MiniLM, as with Ledoit and Wolf's shrinkage."""
_FOLDS = 3
_JUDGED = 3_000
"""Queries that the floor is learned from, so that it costs no more than seconds."""


class ClusterLikelihood:
    """Log likelihood, up to a constant, of a vector under equal normal distributions at clusters.

    Each distribution has one variance inside of the plane of the clusters and one outside. AUROC
    on five validation sets, lowest and mean: lexical .904 and .985, MiniLM .940 and .991.

    Attributes:
        clusters: their centres.
        log_shares: shape (clusters,): logarithm of each cluster's share of the training queries.
        variances: shape (2,): of one dimension, inside and outside of the plane; 0 outside where
            the plane is the whole space.
    """

    def __init__(self, clusters: Clusters, log_shares: Floats, variances: Floats) -> None:
        self.clusters = clusters
        self.log_shares = log_shares
        self.variances = variances

    @classmethod
    def fit(cls, vectors: Vectors, clusters: Clusters, labels: npt.NDArray[np.int64]) -> Self:
        """Learn the shares and the variances.

        Args:
            vectors: shape (n, dimension): what the clusters were found in.
            clusters: what ``Clusters.fit`` gave.
            labels: shape (n,): the cluster of each vector.
        """
        shares = np.bincount(labels, minlength=len(clusters.centres)) / len(labels)
        places, outside = vectors, 0.0
        if clusters.projection is not None:
            places = np.asarray(vectors @ clusters.projection)
            outside = 1.0 - float((places * places).sum(axis=1).mean())
            places = unit(places)
        inside = float(((places - clusters.centres[labels]) ** 2).sum(axis=1).mean())
        columns = clusters.centres.shape[1]
        hidden = vectors.shape[1] - columns
        variances = [max(inside, _LEAST_SPREAD) / columns, 0.0]
        if hidden:
            variances[1] = max(outside, _LEAST_SPREAD) / hidden
        return cls(clusters, np.log(shares), np.array(variances))

    def score(self, row: Row) -> float:
        """Of one vector."""
        place, rest = _split(row, self.clusters.projection)
        if self.clusters.projection is not None:
            place = unit(place)
        squares = self.clusters.squared_distances(place)
        terms = self.log_shares - (squares + place @ place) / (2 * self.variances[0])
        best = terms.max()
        found = float(best + np.log(np.exp(terms - best).sum()))
        return found - rest / (2 * float(self.variances[1])) if self.variances[1] else found

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save beside those of the clusters."""
        return {"density.log_shares": self.log_shares, "density.variances": self.variances}

    @classmethod
    def restore(cls, state: Mapping[str, npt.NDArray[Any]], clusters: Clusters) -> Self:
        """What ``state`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the shapes do not fit the clusters.
        """
        shares = require_shape(state, "density.log_shares", (len(clusters.centres),))
        variances = require_shape(state, "density.variances", (2,))
        if not variances[0] > 0 or not variances[1] >= 0:
            raise ModelError("the variances of the clusters are damaged; fit the model again")
        return cls(clusters, shares, variances)


class Mahalanobis:
    """Minus the squared Mahalanobis distance from the training queries.

    Inside of the plane with the whole, regularised covariance; outside with one variance for all
    directions, as in probabilistic PCA (Tipping and Bishop 1999). AUROC on five validation sets,
    lowest and mean: lexical .903 and .985, MiniLM .965 and .992.

    Attributes:
        directions: shape (dimension, columns): the plane.
        mean: shape (columns,): of the training queries.
        whitening: shape (columns, columns): what makes their covariance the identity.
        outside: shape (1,): variance of one dimension outside.
    """

    def __init__(
        self, directions: Matrix, mean: Matrix, whitening: Matrix, outside: Floats
    ) -> None:
        self.directions = directions
        self.mean = mean
        self.whitening = whitening
        self.outside = outside

    @classmethod
    def fit(cls, vectors: Vectors, *, seed: int = 0) -> Self:
        """Learn from vectors of shape (n, dimension)."""
        directions = principal_directions(vectors, seed)
        places = np.asarray(vectors @ directions, np.float64)
        columns = directions.shape[1]
        centred = places - places.mean(axis=0)
        covariance = centred.T @ centred / len(places)
        ridge = max(_RIDGE * np.trace(covariance), _LEAST_SPREAD) / columns
        values, axes = np.linalg.eigh(covariance + ridge * np.eye(columns))
        rest = 1.0 - float((places * places).sum(axis=1).mean())
        hidden = max(1, vectors.shape[1] - columns)
        return cls(
            directions,
            places.mean(axis=0).astype(np.float32),
            np.asarray(axes / np.sqrt(values), np.float32),
            np.array([max(rest, _LEAST_SPREAD) / hidden]),
        )

    def score(self, row: Row) -> float:
        """Of one vector."""
        place, rest = _split(row, self.directions)
        white = (place - self.mean) @ self.whitening
        return -float(white @ white) - rest / float(self.outside[0])

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "density.directions": self.directions,
            "density.mean": self.mean,
            "density.whitening": self.whitening,
            "density.outside": self.outside,
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
            require_shape(state, "density.outside", (1,)),
        )


def floor_without(
    texts: Sequence[str],
    scores_without: Callable[[list[int], list[int]], Sequence[float]],
    *,
    seed: int,
) -> float | None:
    """The floor of familiarity, from queries that the model did not see.

    Args:
        texts: the training queries; of equal ones, one is judged.
        scores_without: from positions to learn from and positions to judge, the scores of those.
        seed: of the folds.

    Returns:
        The floor, or None for fewer than two different queries.
    """
    distinct = list({text: position for position, text in enumerate(texts)}.values())
    order = np.random.default_rng(seed).permutation(distinct)[:_JUDGED]
    if len(order) < 2:
        return None
    scores: list[float] = []
    for fold in range(min(_FOLDS, len(order))):
        here = np.arange(len(order)) % _FOLDS == fold
        scores += scores_without(order[~here].tolist(), order[here].tolist())
    return floor_of(np.array(scores))


def saved_floor(floor: float | None) -> dict[str, npt.NDArray[Any]]:
    """The floor as an array, not a number where there is none."""
    return {"density.floor": np.array([np.nan if floor is None else floor])}


def restored_floor(state: Mapping[str, npt.NDArray[Any]]) -> float | None:
    """The floor that ``saved_floor`` gave.

    Raises:
        ModelError: it is none.
    """
    floor = float(require_shape(state, "density.floor", (1,))[0])
    if np.isinf(floor):
        raise ModelError("the floor of familiarity is no number; fit the model again")
    return None if np.isnan(floor) else floor


def _split(row: Row, directions: Matrix | None) -> tuple[npt.NDArray[Any], float]:
    """Place in the plane, and the squared length of what is outside, from 0 to 1.

    A text without any known term lies outside as a whole.
    """
    if directions is None:
        return row, 0.0
    place = product(row, directions)
    return place, max(0.0, 1.0 - float(place @ place))
