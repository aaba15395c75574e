"""Ridge regression of what is called on the words of each part of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from dtdr.data.tools import Tool
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.queries import QueryFeaturizer
from dtdr.rankers.nn import Indices, Matrix
from dtdr.text.sparse import csr_array, vstack
from dtdr.text.words import name_words

_FOLDS = 2
"""Four instead of two: validation MRR on T-Eval -.0003, TinyAgent +.0002."""
_MOST_PARTS = 3_000
"""Parts that weights are learned from, of more."""
_ROUNDS = 3
"""Times that calls are divided among parts again."""
_MOST = 4.0
"""More calls of one tool count as this many."""
_LEAST_SHARE = 1e-3
_RIDGE = np.float32(1)
_MOST_ROUNDS, _PRECISION, _TINY = 60, 1e-3, np.float32(1e-30)
"""Steps of conjugate gradients: a fifth of the time of a Cholesky decomposition."""
_MOST_DESCRIBED = 1_024
"""Tools up to which their descriptions are learned from too."""


@dataclass(frozen=True, eq=False)
class WordWeights:
    """Weights of words and pairs of words: whether each tool is called, and how often.

    No demonstration shows which part of its query asks for which call. So calls are first divided
    evenly among the parts, then as a regression predicts that has not seen the query (expectation
    maximisation). The name and description of a tool count as one more part that asks for it.

    Attributes:
        weights: shape (words, 2, seen): for presence and number of calls of the seen tools.
        mean: shape (2, seen): what a part asks for on average.
    """

    weights: npt.NDArray[np.float16]
    mean: Matrix

    @classmethod
    def fit(
        cls,
        featurizer: QueryFeaturizer,
        plans: EncodedDemonstrations,
        tools: Sequence[Tool],
        seen: Indices,
        seed: int,
    ) -> Self:
        """Learn from queries and their plans.

        Args:
            featurizer: has the queries.
            plans: one a query.
            tools: the vocabulary.
            seen: shape (seen,), the positions of the tools to learn, the end of plan last.
            seed: which queries are taken where there are too many.
        """
        parts, sizes = featurizer.parts
        order = np.random.default_rng(seed).permutation(len(sizes))
        fitting = max(1, int((np.cumsum(sizes[order]) <= _MOST_PARTS).sum()))
        queries = np.sort(order[:fitting])
        parts = csr_array(parts[np.isin(np.repeat(np.arange(len(sizes)), sizes), queries)])
        sizes = sizes[queries]
        part_count = int(sizes.sum())
        named = seen[:-1] if len(seen) <= _MOST_DESCRIBED else seen[:0]
        described = [
            f"{name_words(tools[at].name)} {tools[at].description}" for at in named.tolist()
        ]
        rows = csr_array(vstack([parts, featurizer.encode_words(described)], format="csr"))
        counts = plans.called[queries][:, seen].toarray()
        called = np.stack([np.minimum(counts, most) for most in (1, _MOST)], axis=1)
        of_plan = np.repeat(called.astype(np.float32), sizes, axis=0)
        wanted = np.zeros((rows.shape[0], 2, len(seen)), np.float32)
        wanted[part_count + np.arange(len(named)), :, np.arange(len(named))] = 1
        fold = np.append(np.repeat(np.arange(len(sizes)) % _FOLDS, sizes), np.full(len(named), -1))
        folds = [(np.flatnonzero(fold == at), np.flatnonzero(fold != at)) for at in range(_FOLDS)]
        folds = [(out, known) for out, known in folds if len(out) and len(known)]
        shares = np.repeat(1 / sizes, sizes)[:, None].astype(np.float32)
        for _ in range(_ROUNDS):
            presence = of_plan[:, 0] * shares
            mean = _mean(presence)
            above = np.concatenate([presence, wanted[part_count:, 0]]) - mean
            asked = np.zeros_like(presence)
            for out, known in folds:
                asked[out] = rows[out] @ _regress(rows[known], above[known]) + mean
            likely = np.maximum(asked, _LEAST_SHARE)
            of_query = np.add.reduceat(likely, np.cumsum(sizes) - sizes, axis=0)
            shares = likely / np.repeat(of_query, sizes, axis=0)
        wanted[:part_count] = of_plan * shares[:, None]
        mean = _mean(wanted[:part_count])
        above = (wanted - mean).reshape(len(wanted), -1)
        weights = _regress(rows, above)
        return cls(weights.astype(np.float16).reshape(len(weights), *mean.shape), mean)


def _regress(rows: csr_array, wanted: Matrix) -> Matrix:
    """Weights of a ridge regression by conjugate gradients; shape (words, outputs).

    Args:
        rows: shape (parts, words).
        wanted: shape (parts, outputs).
    """
    across = csr_array(rows.T)
    solution, left = np.zeros_like(wanted), wanted.copy()
    along = wanted.copy()
    before = start = np.einsum("ij,ij->j", left, left)
    for _ in range(_MOST_ROUNDS):
        image = rows @ (across @ along) + _RIDGE * along
        size = before / np.maximum(np.einsum("ij,ij->j", along, image), _TINY)
        solution += size * along
        left -= size * image
        after = np.einsum("ij,ij->j", left, left)
        if (after <= _PRECISION**2 * start).all():
            break
        along = left + (after / np.maximum(before, _TINY)) * along
        before = after
    weights: Matrix = across @ solution
    return weights


def _mean(wanted: Matrix) -> Matrix:
    """Over the parts, in double precision."""
    shares = np.full(len(wanted), 1 / len(wanted))
    mean: Matrix = np.tensordot(shares, wanted, axes=1).astype(np.float32)
    return mean
