"""Reads times of logs, in any unit, as nanoseconds since 1970."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_TIME_KEYS = """start_time startTime request_created_at created_at createdAt created timestamp
    @timestamp time ts date""".split()  # noqa: SIM905  # as prose
"""Keys of the time of a record or message; a start before any other moment."""

_EARLIEST = 946_684_800 * 10**9
"""The year 2000: smaller numbers count from the start of a run."""
_LATEST = 10**20
"""The year 5138."""


def nanoseconds(value: object) -> int:
    """A time as nanoseconds since 1970: ISO 8601 text, or a number of s, ms, µs or ns; else 0."""
    if isinstance(value, str):
        text = value.strip()
        if text.isdigit():
            return nanoseconds(int(text))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return 0
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1e6) * 1000
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        # 1e11 s is the year 5138 and 1e11 ms is 1973: the size gives the unit.
        for scale in (10**9, 10**6, 10**3):
            if value < 10**20 // scale:
                return int(value * scale)
        return int(value)
    return 0


def find_time(*records: Mapping[str, Any]) -> int:
    """The time of the first of several records that has one; 0 if none has.

    Durations, which have the same names in some logs, do not count.
    """
    for record in records:
        for key in _TIME_KEYS:
            if key in record and (moment := nanoseconds(record[key])) >= _EARLIEST:
                return moment
    return 0


def as_moment(time: int) -> datetime | None:
    """A time in nanoseconds as a date; None if it is not one."""
    return datetime.fromtimestamp(time / 1e9, UTC) if _EARLIEST <= time < _LATEST else None
