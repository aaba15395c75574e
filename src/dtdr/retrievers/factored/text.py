"""What is read off a query: its shape, its countable cues, and its word stems."""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dtdr.encoders.base import MAX_CHARACTERS
from dtdr.encoders.lexical import LexicalEncoder, normalise

# A quotation longer than this is no title, name or address; the bound keeps matching linear.
_QUOTED = re.compile(
    r"\"[^\"]{0,500}\"|“[^”]{0,500}”|(?<!\w)'[^']{0,500}'(?!\w)",
)
_FILE = re.compile(r"\.\w{2,5}$")
_TOKENS = re.compile(r"\w+|[^\w\s]")
_LETTERS = re.compile(r"[^\W\d_]+")
_ENDINGS = ("ings", "ing", "ies", "es", "s", "ed")
_ONE_HOT = 6
"""Counts 0 to 4, and 5 or more."""
CUES = 16 + 5 * _ONE_HOT
"""Number of cues."""


def tokens(text: str) -> list[str]:
    """Words and marks of a text as they are written."""
    return _TOKENS.findall(text[:MAX_CHARACTERS])


def shape_words(text: str) -> list[str]:
    """A text with what varies between two requests of one kind replaced.

    Quotations become QSTR, or QFILE where they end like a file name; numbers NUM; runs of
    capitalised words inside a sentence CAP. All other words are in lower case.
    """
    return _shaped(text[:MAX_CHARACTERS])


# Reading a query asks twice in a row.
@lru_cache(maxsize=8)
def _shaped(text: str) -> list[str]:
    marked = text
    if any(mark in text for mark in "\"'“"):
        marked = _QUOTED.sub(
            lambda found: " QFILE " if _FILE.search(found.group()[1:-1]) else " QSTR ", text
        )
    shape: list[str] = []
    before = "."
    for word in _TOKENS.findall(marked):
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


def cues(text: str) -> npt.NDArray[np.float32]:
    """How much there is in a query; shape (``CUES``,).

    Eight counts (quotations, capitalised words, runs of them, commas, "and", full stops, numbers,
    length), each on a logarithmic and on a linear scale, five of them one-hot too: how many things
    are named says how many calls are to be made.
    """
    text = text[:MAX_CHARACTERS]
    found = tokens(text)
    shape = shape_words(text)
    quoted = shape.count("QSTR") + shape.count("QFILE")
    runs = shape.count("CAP")
    commas, stops = text.count(","), text.count(".")
    conjunctions = sum(len(word) == 3 and word.lower() == "and" for word in found)
    counts = (
        quoted,
        sum([word[0].isupper() for word in found]),
        runs,
        commas,
        conjunctions,
        stops,
        sum([word[0].isdigit() for word in found]),
        len(found) / 8,
    )
    values = [math.log1p(count) / 2 for count in counts]
    # A text of a thousand commas is no ten times more than one of a hundred.
    values += [min(count, 100) / 8 for count in counts]
    for count in (quoted, runs, commas, conjunctions, stops):
        values += [0.5 * (min(count, _ONE_HOT - 1) == number) for number in range(_ONE_HOT)]
    return np.array(values, np.float32)


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
        shape = shape_words(text)
        return [
            " ".join(shape[start : start + length])
            for length in (1, 2, 3)
            for start in range(len(shape) - length + 1)
        ]


class StemEncoder(LexicalEncoder):
    """Word stems by TF-IDF, for comparing a query with descriptions of tools."""

    def _terms(self, text: str) -> list[str]:
        return stems(text[:MAX_CHARACTERS])
