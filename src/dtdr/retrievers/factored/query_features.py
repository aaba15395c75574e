"""Queries as numbers: words, shapes and surface features, and the same for many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from dtdr.encoders.base import Encoder
from dtdr.encoders.lexical import LexicalEncoder
from dtdr.encoders.lexical import words as words_of
from dtdr.errors import ModelError
from dtdr.retrievers.factored.encoded_runs import EncodedRuns
from dtdr.retrievers.factored.familiarity import Hashes, pair_hashes
from dtdr.retrievers.factored.query_parts import (
    EncodedParts,
    first_words,
    part_terms,
    split_parts,
)
from dtdr.retrievers.factored.query_text import (
    QueryText,
    ShapeEncoder,
    StemEncoder,
    shape_terms,
    split_clauses,
    stem,
    surface_features,
)
from dtdr.retrievers.factored.query_text import (
    stems as text_stems,
)
from dtdr.retrievers.nn import Indices, Matrix, stack_rows
from dtdr.retrievers.vectors import dense

_RUNS = "runs."
_FIRST_WORDS = "first_words"

_MOST_TERMS = 50_000
"""Above so many terms an update adds none: each takes as many weights as there are hidden units."""

FEW_QUERIES = 200
"""Below so many queries every word of letters counts, those of descriptions too, and descriptions
are a prior of what words ask for. Validation MRR, five draws: T-Eval with 20 .570 -> .616, with 100
.735 -> .745, with 280 .802 -> .806 (standard error .003); TinyAgent .810 -> .818, with 100 as
without."""

Row = tuple[npt.NDArray[np.int32], Matrix]
"""Columns (rising) and values of a sparse vector."""


@dataclass(frozen=True, slots=True)
class QueryFeatures:
    """A query as the encoders read it.

    Attributes:
        text: the query taken apart.
        terms: columns of its words and then of the pairs of neighbours, -1 where unknown.
        stems: columns of the stems of its words, -1 where unknown.
        words: the vector of words and pairs of words.
        vector: the vectors of words and shapes, side by side.
        surface: shape (n,): surface features, and the vector of a further encoder if there is one.
        parts: the first word of each part of the query, rising.
        clauses: shape (clauses, n): what that encoder gives of each clause; None without one.
    """

    text: QueryText
    terms: list[int]
    stems: list[int]
    words: Row
    vector: Row
    surface: Matrix
    parts: list[int]
    clauses: Matrix | None = None


@dataclass(frozen=True, slots=True)
class EncodedQueries:
    """Many queries as networks read them.

    Attributes:
        vectors: shape (queries, words + shapes), sparse.
        surface: shape (queries, surface features).
        words: how many of the first columns are words and pairs of words.
        parts: the words of their parts.
        clauses: one a query, shape (clauses, n): what a further encoder gives of each clause; None
            without one, and of queries that are kept to learn from again.
    """

    vectors: csr_array
    surface: Matrix
    words: int
    parts: EncodedParts
    clauses: Sequence[Matrix] | None = None

    def __len__(self) -> int:
        return len(self.surface)

    @property
    def word_vectors(self) -> csr_array:
        """Shape (queries, words): without the shapes."""
        return csr_array(self.vectors[:, : self.words])

    def subset(self, positions: Indices) -> EncodedQueries:
        """The queries at some positions."""
        return EncodedQueries(
            csr_array(self.vectors[positions]),
            self.surface[positions],
            self.words,
            self.parts.subset(positions),
        )

    def widen(self, words: int) -> EncodedQueries:
        """The same queries where more words have columns, behind those of the known ones."""
        added, vectors = words - self.words, self.vectors
        columns = vectors.indices + np.int32(added) * (vectors.indices >= self.words)
        shape = (vectors.shape[0], vectors.shape[1] + added)
        moved = csr_array((vectors.data, columns.astype(np.int32), vectors.indptr), shape=shape)
        return EncodedQueries(moved, self.surface, words, self.parts)

    def concatenate(self, other: EncodedQueries) -> EncodedQueries:
        """These queries and the others."""
        vectors = csr_array(vstack([self.vectors, other.vectors], format="csr"))
        surface = np.concatenate([self.surface, other.surface])
        return EncodedQueries(vectors, surface, self.words, self.parts.concatenate(other.parts))


class QueryFeaturizer:
    """Reads queries: what is known of their words is learned from the training queries.

    Args:
        words: words and pairs of words.
        shapes: words of the query's shape.
        stems: stems, of the tools' descriptions too.
        encoder: a further encoder, trained already, whose vectors stand beside the words; or None.
        first_words: words that begin sentences.
    """

    def __init__(
        self,
        words: LexicalEncoder,
        shapes: ShapeEncoder,
        stems: StemEncoder,
        encoder: Encoder | None,
        first_words: frozenset[str],
    ) -> None:
        self.words, self.shapes, self.stems, self.encoder = words, shapes, stems, encoder
        self.first_words = first_words

    @classmethod
    def fit(cls, texts: Sequence[str], documents: Sequence[str], encoder: Encoder | None) -> Self:
        """Learn the words of queries, and the stems of descriptions of tools too."""
        # Rare terms only add noise once there are enough queries to see the others.
        rare = 3 if len(texts) >= 500 else 2
        words = LexicalEncoder(min_df=rare).fit(texts)
        if len(texts) < FEW_QUERIES:
            every = chain.from_iterable(map(words_of, (*texts, *documents)))
            # Numbers and names of files say nothing about another request.
            words = words.extend(filter(str.isalpha, every))
        return cls(
            words,
            ShapeEncoder(min_df=rare).fit(texts),
            StemEncoder(min_df=1).fit([*documents, *texts]),
            encoder,
            first_words(map(QueryText.of, texts)),
        )

    def with_documents(self, documents: Sequence[str]) -> QueryFeaturizer:
        """With columns for stems of descriptions that are new."""
        stems = self.stems.extend(chain.from_iterable(map(text_stems, documents)))
        if stems is self.stems:
            return self
        other = copy(self)
        other.stems = stems
        return other

    def with_queries(self, texts: Sequence[str], phrases: Hashes) -> QueryFeaturizer:
        """With columns for words of letters that no earlier query held, and for pairs that one did.

        Args:
            texts: further queries.
            phrases: rising; hashes of the pairs of words that earlier queries held, as
                ``familiarity.phrase_hashes`` gives them.
        """
        if len(self.words.vocabulary_) > _MOST_TERMS:
            return self
        terms: list[str] = []
        just_held: set[int] = set()
        for text in texts:
            words = QueryText.of(text).words
            # Numbers and names of files say nothing about another request.
            terms += filter(str.isalpha, words)
            hashes = pair_hashes(words)
            known = phrases.take(phrases.searchsorted(hashes), mode="clip") == hashes
            pairs = list(zip(hashes.tolist(), known.tolist(), pairwise(words), strict=True))
            terms += [
                f"{one} {two}"
                for number, is_known, (one, two) in pairs
                if is_known or number in just_held
            ]
            just_held.update(number for number, _, _ in pairs)
        extended = self.words.extend(terms)
        if extended is self.words:
            return self
        other = copy(self)
        other.words = extended
        return other

    def read(self, query: str | QueryText, encoded: str | None = None) -> QueryFeatures:
        """One query; a further encoder reads ``encoded`` instead, where that is given."""
        text = QueryText.of(query) if isinstance(query, str) else query
        features = self._read(text)
        if self.encoder is None:
            return features
        whole = encoded or text.text
        further = dense(self.encoder.encode([whole, *split_clauses(whole)]))
        surface = np.concatenate([features.surface, further[0]])
        return replace(features, surface=surface, clauses=further[1:])

    def _read(self, text: QueryText) -> QueryFeatures:
        words = text.words
        terms = self.words.columns(words + [f"{one} {two}" for one, two in pairwise(words)])
        row = self.words.row(terms)
        columns, values = self.shapes.row(self.shapes.columns(shape_terms(text.shape)))
        return QueryFeatures(
            text,
            terms,
            self.stems.columns(map(stem, words)),
            row,
            (
                np.concatenate([row[0], columns + np.int32(self.words.dimension)]),
                np.concatenate([row[1], values]),
            ),
            surface_features(text),
            split_parts(text, self.first_words),
        )

    def read_all(self, queries: Sequence[str]) -> EncodedQueries:
        """Many queries."""
        read = [self._read(QueryText.of(query)) for query in queries]
        surface = np.stack([item.surface for item in read])
        clauses = None
        if self.encoder is not None:
            surface = np.concatenate([surface, dense(self.encoder.encode(list(queries)))], axis=1)
            texts = list(map(split_clauses, queries))
            encoded = dense(self.encoder.encode(list(chain.from_iterable(texts))))
            clauses = np.split(encoded, np.cumsum(list(map(len, texts)))[:-1])
        words = self.words.dimension
        vectors = stack_rows([item.vector for item in read], words + self.shapes.dimension)
        # In half the bytes wherever they are kept, so rounded from the start.
        vectors.data = vectors.data.astype(np.float16).astype(np.float32)
        surface = surface.astype(np.float16).astype(np.float32)
        parts = EncodedParts.of([part_terms(item.terms, item.parts) for item in read])
        return EncodedQueries(vectors, surface, words, parts, clauses)

    # -- saving --------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        encoders = {"words": self.words, "shapes": self.shapes, "stems": self.stems}
        first = "\n".join(sorted(self.first_words)).encode("utf-8", "surrogatepass")
        return {
            _FIRST_WORDS: np.frombuffer(first, np.uint8),
            **{
                f"{name}.{key}": array
                for name, encoder in encoders.items()
                for key, array in encoder.arrays().items()
            },
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], encoder: Encoder | None) -> Self:
        """What ``arrays`` gave."""

        def of(name: str) -> dict[str, npt.NDArray[Any]]:
            return {key: arrays[f"{name}.{key}"] for key in ("idf", "vocabulary")}

        # Folders of versions that did not look at parts of queries have none.
        first = arrays.get(_FIRST_WORDS, np.empty(0, np.uint8)).tobytes()
        return cls(
            LexicalEncoder.restore({}, of("words")),
            ShapeEncoder.restore({}, of("shapes")),
            StemEncoder.restore({}, of("stems")),
            encoder,
            frozenset(first.decode("utf-8", "surrogatepass").split("\n")),
        )


@dataclass(frozen=True, slots=True)
class ReplayBuffer:
    """Demonstrations that networks learn again beside new ones, so that they stay known.

    Attributes:
        plans: shape (n,), rising: their positions among the plans.
        queries: their queries.
        runs: what is known of them besides names; None where no block reads it.
    """

    plans: Indices
    queries: EncodedQueries
    runs: EncodedRuns | None = None

    def sample(self, rng: np.random.Generator, most: int) -> ReplayBuffer:
        """At most so many of them, drawn evenly."""
        if len(self.plans) <= most:
            return self
        chosen = np.sort(rng.choice(len(self.plans), most, replace=False))
        runs = None if self.runs is None else self.runs.subset(chosen)
        return ReplayBuffer(self.plans[chosen], self.queries.subset(chosen), runs)

    def add(self, first: int, queries: EncodedQueries, runs: EncodedRuns | None) -> ReplayBuffer:
        """With further queries, whose plans stand from ``first`` on, and their runs."""
        plans = np.concatenate([self.plans, np.arange(first, first + len(queries))])
        both = None if self.runs is None or runs is None else self.runs.concatenate(runs)
        return ReplayBuffer(plans, self.queries.concatenate(queries), both)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        vectors = self.queries.vectors
        narrow = np.uint16 if vectors.shape[1] <= 1 << 16 else np.int32
        return {
            "plans": self.plans.astype(np.int32),
            "columns": vectors.indices.astype(narrow),
            "starts": vectors.indptr.astype(np.int32),
            "values": vectors.data.astype(np.float16),
            "surface": self.queries.surface.astype(np.float16),
            "part_columns": self.queries.parts.columns.astype(narrow),
            "part_starts": self.queries.parts.starts.astype(np.int32),
            "parts": self.queries.parts.sizes,
            **(
                {}
                if self.runs is None
                else {f"{_RUNS}{name}": array for name, array in self.runs.arrays().items()}
            ),
        }

    @classmethod
    def restore(
        cls, arrays: Mapping[str, npt.NDArray[Any]], featurizer: QueryFeaturizer, tools: int
    ) -> Self:
        """What ``arrays`` gave."""
        words = featurizer.words.dimension
        starts = arrays["starts"].astype(np.int32)
        places = arrays["columns"].astype(np.int32)
        vectors = csr_array(
            (arrays["values"].astype(np.float32), places, starts),
            shape=(len(starts) - 1, words + featurizer.shapes.dimension),
        )
        parts = _restore_parts(arrays, words, vectors)
        queries = EncodedQueries(vectors, arrays["surface"].astype(np.float32), words, parts)
        own = {
            name.removeprefix(_RUNS): array
            for name, array in arrays.items()
            if name.startswith(_RUNS)
        }
        runs = EncodedRuns.restore(own, tools) if own else None
        if runs is not None and len(runs) != len(queries):
            raise ModelError("the runs of the model do not fit its queries; fit it again")
        return cls(arrays["plans"].astype(np.intp), queries, runs)


def _restore_parts(
    arrays: Mapping[str, npt.NDArray[Any]], words: int, vectors: csr_array
) -> EncodedParts:
    """The parts that were saved; each query is one part in folders that have none.

    Raises:
        ModelError: they do not fit the queries.
    """
    if "parts" not in arrays:
        whole = csr_array(vectors[:, :words])
        return EncodedParts(
            whole.indices.astype(np.int32),
            whole.indptr.astype(np.int64),
            np.ones(vectors.shape[0], np.int32),
        )
    parts = EncodedParts(
        arrays["part_columns"].astype(np.int32),
        arrays["part_starts"].astype(np.int64),
        arrays["parts"].astype(np.int32),
    )
    if not parts.fits(vectors.shape[0], words):
        raise ModelError("the parts of the model's queries do not fit its words; fit it again")
    return parts
