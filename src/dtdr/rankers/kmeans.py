"""Clusters of queries: k-means on their vectors, and the nearest clusters of a new query."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
import numpy.typing as npt

from dtdr.rankers.vectors import Row, product, unit
from dtdr.text.encoders.base import Vectors

REDUCED = 64
"""Dimensions that sparse vectors are reduced to. Mean MRR of dtdr-c by 3-fold validation on the
training sides of TinyAgent and T-Eval, lexical encoder: .626 without, .635 with 64, .633 with 128,
.628 with 256; and k-means on 64 dense columns is what makes 10,000 clusters affordable."""

MANY = 500_000_000
"""Vectors times clusters from which k-means starts at random vectors and stops after
``FEW_ROUNDS`` rounds: k-means++ then takes longer than the rest of the fit (100,000 vectors and
10,000 clusters: minutes). The paper's size is below it: 27,900 queries with 384 dimensions in 2,790
clusters take 51 s of one processor and 523 MB from k-means++ until nothing changes."""

FEW_ROUNDS = 10

Matrix = npt.NDArray[np.float32]


class Clusters:
    """Centres of clusters, and the projection that sparse vectors go through first.

    Attributes:
        centres: shape (clusters, columns).
        projection: shape (dimension, columns), for dense vectors (0, columns).
        inputs: dimension of the vectors.
    """

    def __init__(self, centres: Matrix, projection: Matrix) -> None:
        self.centres = centres
        self.projection = projection
        self.inputs = len(projection) or centres.shape[1]
        self._columns = np.ascontiguousarray(centres.T)
        self._squares = (centres * centres).sum(axis=1)

    @classmethod
    def fit(
        cls, vectors: Vectors, clusters: int, *, seed: int = 0
    ) -> tuple[Self, npt.NDArray[np.int32]]:
        """Cluster vectors.

        Args:
            vectors: shape (n, dimension), dense or CSR.
            clusters: how many to find at most; fewer where there are fewer distinct vectors.
            seed: of the projection and of k-means.

        Returns:
            The clusters, and the cluster of each vector; every cluster has one.
        """
        from sklearn.cluster import KMeans  # slow to import, and needed for fitting only
        from sklearn.exceptions import ConvergenceWarning

        projection = np.empty((0, vectors.shape[1]), np.float32)
        if not isinstance(vectors, np.ndarray):
            projection = principal_directions(vectors, seed)
            vectors = unit(np.asarray(vectors @ projection, np.float32))
        clusters = max(1, min(clusters, len(vectors)))
        many = len(vectors) * clusters >= MANY
        model = KMeans(
            clusters,
            n_init=1,
            init="random" if many else "k-means++",
            max_iter=FEW_ROUNDS if many else 300,
            random_state=seed,
        )
        with warnings.catch_warnings():
            # Equal queries leave fewer clusters than were asked for, which is right.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(vectors)
        used, labels = np.unique(model.labels_, return_inverse=True)
        centres = np.asarray(model.cluster_centers_[used], np.float32)
        return cls(centres, projection), labels.astype(np.int32)

    def find_nearest(self, row: Row, count: int) -> list[int]:
        """The ``count`` clusters nearest to a vector, nearest first; ties by number."""
        if len(self.projection):
            row = unit(product(row, self.projection))
        distances = self._squares - 2 * product(row, self._columns)
        order: list[int] = distances.argsort(kind="stable")[:count].tolist()
        return order


def principal_directions(vectors: Vectors, seed: int) -> Matrix:
    """Directions of the largest singular values; shape (dimension, at most REDUCED)."""
    from sklearn.utils.extmath import randomized_svd

    columns = min(REDUCED, *vectors.shape)
    _, _, directions = randomized_svd(vectors, columns, random_state=seed)
    return np.ascontiguousarray(directions.T, np.float32)
