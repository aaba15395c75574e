"""A query taken apart: its words, its shape, its surface features, and its word stems."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dtdr.encoders.base import MAX_CHARACTERS
from dtdr.encoders.lexical import LexicalEncoder, normalise
from dtdr.encoders.lexical import words as words_of

# A quotation longer than this is not a title, name or address; the bound keeps matching linear.
QUOTED = re.compile(
    r"\"[^\"]{0,500}\"|“[^”]{0,500}”|(?<!\w)'[^']{0,500}'(?!\w)",
)
_FILE = re.compile(r"\.\w{2,5}$")
_TOKENS = re.compile(r"\w+|[^\w\s]")
_LETTERS = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"\w+")
_JOINTS = re.compile(
    r"(?<=[.!?;:])\s+|(?<=[。！？；、，])|,\s+(?:(?:and|then|also)\s+)*|\s+and\s+(?:(?:then|also)\s+)*"
    r"|\s+then\s+"
)
_LEAST_WORDS, _MOST_CLAUSES = 3, 48
_ENDINGS = ("ings", "ing", "ies", "es", "s", "ed")
_ONE_HOT = 6
"""Counts 0 to 4, and 5 or more."""
_ONE_HOTS = [[0.5 * (number == count) for number in range(_ONE_HOT)] for count in range(_ONE_HOT)]
SURFACE_FEATURES = 16 + 5 * _ONE_HOT
"""Number of surface features."""


@dataclass(frozen=True, slots=True)
class QueryText:
    """A text taken apart once for all who look at it; only its beginning where it is long.

    Attributes:
        text: as it is written.
        tokens: words and marks as they are written.
        words: as ``encoders.lexical.words`` finds them.
        shape: what ``shape_words`` gives.
    """

    text: str
    tokens: list[str]
    words: list[str]
    shape: list[str]

    @classmethod
    def of(cls, text: str) -> QueryText:
        """Read a text."""
        text = text[:MAX_CHARACTERS]
        tokens = _TOKENS.findall(text)
        # Outside ASCII a word in lower case can fall apart otherwise than as it is written.
        words = list(map(str.lower, tokens)) if text.isascii() else words_of(text)
        return cls(text, tokens, words, _mark_shapes(text, tokens))

    def parts(self) -> list[str]:
        """Stems of the runs of letters within words that hold something else too."""
        return [
            stem(part)
            for word in self.words
            if len(word) > 1 and not word.isalpha()
            for part in _LETTERS.findall(word)
            if len(part) > 1
        ]


def shape_words(text: str) -> list[str]:
    """A text with what varies between two requests of one kind replaced.

    Quotations become QSTR, or QFILE where they end like a file name; numbers NUM; runs of
    capitalised words inside a sentence CAP. All other words are in lower case.
    """
    return QueryText.of(text).shape


def shape_terms(shape: list[str]) -> list[str]:
    """One to three neighbouring words of a shape."""
    pairs = [f"{one} {two}" for one, two in pairwise(shape)]
    triples = [f"{pair} {three}" for pair, three in zip(pairs, shape[2:], strict=False)]
    return shape + pairs + triples


def _mark_shapes(text: str, tokens: list[str]) -> list[str]:
    if '"' in text or "'" in text or "“" in text:
        marked = QUOTED.sub(
            lambda match: " QFILE " if _FILE.search(match.group()[1:-1]) else " QSTR ", text
        )
        tokens = _TOKENS.findall(marked)
    shape: list[str] = []
    before = "."
    for word in tokens:
        if word.islower() or word in ("QSTR", "QFILE"):
            shape.append(word)
        elif word[0].isdigit():
            shape.append("NUM")
        elif word[0].isupper() and before not in ".?!:":
            if not shape or shape[-1] != "CAP":
                shape.append("CAP")
        else:
            shape.append(word.lower())
        before = word
    return shape


def surface_features(query: QueryText) -> npt.NDArray[np.float32]:
    """How much there is in a query; shape (``SURFACE_FEATURES``,).

    Eight counts (quotations, capitalised words, runs of them, commas, "and", full stops, numbers,
    length), each on a logarithmic and on a linear scale, five of them one-hot too: how many things
    are named says how many calls are to be made.
    """
    text, tokens, shape = query.text, query.tokens, query.shape
    quoted = shape.count("QSTR") + shape.count("QFILE")
    runs = shape.count("CAP")
    commas, stops = text.count(","), text.count(".")
    conjunctions = query.words.count("and")
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


def split_clauses(text: str) -> list[str]:
    """The clauses of a text, each of some words; at least one, and at most 48.

    Cut at punctuation and at "and" and "then"; a shorter piece goes with the next.
    """
    clauses: list[str] = []
    rest = ""
    for piece in _JOINTS.split(text[:MAX_CHARACTERS]):
        rest = f"{rest} {piece}".strip()
        if len(_WORD.findall(rest)) >= _LEAST_WORDS and len(clauses) < _MOST_CLAUSES:
            clauses.append(rest)
            rest = ""
    if rest and clauses:
        clauses[-1] = f"{clauses[-1]} {rest}"
    return clauses or [rest]


def stems(text: str) -> list[str]:
    """Words of letters without their most common English endings."""
    return [stem(word) for word in _LETTERS.findall(normalise(text)) if len(word) > 1]


@lru_cache(maxsize=1 << 15)
def stem(word: str) -> str:
    """A word without its ending, where at least three letters stay."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


class ShapeEncoder(LexicalEncoder):
    """One to three neighbouring words of the shape of a text, by TF-IDF."""

    def _terms(self, text: str) -> list[str]:
        return shape_terms(shape_words(text))


class StemEncoder(LexicalEncoder):
    """Word stems by TF-IDF, for comparing a query with descriptions of tools."""

    def _terms(self, text: str) -> list[str]:
        return stems(text[:MAX_CHARACTERS])
