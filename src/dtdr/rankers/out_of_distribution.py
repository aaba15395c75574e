"""How unlike the demonstrations' queries a query is, by its place in an encoder's space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from dtdr.rankers.base import Arrays
from dtdr.rankers.calibration import Calibration, Floats
from dtdr.rankers.name_ranker import NameRanker
from dtdr.rankers.nn import Matrix
from dtdr.rankers.vectors import (
    Row,
    fit_encoder,
    principal_directions,
    product,
    rows,
    squared_length,
)
from dtdr.text.encoders.base import Encoder, Vectors

LEAST_SPREAD = 1e-3
"""Squared length, or variance of a coordinate; equal queries do not spread at all."""
_RIDGE = 0.1
"""Part of the mean variance that is added to each; Ledoit and Wolf's shrinkage did no better."""
_FOLDS = 5
_JUDGED = 3_000
"""Queries that the threshold is learned from, so that it costs no more than seconds."""

FALSE_ALARMS = 0.02
"""Share of the queries like the demonstrations' that are taken for unlike. A false alarm only shows
more tools than are needed. With it dtdr-f notices 98 % of other sets' queries and of gibberish on
five validation sets, with half of it 95 %."""


@dataclass(frozen=True, eq=False)
class Mahalanobis:
    """Minus the squared Mahalanobis distance from the training queries (paper, Limitations).

    Sparse vectors have more dimensions than there are queries. So the covariance is that of the
    plane in which the queries spread most, with one variance for every direction outside of it, as
    in probabilistic PCA (Tipping and Bishop 1999).

    Attributes:
        directions: shape (dimension, columns): the plane.
        mean: shape (columns,): of the training queries.
        whitening: shape (columns, columns): what makes their covariance the identity.
        outside: shape (1,): the squared length that they have outside of the plane.
    """

    directions: Matrix
    mean: Matrix
    whitening: Matrix
    outside: Floats

    @classmethod
    def fit(cls, vectors: Vectors, *, seed: int = 0) -> Self:
        """Learn from vectors, shape (n, dimension)."""
        directions = principal_directions(vectors, seed)
        places = np.asarray(vectors @ directions, np.float64)
        columns = directions.shape[1]
        covariance = np.atleast_2d(np.cov(places.T, bias=True))
        ridge = max(_RIDGE * np.trace(covariance), LEAST_SPREAD) / columns
        values, axes = np.linalg.eigh(covariance + ridge * np.eye(columns))
        return cls(
            directions,
            places.mean(axis=0).astype(np.float32),
            np.asarray(axes / np.sqrt(values), np.float32),
            np.array([_mean_square(vectors) - (places * places).sum(axis=1).mean()]),
        )

    def score(self, row: Row) -> float:
        """The score of one vector, higher where the training queries are.

        It is divided by the dimension, so that encoders that know more and fewer terms have
        comparable scores. A text without any known term lies outside of the plane as a whole.
        """
        projected = product(row, self.directions)
        white = (projected - self.mean) @ self.whitening
        dimension = len(self.directions)
        # A text without any known term has the length 0, as if it had no part outside of the plane.
        rest = max(0.0, (squared_length(row) or 1.0) - float(projected @ projected))
        variance = max(float(self.outside[0]), LEAST_SPREAD) / (dimension - len(projected) or 1)
        return -(float(white @ white) + rest / variance) / dimension


def _mean_square(vectors: Vectors) -> float:
    """Mean squared length of vectors, shape (n, dimension)."""
    values = vectors if isinstance(vectors, np.ndarray) else vectors.data
    return float((values.astype(np.float64) ** 2).sum() / vectors.shape[0])


class Placed(NamedTuple):
    """The prepared query, and its similarity to the demonstrations' queries."""

    prepared: Any
    familiarity: float


class Density(Protocol):
    """A distribution of queries, learned from their vectors."""

    def score(self, row: Row) -> float:
        """The score of one vector, higher where the training queries are."""


class DistanceRanker(NameRanker):
    """A ranker that knows how far a query is from those of the demonstrations."""

    SHAPES: ClassVar = {
        "distance_.directions": ("dimension", "plane"),
        "distance_.mean": ("plane",),
        "distance_.whitening": ("plane", "plane"),
        "distance_.outside": (1,),
        "lowest_": (1,),
    }

    encoder: Encoder
    distance_: Mahalanobis
    lowest_: Floats
    """The threshold of familiarity; 0 if there is none."""
    seed: int

    def familiarity(self, prepared: Placed) -> float:
        """See ``Ranker.familiarity``."""
        return prepared.familiarity

    def _fit_distance(
        self, queries: Sequence[str], vectors: Vectors, texts: Sequence[Sequence[str]]
    ) -> None:
        """Learn the distance, and its threshold from queries that were held out.

        Args:
            queries: of the demonstrations; of equal ones, one is judged.
            vectors: theirs, shape (n, dimension).
            texts: what the encoder learned of each demonstration.
        """
        self.distance_ = Mahalanobis.fit(vectors, seed=self.seed)
        distinct = list({text: position for position, text in enumerate(queries)}.values())
        order = np.random.default_rng(self.seed).permutation(distinct)[:_JUDGED]
        fold, scores = np.arange(len(order)) % _FOLDS, []
        for held_fold in range(min(_FOLDS, len(order)) if len(order) > 1 else 0):
            known, new = order[fold != held_fold], order[fold == held_fold]
            learned, judged = vectors[known], vectors[new]
            if self.encoder.learned:
                encoder = fit_encoder(self.encoder, [text for at in known for text in texts[at]])
                learned, judged = (
                    encoder.encode([queries[at] for at in part]) for part in (known, new)
                )
            partial = self._fit_density(learned)
            scores += [partial.score(row) for row in rows(judged)]
        self._set_threshold(np.array([threshold_of(np.array(scores)) or 0.0]))

    def _fit_density(self, vectors: Vectors) -> Density:
        """The distribution of a part of the training queries, shape (n, dimension)."""
        # Fewer queries are nearer to their plane.
        return replace(Mahalanobis.fit(vectors, seed=self.seed), outside=self.distance_.outside)

    def _set_threshold(self, lowest: Floats) -> None:
        self.lowest_ = lowest
        self.calibration_ = Calibration(familiarity_threshold=float(lowest[0]) or None)

    def _restore(self, arrays: Arrays) -> None:
        super()._restore({name: array for name, array in arrays.items() if "." not in name})
        parts = ("directions", "mean", "whitening", "outside")
        self.distance_ = Mahalanobis(**{part: arrays[f"distance_.{part}"] for part in parts})
        self._set_threshold(self.lowest_)


def threshold_of(scores: npt.NDArray[np.floating]) -> float | None:
    """The score below which a query is unlike the demonstrations.

    With enough scores it is the conformal bound, which a further query of the same kind falls
    below at most ``FALSE_ALARMS`` of the time, whatever the distribution. With fewer than
    ``1 / FALSE_ALARMS - 1`` no score is low enough for that, and it is the lower prediction bound
    of a normal distribution with that mean and deviation.

    Args:
        scores: shape (n,): of the demonstrations' own queries, each by a model without it.

    Returns:
        The threshold; None for fewer than two scores, which say nothing.
    """
    count = len(scores)
    if count < 2:
        return None
    values: Floats = np.sort(np.asarray(scores, np.float64))
    rank = int((count + 1) * FALSE_ALARMS + 1e-9)
    if rank:
        return float(values[rank - 1])
    from scipy.special import stdtrit

    reach = stdtrit(count - 1, FALSE_ALARMS) * np.sqrt(1 + 1 / count)
    return float(values.mean() + reach * values.std(ddof=1))
