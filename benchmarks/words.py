"""The words that queries are made of: people, places, topics, times."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

FIRST, LAST, CITIES, TOPICS, KINDS, WEEKDAYS, MONTHS = (
    tuple(word.strip() for word in block.split("|"))
    for block in Path(__file__).with_name("words.txt").read_text("utf-8").split("\n\n")
)


_POOLS = [
    {name.lower(): (place, names) for place, name in enumerate(names)}
    for names in (FIRST, LAST, CITIES, TOPICS, WEEKDAYS)
]
_WORD = re.compile(r"[^\W_]+")
_VERSION = re.compile(r"v\d\d?")
_YEAR = re.compile(r"20[12]\d")


class Renaming:
    """Names of people and towns, topics, weekdays and numbers: each gives way to another.

    Two different names stay different.
    """

    def __init__(self, rng: Random) -> None:
        self._shifts = [(pool, int(rng.random() * len(pool))) for pool in _POOLS]
        self._shift = int(rng.random() * 120)

    def apply(self, text: str) -> str:
        """The text with the other names in it, in small letters where it has them so."""
        return _WORD.sub(self._other, text)

    def _other(self, match: re.Match[str]) -> str:
        word = match[0]
        if _VERSION.fullmatch(word):
            return f"v{(int(word[1:]) + self._shift) % 40 + 1}"
        if _YEAR.fullmatch(word):
            return str((int(word) + self._shift) % 12 + 2015)
        if len(word) > 2 and word.isdigit():
            return "".join(
                digit if digit == "0" else str((int(digit) + self._shift) % 9 + 1) for digit in word
            )
        for pool, shift in self._shifts:
            known = pool.get(word.lower())
            if known is not None:
                place, names = known
                name = names[(place + shift) % len(names)]
                return name.lower() if word.islower() else name
        return word
