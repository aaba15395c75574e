"""The outcome of a call: its status, and hashes of the words and the facts of its output."""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dtdr.data import json_codec
from dtdr.data.calls import Status
from dtdr.rankers.dtdr_f.values import NO_VALUES, Values

Hashes = npt.NDArray[np.int32]

STATUSES: tuple[Status, ...] = ("unknown", "ok", "empty", "error")
"""The status of a call, by number."""
EMPTY, ERROR = 2, 3

_BITS = 0xFFFFF
_MOST_WORDS = 256
"""Distinct words and keys of an output that count, the first ones."""
_WORD, _ASCII_WORD = re.compile(r"[^\W\d_]{2,}"), re.compile(r"[a-z]{2,}")
"""Words in lower case; of texts in ASCII, the second finds the same in half the time."""
_KEY = re.compile(r'"([^"\\]{1,40})":')
# Where crc32 starts: the same word hashes to another number in each of these.
_OUTPUT, _KEYS, _SHAPE, AGENT, USER, _FACTS = range(1, 7)
_MOST_FACTS, _MOST_ITEMS = 128, 8
"""Facts of an output, and items of a list in it, that count, the first ones."""
_LONGEST_FLAG = 24
"""Characters of a text that may be one of few values, such as a status."""
_THRESHOLDS = (-1e9, 0.1, 0.25, 0.5, 0.75, 0.9, *range(1, 6), 7, 10, 20, 50, 100, 1_000, 10_000)
"""A number becomes the thresholds that it reaches. So a rule such as "at least two approvals" needs
one weight."""


class Outcome:
    """The status and the output of a call.

    Attributes:
        status: its place in ``STATUSES``.
        left: how many values of a list in an earlier output, or of the identifiers in the query,
            the tool was not called with yet, where it was called with one of them, plus one and at
            most ``MOST_LEFT``; else 0. So it is 2 after ``get_order(#a1)`` if an output listed
            #a1 and #a2, then 1 after ``get_order(#a2)``.
        values: of its arguments and its output.

    Args:
        words, facts: if they were read before.
        output: bounded, and as JSON if it is no text; read when ``words`` or ``facts`` are first
            asked for, since a ranking asks for those of the last step alone.
    """

    __slots__ = ("_facts", "_output", "_words", "left", "status", "values")

    def __init__(
        self,
        status: int,
        words: Hashes | None = None,
        facts: Hashes | None = None,
        left: int = 0,
        values: Values = NO_VALUES,
        *,
        output: tuple[Any, bytes] = (None, b""),
    ) -> None:
        self.status, self.left, self.values = status, left, values
        self._words, self._facts, self._output = words, facts, output

    @property
    def words(self) -> Hashes:
        """Hashes of the words, keys, type and size of the output, sorted."""
        if self._words is None:
            self._words = _read_words(*self._output)
        return self._words

    @property
    def facts(self) -> Hashes:
        """Hashes of the flags, short texts and numbers of the output, each with its key.

        Of a number, one hash for each threshold that it reaches. Sorted.
        """
        if self._facts is None:
            self._facts = _read_facts(self._output[0])
        return self._facts


NO_WORDS = np.empty(0, np.int32)
NO_OUTCOME = Outcome(0, NO_WORDS, NO_WORDS)


def _read_words(output: Any, encoded: bytes) -> Hashes:
    """See ``Outcome.words``."""
    is_text = isinstance(output, str)
    text = (output.encode("utf-8", "replace") if is_text else encoded).decode()
    words = set(map(_hash_word, distinct_words(text, _MOST_WORDS)))
    if not is_text:
        words.update(map(_hash_key, _KEY.findall(text)))
    size = min(len(output).bit_length(), 7) if isinstance(output, (list, dict)) else -1
    words.add(hash_term(f"{type(output).__name__} {size} {len(text).bit_length()}", _SHAPE))
    return _sorted(words)


def _read_facts(output: Any) -> Hashes:
    """See ``Outcome.facts``; a text that is JSON is parsed."""
    if isinstance(output, str) and output[:1] in "{[":
        with suppress(ValueError, RecursionError):
            output = json_codec.loads(output)
    facts: set[int] = set()
    # A hash of a path goes on with what follows it.
    pending: list[tuple[int, Any]] = [(_FACTS, output)]
    while pending and len(facts) < _MOST_FACTS:
        path, value = pending.pop()
        if isinstance(value, str):
            if len(value) <= _LONGEST_FLAG:
                facts.add(_extend(path, f"={value}") & _BITS)
        elif isinstance(value, dict):
            parts = [(_extend_cached(path, f"/{name}"), part) for name, part in value.items()]
            parts.reverse()
            pending += parts
        elif isinstance(value, list):
            item = _extend_cached(path, "/*")
            pending += [(item, part) for part in value[:_MOST_ITEMS]]
            pending.append((_extend_cached(path, "/#"), len(value)))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            # What is not a number reaches no threshold.
            reached = bisect_right(_THRESHOLDS, value) if value == value else 0
            facts.update(_number_facts(path)[: 1 + reached])
        else:
            facts.add(_extend(path, f"={value}") & _BITS)
    return _sorted(facts)


@lru_cache(maxsize=1 << 13)
def _number_facts(path: int) -> tuple[int, ...]:
    """Hashes for a number at a path, and for each threshold that it reaches, ascending."""
    texts = ("number", *_THRESHOLDS)
    return tuple(_extend(path, f" {text}") & _BITS for text in texts)


def _extend(path: int, text: str) -> int:
    return crc32(text.encode("utf-8", "replace"), path)


_extend_cached = lru_cache(maxsize=1 << 14)(_extend)
"""For names of members, which are the same in most outputs of a tool."""


@lru_cache(maxsize=1 << 15)
def _hash_word(word: str) -> int:
    return hash_term(word, _OUTPUT)


@lru_cache(maxsize=1 << 13)
def _hash_key(key: str) -> int:
    return hash_term(key, _KEYS)


def _sorted(hashes: set[int]) -> Hashes:
    array = np.fromiter(hashes, np.int32, len(hashes))
    array.sort()
    return array


def hash_term(text: str, kind: int) -> int:
    """20 bits of a word or a key, other ones in each kind of text."""
    return crc32(text.encode("utf-8", "replace"), kind) & _BITS


def distinct_words(text: str, most: int) -> list[str]:
    """The words of a text in lower case, each once, the first ones."""
    words = _ASCII_WORD if text.isascii() else _WORD
    return list(dict.fromkeys(words.findall(text.lower())))[:most]
