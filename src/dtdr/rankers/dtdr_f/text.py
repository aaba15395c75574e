"""A query taken apart: hashes of its words, its surface features, its sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dtdr.rankers.dtdr_f.ragged import Ragged
from dtdr.text.encoders.base import MAX_CHARACTERS
from dtdr.text.words import hash_stem, hash_word, normalise
from dtdr.text.words import words as words_of

Hashes = npt.NDArray[np.uint32]

# A quotation longer than this is not a title, name or address; the bound keeps matching linear.
_QUOTED = re.compile(r"\"[^\"]{0,500}\"|“[^”]{0,500}”|(?<!\w)'[^']{0,500}'(?!\w)")
_TOKENS = re.compile(r"\w+|[^\w\s]")
_LETTERS = re.compile(r"[^\W\d_]+")
_STOPS = frozenset(".!?;。！？；")
_JOINTS = frozenset((",", "，", "、", ";", "and", "then", "also"))
_BREAKS = _STOPS | _JOINTS
_ONE_HOT = 6
"""Counts 0 to 4, and 5 or more."""
_ONE_HOTS = [[0.5 * (at == count) for at in range(_ONE_HOT)] for count in range(_ONE_HOT)]
SURFACE_FEATURES = 16 + 5 * _ONE_HOT
IS_LETTERS, BEGINS_SENTENCE, AFTER_JOINT = 1, 2, 4
"""Flags of a word: only letters; first of a sentence; after a comma, "and" or "then"."""
_LEAST_WORDS, _MOST_PARTS = 4, 48
"""Least words of a part before another begins within its sentence; most parts of a query."""
MAX_WORDS = 400
"""Words of a query that are aligned; the longest query of four public sets has 291."""
_OTHER_WORD = np.uint32(0x5BD1E995)


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query as 32-bit hashes (CRC-32) of its words.

    Attributes:
        words: shape (words,): of the words as ``text.words.words`` finds them.
        stems: shape (words,): of the words without their endings.
        flags: shape (words,): of each word.
        others: of the stems of runs of letters within words that contain something else too.
        surface: shape (``SURFACE_FEATURES``,), and the vector of a further encoder if any.
    """

    words: Hashes
    stems: Hashes
    flags: npt.NDArray[np.uint8]
    others: Hashes
    surface: npt.NDArray[np.float32]

    @classmethod
    def of(cls, text: str) -> QueryText:
        """Read a text; only its beginning where it is long."""
        text = text[:MAX_CHARACTERS]
        tokens = _TOKENS.findall(text)
        # Outside ASCII a word in lower case can fall apart otherwise than as it is written.
        words = list(map(str.lower, tokens)) if text.isascii() else words_of(text)
        read = list(map(_read_word, words))
        flags = [item[2] for item in read]
        _mark_parts(text, words, tokens if len(tokens) == len(words) else words, flags)
        return cls(
            np.array([item[0] for item in read], np.uint32),
            np.array([item[1] for item in read], np.uint32),
            np.array(flags, np.uint8),
            np.array([other for item in read for other in item[3]], np.uint32),
            _surface_features(text, tokens, words),
        )

    def parts(self, first: frozenset[int]) -> list[int]:
        """The first word of each part of the query, sorted; 0 is always one.

        "Mail Ann, and create a note." has two parts if sentences of demonstrations begin with
        "create".

        Args:
            first: hashes of words that begin sentences.
        """
        begins, flags = [0], self.flags[:MAX_WORDS]
        for at in (flags & (BEGINS_SENTENCE | AFTER_JOINT)).nonzero()[0].tolist():
            starts = flags[at] & BEGINS_SENTENCE or (
                at - begins[-1] >= _LEAST_WORDS and int(self.words[at]) in first
            )
            if starts and at:
                begins.append(at)
        return begins[:_MOST_PARTS]

    def reworded(self, rng: np.random.Generator, share: float) -> QueryText:
        """The query with about this share of its words replaced by unknown words."""
        words = np.unique(self.words[(self.flags & IS_LETTERS) > 0])
        gone = words[rng.random(len(words)) < share]
        is_gone = np.isin(self.words, gone)
        return replace(
            self,
            words=np.where(is_gone, self.words ^ _OTHER_WORD, self.words),
            stems=np.where(is_gone, self.stems ^ _OTHER_WORD, self.stems),
        )


@lru_cache(maxsize=1 << 15)
def _read_word(word: str) -> tuple[int, int, int, tuple[int, ...]]:
    """Hashes of a word and of its stem, its flag, and hashes of stems within it."""
    is_letters = word.isalpha()
    within = [] if is_letters else [part for part in _LETTERS.findall(word) if len(part) > 1]
    return hash_word(word), hash_stem(word), IS_LETTERS * is_letters, tuple(map(hash_stem, within))


def stems_of(texts: Iterable[str]) -> Ragged:
    """Hashes of the stems of the words of letters of each text."""
    listed = (_LETTERS.findall(normalise(text[:MAX_CHARACTERS])) for text in texts)
    stems = [[_read_word(word)[1] for word in words if len(word) > 1] for words in listed]
    return Ragged.of(stems, np.uint32)


def _mark_parts(text: str, words: list[str], tokens: list[str], flags: list[int]) -> None:
    """Flag the words that may begin a part, in place."""
    for at, (before, word) in enumerate(pairwise(words), 1):
        if before not in _BREAKS or word in _STOPS:
            continue
        if before not in _STOPS:
            flags[at] |= AFTER_JOINT
        elif not before.isascii() or f"{before}{tokens[at]}" not in text:
            # A full stop within a file name, a number or an address ends no sentence.
            flags[at] |= BEGINS_SENTENCE


def _count_quoted(text: str, tokens: list[str]) -> tuple[int, int]:
    """Quotations of a text, and runs of capitalised words inside its sentences elsewhere."""
    quoted = 0
    if '"' in text or "'" in text or "“" in text:
        # A small letter stands for a quotation: no name, and words around it are apart.
        rest, quoted = _QUOTED.subn(" q ", text)
        tokens = _TOKENS.findall(rest)
    runs, before, is_name = 0, ".", False
    for word in tokens:
        was_name = is_name
        is_name = word[0].isupper() and before not in ".?!:"
        runs += is_name and not was_name
        before = word
    return quoted, runs


def _surface_features(text: str, tokens: list[str], words: list[str]) -> npt.NDArray[np.float32]:
    """How much there is in a query; shape (``SURFACE_FEATURES``,).

    Eight counts (quotations, capitalised words, runs of them, commas, "and", full stops, numbers,
    length), each on a logarithmic and on a linear scale, five of them one-hot too: how many things
    are named says how many calls are to be made.
    """
    quoted, runs = _count_quoted(text, tokens)
    commas, stops = text.count(","), text.count(".")
    conjunctions = words.count("and")
    firsts = [word[0] for word in tokens]
    counts = (
        quoted,
        sum(map(str.isupper, firsts)),
        runs,
        commas,
        conjunctions,
        stops,
        sum(map(str.isdigit, firsts)),
        len(tokens) / 8,
    )
    values = [math.log1p(count) / 2 for count in counts]
    # A text of a thousand commas is no ten times more than one of a hundred.
    values += [min(count, 100) / 8 for count in counts]
    for count in (quoted, runs, commas, conjunctions, stops):
        values += _ONE_HOTS[min(count, _ONE_HOT - 1)]
    return np.array(values, np.float32)
