"""The parts of a query that each ask for something."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from dtdr.predict.arguments.hashing import Hashes, feature, features
from dtdr.text.encoders.lexical import words

MOST_PARTS = 48
"""Parts of a query that are told apart; what follows belongs to the last."""
_MOST_CHARACTERS = 20_000
_SENTENCES = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")
_JOINTS = re.compile(
    r"(?:[,;，、]\s*(?:(?:and|then|also)\s+)*|\s+and\s+(?:(?:then|also)\s+)*|\s+then\s+)"
    r"(?=(\w[\w'’]*))",
    re.IGNORECASE,
)
_COMMON = 0.03
"""Share of the queries that have a sentence with a word in front, from which on the word is taken
to begin parts within sentences too."""
_LEAST_WORDS = 4
"""A shorter part goes with the next."""


class QuerySplitter:
    """Splits queries at sentences, and within them where a word that begins sentences follows.

    "Mail Ann, and create a note" has two parts where demonstrations begin sentences with "create".

    Args:
        starts: hashes of such words, rising.
    """

    def __init__(self, starts: Hashes) -> None:
        self.starts = starts
        self._known = frozenset(starts.tolist())

    @classmethod
    def fit(cls, queries: Sequence[str]) -> QuerySplitter:
        """Learn which words begin sentences."""
        counts: Counter[str] = Counter()
        for query in queries:
            first = [words(sentence[:200])[:1] for sentence in _sentences(query)]
            counts.update({word for one in first for word in one})
        common = [word for word, count in counts.items() if count >= _COMMON * len(queries)]
        return cls(np.unique(features(common)))

    def split(self, query: str) -> list[str]:
        """At least one part; the text between them is left out."""
        parts: list[str] = []
        for sentence in _sentences(query):
            begin = 0
            for joint in _JOINTS.finditer(sentence):
                is_start = feature(joint[1].lower()) in self._known
                if is_start and len(words(sentence[begin : joint.start()])) >= _LEAST_WORDS:
                    parts.append(sentence[begin : joint.start()])
                    begin = joint.end()
            parts.append(sentence[begin:])
        if len(parts) > MOST_PARTS:
            parts[MOST_PARTS - 1 :] = [" ".join(parts[MOST_PARTS - 1 :])]
        return parts or [""]


def _sentences(query: str) -> list[str]:
    return [one for one in _SENTENCES.split(query[:_MOST_CHARACTERS]) if one.strip()]
