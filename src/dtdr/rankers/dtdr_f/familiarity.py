"""An out-of-distribution score of queries: how many of their phrases the training queries have."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from itertools import chain

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.ragged import Ragged, count_rows
from dtdr.rankers.dtdr_f.text import Hashes
from dtdr.rankers.nn import Matrix
from dtdr.rankers.out_of_distribution import threshold_of
from dtdr.rankers.sorted_keys import find_sorted
from dtdr.rankers.vectors import dense, unit
from dtdr.text.encoders.base import Encoder
from dtdr.text.words import hash_word
from dtdr.text.words import words as words_of

_LEFT_OUT = 5_000
"""Queries that are scored without themselves to set the threshold; more would not move it."""
_MOST_VECTORS = 2_000
"""Queries whose vectors are compared for it."""
HIGHEST_THRESHOLD = 0.6
"""A query is familiar with this share of known n-grams, however uniform the demonstrations: where
they come from templates, the threshold would be .96 and one changed word too much. On the five
validation sets the threshold is .37 to .63 without it."""
_SAME_LANGUAGE = 0.3
"""Share of the reference's words that demonstrations in its language contain: .49 to .82 in six."""
_START, _END = 0x3243F6A8, 0x885A308D
_FIRST, _SECOND, _THIRD = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D)


def combine(first: Hashes, second: Hashes) -> Hashes:
    """Hashes of pairs of neighbours."""
    return first * _FIRST + second * _SECOND


def hash_ngrams(words: Hashes, starts: npt.NDArray[np.int64]) -> Hashes:
    """Hashes of the pairs and triples of neighbouring words of queries, one after the other.

    Args:
        words: shape (words of all,): CRC-32 of each word.
        starts: shape (queries + 1,): where the words of each query begin, and the last ones end.
    """
    queries = len(starts) - 1
    places = np.stack([starts[:-1], starts[1:]], axis=1).ravel()
    framed = np.insert(words, places, np.tile(np.array([_START, _END], np.uint32), queries))
    owner = np.repeat(np.arange(queries), np.diff(starts) + 2)
    pairs, triples = _ngrams(framed)
    return np.concatenate((pairs[owner[:-1] == owner[1:]], triples[owner[:-2] == owner[2:]]))


def known_share(known: Hashes, words: Hashes) -> float:
    """Mean of the share of pairs of words and of the share of triples that are known.

    The start and the end of the text count as words, so that there is always one pair. Each n-gram
    counts as its 32-bit hash: with a million n-grams an unknown one is taken for known once in
    4,000 times. Chosen on validation parts of five sets against the other sets' queries and
    gibberish; lowest and mean AUROC .984 and .999; pairs alone .979 and .998, single words .913
    and .980, cosine with the nearest five queries .957 and .991.
    """
    return _share(known, _frame(words))


def fit_threshold(
    words: Ragged,
    groups: npt.NDArray[np.uint32],
    vectors: Matrix,
    encoder: Encoder | None = None,
) -> float:
    """The score below which a query is unlike the training queries.

    The highest score that 98 % of the training queries reach, each without those of its group, and
    the best of ``generic_queries.txt``, none of which has to be familiar: what scores above them
    may say in other words what demonstrations say.

    Args:
        words: hashes of the words of each query.
        groups: hash of the group of each query; 0 counts as a separate group.
        vectors: shape (queries, n): what the encoder gives of the queries, of length 1.
        encoder: trained already, whose vectors half of the score is read from; or None.
    """
    distinct = {words[row].tobytes(): row for row in range(len(words))}  # equal ones count once
    rows = np.array(list(distinct.values()))
    names = np.where(groups[rows] > 0, groups[rows], (rows + 1) << 32)
    _, owner = np.unique(names, return_inverse=True)
    ngrams = [_frame(words[row]) for row in distinct.values()]
    ngram_owner = np.repeat(owner, [len(pairs) + len(triples) for pairs, triples in ngrams])
    known, counts = count_rows(np.concatenate([*chain.from_iterable(ngrams)]), ngram_owner)
    shared = known[counts > 1]
    step = -(-len(ngrams) // (_LEFT_OUT if encoder is None else _MOST_VECTORS))
    scores = np.array([_share(shared, pair) for pair in ngrams[::step]])
    reference = [np.array(list(map(hash_word, words_of(text))), np.uint32) for text in _reference()]
    made_up = np.array([_share(known, _frame(query)) for query in reference])
    if encoder is not None:
        kept, query_owner = vectors[rows][::step], owner[::step]
        similar = kept @ kept.T
        similar[query_owner[:, None] == query_owner] = 0
        scores = (scores + similar.max(axis=1).clip(0)) / 2
        said = unit(dense(encoder.encode(list(_reference()))))
        made_up = (made_up + (said @ kept.T).max(axis=1)) / 2
    threshold = threshold_of(scores) if owner.max() > 0 else None
    highest = HIGHEST_THRESHOLD
    if np.isin(np.concatenate(reference), words.values).mean() >= _SAME_LANGUAGE:
        highest = min(highest, float(made_up.max()))
    # A query without any known n-gram is unlike the demonstrations, however few they are.
    return max(min(threshold or 0.0, highest), float(np.finfo(np.float32).tiny))


@lru_cache(maxsize=1)
def _reference() -> tuple[str, ...]:
    text = resources.files(__package__).joinpath("generic_queries.txt").read_text("utf-8")
    return tuple(text.splitlines())


def _ngrams(words: Hashes) -> tuple[Hashes, Hashes]:
    """Hashes of the pairs of neighbouring words, and of the triples."""
    pairs = combine(words[:-1], words[1:])
    return pairs, pairs[:-1] * _THIRD + words[2:]


def _frame(words: Hashes) -> tuple[Hashes, Hashes]:
    """``_ngrams`` of one text, whose start and end are words."""
    framed = np.empty(len(words) + 2, np.uint32)
    framed[0], framed[1:-1], framed[-1] = _START, words, _END
    return _ngrams(framed)


def _share(known: Hashes, ngrams: tuple[Hashes, Hashes]) -> float:
    total = 0.0
    for hashes in ngrams:
        _, hits = find_sorted(known, hashes)
        total += int(np.count_nonzero(hits)) / max(len(hashes), 1)
    return total / 2
