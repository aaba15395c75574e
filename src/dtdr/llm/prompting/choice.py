"""Reads which function an LLM named, and how clearly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Clarity = Literal["exact", "cleaned", "embedded", "unlisted", "invalid", "empty"]
"""``exact``: a listed name and nothing else. ``cleaned``: the same in quotes, in another case, or
with punctuation. ``embedded``: one listed name inside other text. ``unlisted``: an existing tool
that was masked. ``invalid``: none of these. ``empty``: no text."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A function that an LLM named; ``name`` is None if the answer is unusable."""

    name: str | None
    clarity: Clarity


_AROUND = " \t\r\n'\"`*“”‘’«»()[]{}.,:;!"


def read_choice(answer: str, listed: Sequence[str], known: Sequence[str] = ()) -> Choice:
    """The listed name that an answer means.

    Args:
        answer: what the LLM wrote.
        listed: names it could choose from, as they were shown.
        known: names of all tools, to distinguish a masked tool from an invented one.
    """
    if answer.strip() in listed:
        return Choice(answer.strip(), "exact")
    if not answer.strip():
        return Choice(None, "empty")
    for candidate in (answer, answer.strip().splitlines()[0]):
        name = _find_equal(candidate, listed)
        if name is not None:
            return Choice(name, "cleaned")
        if _find_equal(candidate, known) is not None:  # which may contain a listed one as a word
            return Choice(None, "unlisted")
    if len(inside := _names_in(answer, listed)) == 1:
        return Choice(inside[0], "embedded")
    if not inside and _names_in(answer, known):
        return Choice(None, "unlisted")
    return Choice(None, "invalid")


def _find_equal(text: str, names: Sequence[str]) -> str | None:
    """The one name that equals the text but for case, quotes and punctuation around it."""
    plain = text.strip(_AROUND).casefold()
    equal = [name for name in names if plain and name.strip(_AROUND).casefold() == plain]
    return equal[0] if len(equal) == 1 else None


def _names_in(text: str, names: Sequence[str]) -> list[str]:
    """Names that are whole words of the text; a name inside a longer one does not count."""
    words = [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    return [name for name in words if not any(name != other and name in other for other in words)]
