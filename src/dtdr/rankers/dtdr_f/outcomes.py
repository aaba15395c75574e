"""The outcome of a call: its status, and hashes of the words and the facts of its output."""

from __future__ import annotations

import re
from contextlib import suppress
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
_WORD = re.compile(r"[^\W\d_]{2,}")
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
_LIMITS = [(limit, f" {limit}".encode()) for limit in _THRESHOLDS]


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
        output: bounded; read when ``words`` or ``facts`` are first asked for, since a ranking asks
            for those of the last step alone.
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
        output: Any = None,
    ) -> None:
        self.status, self.left, self.values = status, left, values
        self._words, self._facts, self._output = words, facts, output

    @property
    def words(self) -> Hashes:
        """Hashes of the words, keys, type and size of the output, sorted."""
        if self._words is None:
            self._words = _read_words(self._output)
        return self._words

    @property
    def facts(self) -> Hashes:
        """Hashes of the flags, short texts and numbers of the output, each with its key.

        Of a number, one hash for each threshold that it reaches. Sorted.
        """
        if self._facts is None:
            self._facts = _read_facts(self._output)
        return self._facts


NO_WORDS = np.empty(0, np.int32)
NO_OUTCOME = Outcome(0, NO_WORDS, NO_WORDS)


def _read_words(output: Any) -> Hashes:
    """See ``Outcome.words``."""
    is_text = isinstance(output, str)
    written = output.encode("utf-8", "replace") if is_text else json_codec.dumps(output)
    text = written.decode()
    words = {hash_term(word, _OUTPUT) for word in distinct_words(text, _MOST_WORDS)}
    if not is_text:
        words.update(hash_term(key, _KEYS) for key in dict.fromkeys(_KEY.findall(text)))
    size = min(len(output).bit_length(), 7) if isinstance(output, (list, dict)) else -1
    words.add(hash_term(f"{type(output).__name__} {size} {len(text).bit_length()}", _SHAPE))
    return np.array(sorted(words), np.int32)


def _read_facts(output: Any) -> Hashes:
    """See ``Outcome.facts``; a text that is JSON is parsed."""
    if isinstance(output, str) and output[:1] in "{[":
        with suppress(ValueError, RecursionError):
            output = json_codec.loads(output)
    facts: set[int] = set()
    pending: list[tuple[str, Any]] = [("", output)]
    while pending and len(facts) < _MOST_FACTS:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{key}/{name}", part) for name, part in reversed(value.items())]
        elif isinstance(value, list):
            pending += [(f"{key}/*", part) for part in value[:_MOST_ITEMS]]
            pending.append((f"{key}/#", len(value)))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            # A hash of the key goes on with what follows it.
            start = crc32(key.encode("utf-8", "replace"), _FACTS)
            facts.update(crc32(text, start) & _BITS for limit, text in _LIMITS if value >= limit)
            facts.add(crc32(b" number", start) & _BITS)
        elif not isinstance(value, str) or len(value) <= _LONGEST_FLAG:
            facts.add(hash_term(f"{key}={value}", _FACTS))
    return np.array(sorted(facts), np.int32)


def hash_term(text: str, kind: int) -> int:
    """20 bits of a word or a key, other ones in each kind of text."""
    return crc32(text.encode("utf-8", "replace"), kind) & _BITS


def distinct_words(text: str, most: int) -> list[str]:
    """The words of a text in lower case, each once, the first ones."""
    return list(dict.fromkeys(_WORD.findall(text.lower())))[:most]
