"""Dates that a text says in words and a parameter takes as ``2024-05-20`` (extra ``dates``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOST_TOKENS = 5
_MOST_CHARACTERS = 40
_LANGUAGES = ("en", "de", "es", "fr", "it", "nl", "pt")
"""To try every language that dateparser knows takes a second where a text is no date."""
_WORD = re.compile(r"[^\W\d_]{3,}\.?")
_DAY = re.compile(r"\d{1,2}(?:st|nd|rd|th|\.)?", re.IGNORECASE)
_YEAR = re.compile(r"\d{4}")


def is_date(value: str) -> bool:
    """Whether a text is a date as parameters take it."""
    return _ISO.fullmatch(value) is not None


@lru_cache(maxsize=1024)
def read_date(text: str) -> str | None:
    """A date with a day, a month as a word, and a year, as ``2024-05-20``.

    None where it is not one, where a part is missing, which would have to be made up, and where
    dateparser is not installed.
    """
    tokens = re.findall(r"[\w.]+", text)
    kinds = (_WORD, _DAY, _YEAR)
    if len(tokens) > _MOST_TOKENS or not all(any(map(kind.fullmatch, tokens)) for kind in kinds):
        return None
    parser = _parser()
    if parser is None:
        return None
    moment = parser.get_date_data(text).date_obj
    return None if moment is None else str(moment.date())


@cache
def _parser() -> Any:
    try:
        from dateparser.date import DateDataParser
    except ImportError:
        return None
    # No relative dates: when a run was made is not known.
    settings = {"REQUIRE_PARTS": ["day", "month", "year"], "PARSERS": ["absolute-time"]}
    return DateDataParser(languages=list(_LANGUAGES), settings=settings)


def read_dates(
    values: Sequence[str], first: Sequence[int], last: Sequence[int]
) -> Mapping[int, str]:
    """The spans that say a date and nothing else, and the date.

    Args:
        values: of the spans.
        first: token of each.
        last: token of each.
    """
    dates: dict[int, str] = {}
    for place, value in enumerate(values):
        if len(value) < _MOST_CHARACTERS and (date := read_date(value)):
            dates[place] = date

    def is_shortest(place: int) -> bool:
        return not any(
            dates[other] == dates[place]
            and first[place] <= first[other] <= last[other] <= last[place]
            for other in dates
            if other != place
        )

    return {place: date for place, date in dates.items() if is_shortest(place)}
