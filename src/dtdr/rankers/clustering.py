"""``dtdr-c``: Markov chains over the demonstrations whose queries are like this one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError, ModelError, check_at_least
from dtdr.rankers.base import Arrays, History
from dtdr.rankers.calibration import Floats
from dtdr.rankers.markov import Integers, MarkovChains, flatten
from dtdr.rankers.name_ranker import Recipe, check_recipe, recipe_encoder
from dtdr.rankers.nn import Matrix
from dtdr.rankers.out_of_distribution import LEAST_SPREAD, Density, DistanceRanker, Placed
from dtdr.rankers.vectors import (
    Row,
    fit_encoder,
    principal_directions,
    product,
    rows,
    squared_length,
    unit,
)
from dtdr.text import encoders
from dtdr.text.encoders.base import Encoder, Vectors

MAX_ORDER = 20
"""Longest history a chain can look at: a model grows with it, and the paper measured little gain
beyond 3 (its ablation of history length)."""

STRENGTH, NEAREST = 8.0, 4
"""``research/baselines-experiments.md`` has what others gave."""

MANY = 500_000_000
"""Vectors times clusters from which k-means starts at random vectors and stops after
``FEW_ROUNDS`` rounds: k-means++ then takes longer than the rest of the fit (100,000 vectors and
10,000 clusters: minutes). The paper's size is below it: 27,900 queries with 384 dimensions in 2,790
clusters take 51 s of one processor and 523 MB from k-means++ until nothing changes."""

FEW_ROUNDS = 10


class Clusters:
    """Centres of clusters, and the projection that sparse vectors go through first.

    Attributes:
        centres: shape (clusters, columns).
        projection: shape (dimension, columns), for dense vectors (0, columns).
        inputs: dimension of the vectors.
        columns: dimension of the centres.
    """

    def __init__(self, centres: Matrix, projection: Matrix) -> None:
        self.centres = centres
        self.projection = projection
        self.inputs = len(projection) or centres.shape[1]
        self.columns = centres.shape[1]
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

    def squares(self, row: Row, part: slice = slice(None)) -> Floats:
        """Shape (clusters,): squared distance of a vector from each centre, per coordinate.

        ``part`` limits it to some of the clusters.
        The part of a sparse vector outside of the projection counts, and a text without any known
        term is as far as a vector that is orthogonal to all.
        """
        projected = product(row, self.projection) if len(self.projection) else row
        distances = self._squares[part] - 2 * product(projected, self._columns[:, part])
        distances += squared_length(row) or 1.0
        squares: Floats = np.maximum(distances, 0).astype(np.float64) / self.columns
        return squares


@dataclass(frozen=True, eq=False)
class ClusterLikelihood:
    """Log likelihood of a query under the clusters of the training queries (paper, Limitations).

    The clusters are a mixture of spherical normal distributions with one variance; each has the
    share of the training queries that it contains.

    Attributes:
        clusters: where the distributions have their means.
        sizes: shape (clusters,): training queries in each.
        variance: of each coordinate within a cluster.
    """

    clusters: Clusters
    sizes: Floats
    variance: float

    @classmethod
    def fit(cls, clusters: Clusters, vectors: Vectors, labels: Integers) -> Self:
        """Learn the variance from clustered vectors, shape (n, dimension).

        ``labels`` has the cluster of each vector; every cluster has one.
        """
        sizes = np.bincount(labels).astype(np.float64)
        squares = [
            float(clusters.squares(row, slice(label, label + 1))[0])
            for row, label in zip(rows(vectors), labels.tolist(), strict=True)
        ]
        # A centre is nearer to its members than to other queries of their kind, and the only
        # member of a cluster has no distance from it at all.
        degrees_of_freedom = max(len(squares) - len(sizes), 1)
        return cls(clusters, sizes, max(math.fsum(squares) / degrees_of_freedom, LEAST_SPREAD))

    def score(self, row: Row) -> float:
        """The score of one vector, higher where the training queries are; per coordinate."""
        shares = np.log(self.sizes / self.sizes.sum())
        logits = shares - self.clusters.squares(row) * self.clusters.columns / (2 * self.variance)
        highest = logits.max()
        total = float(highest + np.log(np.exp(logits - highest).sum()))
        return total / float(self.clusters.columns)


class DTDRClustering(DistanceRanker):
    """DTDR-C (paper, Section 4 and Appendix I.2, Algorithms 3 and 4).

    k-means groups the training queries, each cluster has a Markov chain over its demonstrations,
    and the chain of the query's cluster says what follows the history.

    ``recipe="paper"`` looks up exactly the last ``order`` calls in the nearest cluster, and
    ``Ranking.select()`` gives what followed them there: the paper needs no threshold, so its own is
    0. If they were never together, nothing is known and all tools are equal: ``select()`` then
    gives all of them, a ``top_k`` the first by name.

    The default backs off: it starts from all tools being equal and mixes in, for histories of
    length 0, 1, ... ``order``, what followed in all demonstrations and then in the ``nearest``
    clusters, farthest first, each estimate counting as ``strength`` further calls of the next one.

    A query's familiarity is minus its squared Mahalanobis distance from the training queries; with
    ``recipe="paper"`` it is the log likelihood of the query under the clusters (paper,
    Limitations). ``select()`` shows all tools below the threshold of it, unless
    ``fallback=False``: the paper's experiments have no fallback.

    Args:
        recipe: ``"default"`` or ``"paper"``.
        encoder: its name, or the encoder.
        order: N, the longest history looked at.
        clusters: K; None for a tenth of the demonstrations (paper, Appendix C).
        threshold: the paper's α, used by ``Ranking.select()``; None is 0 for the paper's recipe.
        nearest: clusters mixed together; not used by the paper's recipe.
        strength: greater than 0; not used by the paper's recipe.
        seed: of k-means.

    Raises:
        InputError: a parameter is out of range.
    """

    name = "dtdr-c"
    uses_encoder = True
    SHAPES: ClassVar = {
        "clusters_.centres": ("clusters", "columns"),
        "clusters_.projection": ("inputs", "columns"),
        "cluster_chains_.calls": ("calls",),
        "cluster_chains_.labels": ("plans",),
        "variance_": (1,),
        **DistanceRanker.SHAPES,
    }

    clusters_: Clusters
    cluster_chains_: MarkovChains
    global_chain_: MarkovChains
    likelihood_: ClusterLikelihood
    variance_: Floats
    """Variance of a coordinate within a cluster."""

    def __init__(
        self,
        *,
        recipe: Recipe = "default",
        encoder: str | Encoder = encoders.DEFAULT,
        order: int = 3,
        clusters: int | None = None,
        threshold: float | None = None,
        nearest: int = NEAREST,
        strength: float = STRENGTH,
        seed: int = 0,
    ) -> None:
        check_recipe(recipe)
        if not 0 <= order <= MAX_ORDER:
            raise InputError(f"order is {order}; it must be from 0 to {MAX_ORDER}")
        check_at_least(1, clusters=clusters, nearest=nearest)
        if not strength > 0:
            raise InputError(f"strength is {strength}; it must be greater than 0")
        self.recipe = recipe
        self.encoder = recipe_encoder(encoder, recipe)
        self.order = order
        self.clusters = clusters
        self.threshold = threshold
        self.nearest = nearest
        self.strength = strength
        self.seed = seed

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        queries = [demonstration.query for demonstration in demonstrations]
        self.encoder = fit_encoder(self.encoder, queries)
        vectors = self.encoder.encode(queries)
        clusters = self.clusters or max(1, len(queries) // 10)
        self.clusters_, labels = Clusters.fit(vectors, clusters, seed=self.seed)
        self._set_chains(flatten(self.plans(demonstrations), len(self.tools_)), labels)
        self.likelihood_ = ClusterLikelihood.fit(self.clusters_, vectors, labels)
        self.variance_ = np.array([self.likelihood_.variance])
        self._fit_distance(queries, vectors, [[query] for query in queries])

    def _fit_density(self, vectors: Vectors) -> Density:
        if self.recipe != "paper":
            return super()._fit_density(vectors)
        # As many queries a cluster as in all of the data.
        share = len(self.clusters_.centres) / len(self.cluster_chains_.labels)
        count = max(1, round(share * vectors.shape[0]))
        clusters, labels = Clusters.fit(vectors, count, seed=self.seed)
        return ClusterLikelihood.fit(clusters, vectors, labels)

    def _set_chains(self, calls: Integers, labels: Integers) -> None:
        tools = len(self.tools_)
        self.cluster_chains_ = MarkovChains(calls, self.order, tools, labels)
        self.global_chain_ = MarkovChains(calls, self.order, tools)

    @property
    def cut(self) -> float | None:
        """See ``Ranker.cut``."""
        return 0.0 if self.threshold is None and self.recipe == "paper" else self.threshold

    def _prepare(self, queries: Sequence[str]) -> Sequence[Placed]:
        count = 1 if self.recipe == "paper" else self.nearest
        density = self.likelihood_ if self.recipe == "paper" else self.distance_
        return [
            Placed(self.clusters_.find_nearest(row, count), density.score(row))
            for row in rows(self.encoder.encode(queries))
        ]

    def _row(self, prepared: Placed, history: History) -> Floats:
        clusters: Sequence[int] = prepared.prepared
        if self.recipe == "paper":
            return self.cluster_chains_.lookup(clusters[0], history)
        paths = [(self.global_chain_, self.global_chain_.path(0, history))]
        for cluster in reversed(clusters):
            paths.append((self.cluster_chains_, self.cluster_chains_.path(cluster, history)))
        row = np.full(len(self.tools_), 1 / len(self.tools_))
        for length in range(self.order + 1):
            for chains, path in paths:
                if length < len(path):
                    row = chains.mix(path[length], row, self.strength)
        return row

    def _restore(self, arrays: Arrays) -> None:
        super()._restore(arrays)
        self.clusters_ = Clusters(arrays["clusters_.centres"], arrays["clusters_.projection"])
        self._set_chains(arrays["cluster_chains_.calls"], arrays["cluster_chains_.labels"])
        clusters, inputs = len(self.clusters_.centres), self.clusters_.inputs
        if clusters != self.cluster_chains_.groups or inputs != self.encoder.dimension:
            raise ModelError("the clusters do not fit the chains or the encoder; fit it again")
        self.variance_ = arrays["variance_"]
        if not self.variance_[0] > 0:
            raise ModelError("the variance of the clusters is damaged; fit it again")
        sizes = np.bincount(self.cluster_chains_.labels).astype(np.float64)
        self.likelihood_ = ClusterLikelihood(self.clusters_, sizes, float(self.variance_[0]))
