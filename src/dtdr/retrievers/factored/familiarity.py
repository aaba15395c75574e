"""An out-of-distribution score of queries: how many of their phrases the training queries hold."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.encoders.base import MAX_CHARACTERS, Encoder
from dtdr.encoders.lexical import words
from dtdr.errors import ModelError
from dtdr.retrievers.nn import Matrix
from dtdr.retrievers.out_of_distribution import threshold_of
from dtdr.retrievers.vectors import dense, unit

Hashes = npt.NDArray[np.uint32]
Runs = tuple[Hashes, int]

_LEFT_OUT = 5_000
"""Queries that are scored without themselves to set the threshold; more would not move it."""
HIGHEST_THRESHOLD = 0.6
"""A query is familiar with this share of known runs, however uniform the demonstrations: where
they come from templates, the threshold would be .96 and one changed word too much. On the five
validation sets the threshold is .37 to .63 without it."""
_MOST_VECTORS = 2_000
"""Queries whose vectors are compared to set the threshold: as many as a model keeps."""
_REFERENCE_QUERIES, _REFERENCE_SEED = 400, 7
"""Queries of a made-up assistant, none of which has to be familiar: what scores above the best of
them may say in other words what demonstrations say. Of requests to a hotel's agent in phrasings
that it never saw, 94 % were unfamiliar by the demonstrations' own queries alone, 33 % with this;
others than those of ``benchmarks/familiarity.py``."""
_SAME_LANGUAGE = 0.3
"""Share of the reference's words that demonstrations in its language hold: .49 to .82 in six."""
_START, _END = 0x3243F6A8, 0x885A308D
_FIRST, _SECOND, _THIRD = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D)


class Familiarity:
    """Share of a query's pairs and triples of neighbouring words that are known from training.

    Each run of words counts as its 32-bit hash: what users wrote is not kept, and with a million
    runs an unknown one is taken for known once in 4,000 times.

    The score was chosen on validation parts of the training sides of TinyAgent, T-Eval, UltraTool
    and TRAJECT (random and by sequence), against the other sets' training queries and gibberish;
    lowest and mean AUROC: .984 and .999; pairs alone .979 and .998, single words .913 and .980;
    smoothed likelihood of pairs .979 and .996, of characters .654 and .966; cosine with the
    nearest five queries .957 and .991. Runs of four words too: .985 and .999. Learned from 100
    queries: .957 and .992, 10 queries: .911 and .974.

    With an encoder, the score is the mean of that share and of the cosine with the nearest training
    query, so that other words with the same meaning are familiar. With MiniLM, of 58 queries of
    the training sides that were written anew by hand, above 98 % of the other sets' queries:
    TinyAgent .62 by the share alone, .91 with half and .91 by the cosine alone; T-Eval .08, .35 and
    .46, but the cosine alone only .73 of T-Eval's queries as they are (.99 by the share).

    Attributes:
        known: shape (n,), rising: hashes of the runs of words in the training queries.
        threshold: queries that score below are unlike the training queries.
        usual: queries that score below are worded otherwise than the training queries, of which
            2 % do, each without itself.
        uses_vectors: whether half of the score is the similarity to the nearest training query.
    """

    def __init__(
        self, known: Hashes, threshold: float, usual: float, *, uses_vectors: bool = False
    ) -> None:
        self.known = known
        self.threshold = threshold
        self.usual = usual
        self.uses_vectors = uses_vectors

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        groups: Sequence[str] | None = None,
        encoder: Encoder | None = None,
    ) -> Self:
        """Learn the runs of words of queries, and the threshold from each query without itself.

        Args:
            texts: the training queries; equal ones count once.
            groups: one a query: whose queries are left out together, where new queries will be of
                new groups. An empty name is a group of its own.
            encoder: trained already, whose vectors half of the score is to be read from; or None.
        """
        members: dict[str, list[str]] = {}
        for number, text in enumerate(texts):
            members.setdefault((groups[number] if groups else "") or f"\0{text}", []).append(text)
        runs = [
            [_runs(_words(text)) for text in dict.fromkeys(group)] for group in members.values()
        ]
        owned = [np.unique(np.concatenate([hashes for hashes, _ in group])) for group in runs]
        known, counts = np.unique(np.concatenate(owned), return_counts=True)
        shared = known[counts > 1]
        step = -(-len(runs) // (_LEFT_OUT if encoder is None else _MOST_VECTORS))
        scores = np.array([_share(shared, run) for group in runs[::step] for run in group])
        vectors: Matrix | None = None
        if encoder is not None:
            judged = [list(dict.fromkeys(group)) for group in list(members.values())[::step]]
            vectors = unit(dense(encoder.encode([text for group in judged for text in group])))
            scores = (scores + _nearest_others(vectors, list(map(len, judged)))) / 2
        threshold = threshold_of(scores) if len(runs) > 1 else None
        # A query without any known run is unlike the demonstrations, however few they are.
        lowest = float(np.finfo(np.float32).tiny)
        highest = HIGHEST_THRESHOLD
        reference = _reference()
        vocabulary = {word for text in texts[:_LEFT_OUT] for word in _words(text)}
        held = [word in vocabulary for query in reference for word in query]
        if sum(held) >= _SAME_LANGUAGE * len(held):
            made_up = np.array([_share(known, _runs(query)) for query in reference])
            if encoder is not None and vectors is not None:
                said = dense(encoder.encode(list(_reference_texts())))
                made_up = (made_up + (unit(said) @ vectors.T).max(axis=1)) / 2
            highest = min(highest, float(made_up.max()))
        usual = min(max(threshold or 0.0, lowest), HIGHEST_THRESHOLD)
        limit = min(usual, max(highest, lowest))
        return cls(known, limit, usual, uses_vectors=encoder is not None)

    def score(self, query: str, similarity: float = 0.0) -> float:
        """Familiarity of a query, from 0 to 1; see ``score_words``."""
        return self.score_words(_words(query), similarity)

    def score_words(self, query: Sequence[str], similarity: float = 0.0) -> float:
        """Familiarity of a query, from 0 to 1.

        Args:
            query: its words, as ``encoders.lexical.words`` finds them.
            similarity: cosine with the nearest training query, where ``uses_vectors``.
        """
        share = _share(self.known, _runs(query))
        return (share + max(similarity, 0.0)) / 2 if self.uses_vectors else share

    def with_known(self, known: Hashes) -> Familiarity:
        """With further runs of words, as ``phrase_hashes`` gives them; the threshold stays."""
        both = np.union1d(self.known, known)
        return Familiarity(both, self.threshold, self.usual, uses_vectors=self.uses_vectors)

    def with_queries(self, texts: Sequence[str]) -> Familiarity:
        """With further training queries; the threshold stays."""
        if not texts:
            return self
        return self.with_known(np.concatenate(list(map(phrase_hashes, texts))))

    # -- saving --------------------------------------------------------------------------------

    def arrays(self, prefix: str = "familiarity.") -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {
            f"{prefix}known": self.known,
            f"{prefix}threshold": np.array([self.threshold]),
            f"{prefix}usual": np.array([self.usual]),
            **({f"{prefix}uses_vectors": np.ones(1, np.uint8)} if self.uses_vectors else {}),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], prefix: str = "familiarity.") -> Self:
        """What ``arrays`` gave.

        Raises:
            KeyError: an array is missing.
            ModelError: an array has another type or shape.
        """
        known, threshold = arrays[f"{prefix}known"], arrays[f"{prefix}threshold"]
        if known.ndim != 1 or known.dtype != np.uint32 or threshold.shape != (1,):
            raise ModelError("the arrays of familiarity are damaged; fit the model again")
        # Models of earlier versions read words alone, whatever their encoder, and have no rankers
        # of other words.
        usual = float(arrays[f"{prefix}usual"][0]) if f"{prefix}usual" in arrays else 0.0
        vectors = f"{prefix}uses_vectors" in arrays
        return cls(known, float(threshold[0]), usual, uses_vectors=vectors)


@lru_cache(maxsize=1)
def _reference_texts() -> tuple[str, ...]:
    from dtdr.datasets.synthetic import generate

    drawn = generate(_REFERENCE_QUERIES, seed=_REFERENCE_SEED)
    return tuple(demonstration.query for demonstration in drawn)


@lru_cache(maxsize=1)
def _reference() -> tuple[list[str], ...]:
    return tuple(map(_words, _reference_texts()))


def _nearest_others(vectors: Matrix, sizes: Sequence[int]) -> npt.NDArray[np.float64]:
    """Cosine of each row with the nearest of another group; rows stand group after group."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    similar = vectors @ vectors.T
    similar[owner[:, None] == owner] = 0
    nearest: npt.NDArray[np.float64] = similar.max(axis=1).clip(0).astype(np.float64)
    return nearest


def phrase_hashes(text: str) -> Hashes:
    """Hashes of the pairs and triples of neighbouring words of a query."""
    return _runs(_words(text))[0]


def pair_hashes(query: Sequence[str]) -> Hashes:
    """Hashes of the pairs of neighbours among these words, one fewer than there are words."""
    hashes, pairs = _runs(query)
    return hashes[1 : pairs - 1]


def _words(text: str) -> list[str]:
    return words(text[:MAX_CHARACTERS])


def _runs(query: Sequence[str]) -> Runs:
    """Hashes of the pairs of words and then of the triples, and how many pairs there are.

    The start and the end of the text count as words, so that there is always one pair.
    """
    # No word holds a space; encoding them at once takes a third of the time.
    encoded = " ".join(query).encode("utf-8", "surrogatepass").split()
    hashes = map(zlib.crc32, encoded)
    one = np.array([_START, *hashes, _END], np.uint32)
    pairs = one[:-1] * _FIRST + one[1:] * _SECOND
    triples = pairs[:-1] * _THIRD + one[2:]
    return np.concatenate((pairs, triples)), len(pairs)


def hash_runs(words: Hashes, starts: npt.NDArray[np.int64]) -> Hashes:
    """What ``phrase_hashes`` gives of many queries, one after the other, in another order.

    Args:
        words: shape (words of all,): CRC-32 of each word.
        starts: shape (queries + 1,): where the words of each query begin, and the last ones end.
    """
    count = len(starts) - 1
    one = np.empty(len(words) + 2 * count, np.uint32)
    first = starts[:-1] + 2 * np.arange(count)
    last = starts[1:] + 2 * np.arange(count) + 1
    inner = np.ones(len(one), np.bool_)
    inner[first] = inner[last] = False
    one[inner], one[first], one[last] = words, _START, _END
    pairs = one[:-1] * _FIRST + one[1:] * _SECOND
    triples = pairs[:-1] * _THIRD + one[2:]
    inner[first] = True  # now: where a pair begins
    has_triple = inner.copy()
    has_triple[last - 1] = False
    return np.concatenate((pairs[inner[:-1]], triples[has_triple[:-2]]))


def _share(known: Hashes, runs: Runs) -> float:
    """Mean of the share of pairs and of the share of triples that are known."""
    if not len(known):
        return 0.0
    hashes, pairs = runs
    hits = known.take(known.searchsorted(hashes), mode="clip") == hashes
    total = int(np.count_nonzero(hits[:pairs])) / pairs
    if len(hashes) > pairs:
        total += int(np.count_nonzero(hits[pairs:])) / (len(hashes) - pairs)
    return total / 2
