"""The demonstrated plans: which of them a query is like, and which sets of tools they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dtdr.errors import ModelError
from dtdr.predict.arguments.hashing import Hashes, features
from dtdr.predict.plans.beam import Multiset
from dtdr.text.encoders.lexical import words

NEAREST = 8
MOST_PLANS = 10_000
"""Plans that are kept, the last ones: some 2 MB."""
_MOST_WORDS = 400
_LEAST_COUNT = 2
"""Terms of fewer queries are not kept."""


class TermWeights:
    """Words and pairs of words of texts as hashes, with inverse document frequencies.

    Args:
        hashes: shape (terms,), rising.
        weights: shape (terms,).
    """

    def __init__(self, hashes: Hashes, weights: npt.NDArray[np.float32]) -> None:
        self._hashes, self._weights = hashes, weights

    def __len__(self) -> int:
        return max(1, len(self._hashes))

    @classmethod
    def fit(cls, texts: Sequence[str]) -> Self:
        """Learn which terms stand in two texts or more."""
        hashes, counts = np.unique(np.concatenate(list(map(_terms, texts))), return_counts=True)
        frequent = counts >= _LEAST_COUNT
        weights = np.log((1 + len(texts)) / (1 + counts[frequent])) + 1
        return cls(hashes[frequent], weights.astype(np.float32))

    def encode(self, texts: Sequence[str]) -> csr_array:
        """Rows of length 1, or of zeros where no term is known; shape (texts, terms)."""
        columns: list[npt.NDArray[np.intp]] = []
        for hashes in map(_terms, texts):
            places = np.searchsorted(self._hashes, hashes)
            known = places < len(self._hashes)
            known[known] = self._hashes[places[known]] == hashes[known]
            columns.append(places[known])
        lengths = [len(row) for row in columns]
        every = np.concatenate(columns) if columns else np.empty(0, np.intp)
        values = self._weights[every]
        owner = np.repeat(np.arange(len(columns)), lengths)
        norms = np.sqrt(np.bincount(owner, values**2, len(columns)))
        values = (values / np.maximum(norms, 1e-9)[owner]).astype(np.float32)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return csr_array((values, every.astype(np.int32), starts), shape=(len(columns), len(self)))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {"hashes": self._hashes, "weights": self._weights}

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit together.
        """
        hashes, weights = arrays["hashes"], arrays["weights"]
        if hashes.shape != weights.shape or hashes.ndim != 1:
            raise ModelError("the words that the plan model knows do not fit; fit it again")
        return cls(hashes.astype(np.uint32), weights.astype(np.float32))


class PlanMemory:
    """Queries by their words, and the tools of their plans.

    Args:
        terms: the weights of words.
        rows: shape (plans, terms): rows of length 1.
        plans: the tools of each, in the order they were called.
    """

    def __init__(
        self, terms: TermWeights, rows: csr_array, plans: Sequence[tuple[int, ...]]
    ) -> None:
        self._terms, self.rows = terms, rows
        self.plans = list(plans)
        self.multisets: Counter[Multiset] = Counter(tuple(sorted(plan)) for plan in self.plans)
        self.sets = Counter(frozenset(plan) for plan in self.plans)

    @classmethod
    def fit(cls, queries: Sequence[str], plans: Sequence[tuple[int, ...]]) -> Self:
        """Remember demonstrations."""
        queries, plans = queries[-MOST_PLANS:], plans[-MOST_PLANS:]
        terms = TermWeights.fit(queries)
        return cls(terms, terms.encode(queries), plans)

    def with_plans(self, queries: Sequence[str], plans: Sequence[tuple[int, ...]]) -> PlanMemory:
        """With further demonstrations; words that no earlier query held stay unknown."""
        from scipy.sparse import vstack

        rows = vstack([self.rows, self._terms.encode(queries)])
        return PlanMemory(
            self._terms,
            csr_array(csr_array(rows)[-MOST_PLANS:]),
            [*self.plans, *plans][-MOST_PLANS:],
        )

    def cosines(self, query: str) -> npt.NDArray[np.float32]:
        """How similar each demonstrated query is; shape (plans,)."""
        cosine: npt.NDArray[np.float32] = (self.rows @ self._terms.encode([query]).T).toarray()
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
            **self._terms.arrays(),
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
        terms = TermWeights.restore(arrays)
        width = len(terms)
        fits = (
            len(indptr) == len(lengths) + 1
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
        return cls(terms, rows, plans)


def _terms(query: str) -> Hashes:
    terms = words(query[:20_000])[:_MOST_WORDS]
    return np.unique(features([*terms, *(" ".join(pair) for pair in pairwise(terms))]))
