"""Words of texts and of names, their stems and their hashes.

Two stemmers: ``strip_ending`` is for the words of queries and tools, where it matters that "mail"
and "mailbox" differ; ``prefix_stem`` is for names of fields and for values, where "address" and
"addressee" say the same.
"""

from __future__ import annotations

import re
import unicodedata
from zlib import crc32

# Vowel signs and accents: ``\w`` leaves them out, which would cut Hindi or Thai words apart.
_MARKS = "".join(
    chr(code) for code in range(0x300, 0x2000) if unicodedata.category(chr(code)) in ("Mn", "Mc")
)
# Scripts written without spaces: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han. Each of their
# characters is a word, so that pairs of words are pairs of characters.
_SPACELESS = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ec0-\u0ec6\u0f40-\u0f6c"
    "\u1000-\u102a\u1780-\u17b3\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
TOKEN_PATTERN = (
    f"[{_SPACELESS}][{_MARKS}]*"
    rf"|[^\W{_SPACELESS}]+(?:[{_MARKS}]+[^\W{_SPACELESS}]*)*"
    r"|[^\w\s]"
)
"""Pattern of a word: a sequence of letters and digits, one character of a script without spaces, or
one punctuation mark."""

_ENDING = re.compile(
    r"(?<=...)(?:ings?|ed|ie[sd]?|(?<=x)es|(?<=....)es?|(?<=[^s])s|(?<=[bcdfghjklmnpqrstvwxz])y)$"
)
_CAMEL_CASE = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\W_]+")

_any_words = re.compile(TOKEN_PATTERN).findall
_ascii_words = re.compile(r"\w+|[^\w\s]").findall  # the same words of ASCII text, 2x faster


def normalise(text: str) -> str:
    """Text without differences of case, width or composition (NFKC, case-folded)."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()


def words(text: str) -> list[str]:
    """The words of a text, in order; punctuation marks are words, and no word contains a space."""
    text = normalise(text)
    return _ascii_words(text) if text.isascii() else _any_words(text)


def hash_word(word: str) -> int:
    """CRC-32 of a word."""
    return crc32(word.encode("utf-8", "surrogatepass"))


def strip_ending(word: str) -> str:
    """A word in small letters without its ending, where at least three letters stay.

    Example:
        >>> [strip_ending(word) for word in ("bookings", "booked", "booking", "red")]
        ['book', 'book', 'book', 'red']
    """
    ending = _ENDING.search(word)
    return word[: ending.start()] if ending else word


def hash_stem(word: str) -> int:
    """CRC-32 of a word without its ending."""
    return hash_word(strip_ending(word))


def prefix_stem(word: str) -> str:
    """The first five letters of a word, or a shorter word without its plural s.

    Example:
        >>> [prefix_stem(word) for word in ("Address", "addressee", "files", "file")]
        ['addre', 'addre', 'file', 'file']
    """
    word = word.casefold()
    if len(word) > 5:
        return word[:5]
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def name_words(name: str) -> str:
    """The words of a tool name: ``getUser_by-id`` becomes ``get user by id``.

    A name without any letter or digit is given back as it is.
    """
    spaced = _SEPARATORS.sub(" ", _CAMEL_CASE.sub(" ", name)).strip().lower()
    return spaced or name
