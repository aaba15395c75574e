"""Decides by a name whether its value is secret, and whether a value looks random.

A name is split into words at case, digits and signs: ``PGPASSWORD``, ``db-password`` and
``userPassword1`` are secret, ``password_length`` is not.
"""

from __future__ import annotations

import re
import tomllib
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

KNOWN: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("secrets.toml").read_text(encoding="utf-8")
)
"""Lists of names, keys and rules."""

PATTERNS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern.replace("\n", "")) for name, pattern in KNOWN["patterns"].items()
}
"""How values look."""
_RUN = re.compile(r"[^\W_]{8,}")


def has_any(text: str, hints: tuple[str, ...]) -> bool:
    """Whether one of the hints is in a text; faster than an expression of them all."""
    for hint in hints:  # faster than a generator  # noqa: SIM110
        if hint in text:
            return True
    return False


def is_random(text: str) -> bool:
    """Whether a part of a text, between signs, is neither words nor a number."""
    # Keys are ASCII: other letters are words.
    return any(run.isascii() and not PATTERNS["word"].fullmatch(run) for run in _RUN.findall(text))


class Secrecy(IntEnum):
    """Which values under a name are secret: those that look random, or are mixed, or all."""

    NONE = 0
    RANDOM = 1
    MIXED = 2  # more than a word or a number
    SURE = 3

    def covers(self, value: str) -> bool:
        """Whether a text under such a name is a secret."""
        value = value.strip().rstrip(".,;!?")
        if not value or PATTERNS["no_secret"].fullmatch(value):
            return False
        if self is Secrecy.MIXED and PATTERNS["mixed"].match(value):
            return True
        return self is Secrecy.SURE or (
            is_random(value) and not PATTERNS["no_key"].fullmatch(value)
        )


def _words(key: str) -> frozenset[str]:
    return frozenset(KNOWN["names"][key].split())


_SURE, _MIXED, _RANDOM = map(_words, ("sure", "mixed", "random"))
_COUNTED, _ABOUT, _NEUTRAL = map(_words, ("counted", "about", "neutral"))
TELLING: dict[str, str] = KNOWN["names"]["telling"]
_HARMLESS: dict[str, str] = KNOWN["names"]["harmless"]
_SPLIT = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]")
_PARTS = {*" ".join(TELLING.values()).split(), *TELLING, *_SURE, *_MIXED}
_TELLS = re.compile("|".join(map(re.escape, {*_SURE, *_MIXED, *_RANDOM, *TELLING})))
"""Names without one of these are harmless; most need no splitting."""
_ENDING = re.compile(r"(.{1,30}?)(passw(?:or)?ds?|passwort|kennwort|passphrase)")


def _apart(word: str) -> tuple[str, ...]:
    """The known words that a compound word consists of; empty for any other word."""
    for end in range(2, len(word) - 1):
        if word[:end] in _PARTS:
            rest = word[end:]
            parts = (rest,) if rest in _PARTS else _apart(rest)
            if parts:
                return (word[:end], *parts)
    return ()


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in small letters, without digits; compound words are split."""
    words: list[str] = []
    for word in map(str.lower, _SPLIT.findall(name)):
        ending = _ENDING.fullmatch(word)
        if word in _SURE or word in TELLING:
            words.append(word)
        elif ending:
            words += ending.groups()
        else:
            words += (len(word) <= 30 and _apart(word)) or (word,)
    return tuple(words)


def secrecy(name: str) -> Secrecy:
    """Which values under a name are secret."""
    return _secrecy(name[-80:])


@lru_cache(maxsize=50_000)
def _secrecy(name: str) -> Secrecy:
    if not _TELLS.search(name.lower()):
        return Secrecy.NONE
    words = words_of(name)
    for last in reversed(range(len(words))):
        word, before, after = words[last], words[:last], words[last + 1 :]
        stem = word[:-1] if word in ("tokens", "keys") else word
        former = before[-1] if before else ""
        if word in _SURE or (former and former in TELLING.get(stem, "").split()):
            certainty = Secrecy.SURE
        elif former and former in _HARMLESS.get(stem, "").split():
            return Secrecy.NONE
        elif word in _MIXED:
            certainty = Secrecy.MIXED
        elif word in _RANDOM and (before or stem != "key"):
            certainty = Secrecy.RANDOM
        else:
            continue
        if not _ABOUT.isdisjoint(after) or not _COUNTED.isdisjoint(before):
            return Secrecy.NONE
        return certainty if _NEUTRAL.issuperset(after) else Secrecy(max(1, certainty - 1))
    return Secrecy.NONE
