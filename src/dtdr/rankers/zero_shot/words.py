"""Words as the scorer reads them: stems as hashes, clauses of a query, words of like meaning."""

from __future__ import annotations

import json
from importlib import resources
from itertools import pairwise, permutations

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.text import (
    AFTER_JOINT,
    BEGINS_SENTENCE,
    IS_LETTERS,
    MAX_WORDS,
    Hashes,
    QueryText,
)
from dtdr.rankers.sorted_keys import find_sorted
from dtdr.text.words import hash_stem

_MOST_CLAUSES = 40

_WORDS = json.loads(resources.files(__package__).joinpath("words.json").read_text("utf-8"))
"""Words that no tool is about, and sets of words that say the same of tools."""
READING, WRITING = str(_WORDS["reading"]), str(_WORDS["writing"])
"""Verbs in names of tools that only read, and that change something."""


def hash_words(text: str) -> Hashes:
    """Distinct hashes of the stems of some words, sorted."""
    return np.unique(np.array(list(map(hash_stem, text.split())), np.uint32))


STOP_STEMS = hash_words(_WORDS["stop_words"])


def _pair_synonyms() -> npt.NDArray[np.uint32]:
    sets = map(hash_words, _WORDS["synonyms"])
    pairs = {pair for words in sets for pair in permutations(words.tolist(), 2)}
    return np.array(sorted(pairs), np.uint32).T


SYNONYMS = _pair_synonyms()
"""Shape (2, pairs): a stem, sorted, and one that means about the same."""


def clauses_of(text: QueryText) -> list[Hashes]:
    """The stems of each clause of a query, without stop words; at least one clause.

    A clause begins after a full stop, a comma, "and" or "then". One of a single word belongs to
    the clause before it: "buy apples, pears and milk" asks for one thing.
    """
    stems, flags = text.stems[:MAX_WORDS], text.flags[:MAX_WORDS]
    begins = (flags & (BEGINS_SENTENCE | AFTER_JOINT)) > 0
    _, is_stop = find_sorted(STOP_STEMS, stems)
    kept = ((flags & IS_LETTERS) > 0) & ~is_stop
    stems, clause_at = stems[kept], np.cumsum(begins)[kept]
    ends = [*(np.flatnonzero(clause_at[1:] != clause_at[:-1]) + 1).tolist(), len(stems)]
    clauses: list[Hashes] = []
    for begin, end in pairwise([0, *ends]):
        clause = stems[begin:end]
        if clauses and (len(clause) < 2 or len(clauses[-1]) < 2):
            clauses[-1] = np.concatenate([clauses[-1], clause])
        else:
            clauses.append(clause)
    return clauses[:_MOST_CLAUSES]
