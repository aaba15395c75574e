"""The demonstrated plans: which of them a query is like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from dtdr.errors import ModelError
from dtdr.predict.arguments.hashing import Hashes, features
from dtdr.text.encoders.lexical import words

NEAREST = 8
MOST_PLANS = 10_000
"""Plans that are kept, the last ones: some 2 MB."""
_MOST_WORDS = 400
_LEAST_COUNT = 2
"""Terms of fewer queries are not kept."""


class PlanMemory:
    """Queries by their words and pairs of words, and the tools of their plans.

    Args:
        hashes: shape (terms,), sorted: of words and pairs of words.
        weights: shape (terms,): their inverse document frequencies.
        rows: shape (plans, terms): rows of length 1.
        plans: the tools of each, in the order they were called.
    """

    def __init__(
        self,
        hashes: Hashes,
        weights: npt.NDArray[np.float32],
        rows: csr_array,
        plans: Sequence[tuple[int, ...]],
    ) -> None:
        self._hashes, self._weights, self.rows = hashes, weights, rows
        self.plans = list(plans)

    @classmethod
    def fit(cls, queries: Sequence[str], plans: Sequence[tuple[int, ...]]) -> Self:
        """Remember demonstrations."""
        queries, plans = queries[-MOST_PLANS:], plans[-MOST_PLANS:]
        hashes, counts = np.unique(np.concatenate(list(map(_terms, queries))), return_counts=True)
        frequent = counts >= _LEAST_COUNT
        weights = (np.log((1 + len(queries)) / (1 + counts[frequent])) + 1).astype(np.float32)
        hashes = hashes[frequent]
        return cls(hashes, weights, _encode(queries, hashes, weights), plans)

    def with_plans(self, queries: Sequence[str], plans: Sequence[tuple[int, ...]]) -> PlanMemory:
        """One that remembers further plans too; words it has not seen stay unknown."""
        further = _encode(queries, self._hashes, self._weights)
        rows = csr_array(vstack([self.rows, further], format="csr")[-MOST_PLANS:])
        every = [*self.plans, *plans][-MOST_PLANS:]
        return PlanMemory(self._hashes, self._weights, rows, every)

    def cosines(self, query: str) -> npt.NDArray[np.float32]:
        """How similar each demonstrated query is; shape (plans,)."""
        cosine: npt.NDArray[np.float32] = (
            self.rows @ _encode([query], self._hashes, self._weights).T
        ).toarray()
        return cosine[:, 0]

    @staticmethod
    def find_nearest(
        cosine: npt.NDArray[np.float32], leave_out: int = -1
    ) -> list[tuple[int, float]]:
        """The most similar demonstrations, by their number, with the cosine; best first.

        Args:
            cosine: of all of them.
            leave_out: the number of one that is not looked at.
        """
        if leave_out >= 0:
            cosine = cosine.copy()
            cosine[leave_out] = -1
        count = min(NEAREST, len(cosine))
        best = np.argpartition(-cosine, count - 1)[:count] if count else np.empty(0, np.intp)
        best = best[np.lexsort((best, -cosine[best]))]
        return [(number, float(cosine[number])) for number in best.tolist() if cosine[number] > 0]

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            "hashes": self._hashes,
            "weights": self._weights,
            "data": self.rows.data.astype(np.float16),
            "indices": self.rows.indices.astype(np.int32),
            "indptr": self.rows.indptr.astype(np.int64),
            "calls": np.array([tool for plan in self.plans for tool in plan], np.int32),
            "lengths": np.array([len(plan) for plan in self.plans], np.int32),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], tools: int) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        lengths, calls = arrays["lengths"], arrays["calls"]
        indices, indptr = arrays["indices"], arrays["indptr"]
        hashes, weights = arrays["hashes"], arrays["weights"]
        width = max(1, len(hashes))
        fits = (
            hashes.shape == weights.shape == (len(hashes),)
            and len(indptr) == len(lengths) + 1
            and (np.diff(indptr) >= 0).all()
            and indptr[0] == 0
            and indptr[-1] == len(indices) == len(arrays["data"])
            and (not len(indices) or (indices.min() >= 0 and indices.max() < width))
            and (not len(lengths) or lengths.min() >= 0)
            and lengths.sum() == len(calls)
            and (not len(calls) or (calls.min() >= -1 and calls.max() < tools))
        )
        if not fits:
            raise ModelError("the plans that the model remembers do not fit together; fit it again")
        rows = csr_array(
            (arrays["data"].astype(np.float32), indices, indptr), shape=(len(lengths), width)
        )
        ends = np.cumsum(lengths).tolist()
        every = calls.tolist()
        plans = [
            tuple(every[end - length : end])
            for end, length in zip(ends, lengths.tolist(), strict=True)
        ]
        return cls(hashes.astype(np.uint32), weights.astype(np.float32), rows, plans)


def _encode(texts: Sequence[str], hashes: Hashes, weights: npt.NDArray[np.float32]) -> csr_array:
    """Rows of length 1, or of zeros where no term is known; shape (texts, terms)."""
    columns: list[npt.NDArray[np.intp]] = []
    for terms in map(_terms, texts):
        places = np.searchsorted(hashes, terms)
        known = places < len(hashes)
        known[known] = hashes[places[known]] == terms[known]
        columns.append(places[known])
    lengths = [len(row) for row in columns]
    every = np.concatenate(columns) if columns else np.empty(0, np.intp)
    values, owner = weights[every], np.repeat(np.arange(len(columns)), lengths)
    norms = np.sqrt(np.bincount(owner, values**2, len(columns)))
    values = (values / np.maximum(norms, 1e-9)[owner]).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    shape = (len(columns), max(1, len(hashes)))
    return csr_array((values, every.astype(np.int32), starts), shape=shape)


def _terms(query: str) -> Hashes:
    terms = words(query[:20_000])[:_MOST_WORDS]
    return np.unique(features([*terms, *(" ".join(pair) for pair in pairwise(terms))]))
