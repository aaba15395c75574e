"""How often the plan calls each tool, from parts of the words of the query."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from dtdr.errors import ModelError
from dtdr.retrievers.factored.blocks.base import Arrays, Block, TrainingSet
from dtdr.retrievers.factored.blocks.expected_calls import ExpectedCalls
from dtdr.retrievers.factored.query_features import (
    EncodedQueries,
    QueryFeatures,
    QueryFeaturizer,
    Row,
)
from dtdr.retrievers.factored.ridge import RidgeRegression
from dtdr.retrievers.nn import stack_rows

_BUCKETS = 2_048
_SHORTEST, _LONGEST = 3, 5


class Subwords(ExpectedCalls):
    """The regression of ``ExpectedCalls`` on runs of three to five characters within words.

    Runs are hashed into 2,048 columns, so that a word that no demonstration holds says what words
    with the same parts say. The words that it learns from are those of the vocabulary.
    """

    name = "subwords"
    about = "parts of words that ask for it"
    names = ("parts_left", "parts_likely", "parts_left_at_end")

    @classmethod
    def _regression(cls, training: TrainingSet) -> RidgeRegression:
        vectors = cls._vectors(training.queries, training.featurizer)
        return RidgeRegression(vectors, training.plans.weights, training.seed)

    @classmethod
    def _vectors(cls, queries: EncodedQueries, featurizer: QueryFeaturizer) -> csr_array:
        terms = featurizer.words.vocabulary_
        parts = stack_rows([_parts_of(term) for term in terms], _BUCKETS)
        vectors = csr_array(queries.word_vectors[:, : len(terms)] @ parts)
        lengths = np.sqrt(vectors.multiply(vectors).sum(axis=1))
        scale = 1 / np.maximum(np.asarray(lengths, np.float32).ravel(), 1e-6)
        return csr_array(vectors.multiply(scale[:, None]), dtype=np.float32)

    def _row(self, query: QueryFeatures) -> Row:
        dense = np.zeros(_BUCKETS, np.float32)
        for word in query.text.words:
            columns, values = _parts_of(word)
            dense[columns] += values
        length = np.float32(np.sqrt(dense @ dense))
        columns = np.flatnonzero(dense).astype(np.int32)
        return columns, dense[columns] / max(length, np.float32(1e-6))

    def widen(self, training: TrainingSet, first: int, count: int) -> Block:
        """The same weights: new words have parts already."""
        return Subwords(self.weights, training)

    @classmethod
    def restore(cls, arrays: Arrays, training: TrainingSet) -> Self:
        """The weights that were saved."""
        weights = arrays["weights"]
        if weights.shape != (_BUCKETS, len(training.seen)):
            raise ModelError("the weights of parts of words do not fit the tools; fit it again")
        return cls(weights, training)


@lru_cache(maxsize=1 << 15)
def _parts_of(word: str) -> Row:
    """Columns (rising) and values of the parts of one word, of length 1; none of other terms."""
    if not word.isalpha():
        return np.empty(0, np.int32), np.empty(0, np.float32)
    marked = f"<{word}>".encode("utf-8", "surrogatepass")
    runs = {
        marked[start : start + size]
        for size in range(_SHORTEST, _LONGEST + 1)
        for start in range(len(marked) - size + 1)
    }
    columns, counts = np.unique(
        [zlib.crc32(run) % _BUCKETS for run in runs or {marked}], return_counts=True
    )
    values = counts.astype(np.float32)
    return columns.astype(np.int32), values / np.sqrt(values @ values)
