"""The words that queries are made of: people, places, topics, times."""

from __future__ import annotations

import re
from importlib.resources import files
from random import Random

FIRST, LAST, CITIES, TOPICS, KINDS, WEEKDAYS, MONTHS = (
    tuple(word.strip() for word in block.split("|"))
    for block in (files(__package__) / "words.txt").read_text("utf-8").split("\n\n")
)


def person(rng: Random) -> str:
    """A name, with a surname more often than not."""
    first = FIRST[int(rng.random() * len(FIRST))]
    if rng.random() < 0.35:
        return first
    return f"{first} {LAST[int(rng.random() * len(LAST))]}"


def day(rng: Random) -> str:
    """A day, as people say it."""
    draw = rng.random()
    if draw < 0.2:
        return "tomorrow"
    if draw < 0.5:
        return WEEKDAYS[int(rng.random() * 7)]
    if draw < 0.65:
        return f"next {WEEKDAYS[int(rng.random() * 7)]}"
    return f"{int(rng.random() * 28) + 1} {MONTHS[int(rng.random() * 12)]}"


def clock(rng: Random) -> str:
    """A time of day."""
    hour, quarter = int(rng.random() * 12) + 7, int(rng.random() * 12) * 5
    if rng.random() < 0.5:
        return f"{hour}:{quarter:02d}"
    return (
        f"{(hour - 1) % 12 + 1}{f':{quarter:02d}' if quarter else ''} {'am' if hour < 12 else 'pm'}"
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
