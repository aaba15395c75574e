"""When something happened, however a log writes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

_KEYS = (
    "start_time",
    "startTime",
    "request_created_at",
    "created_at",
    "createdAt",
    "created",
    "timestamp",
    "@timestamp",
    "time",
    "ts",
    "date",
)
"""Where records and messages say when they were made; a start before any other moment."""

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = 946_684_800 * 10**9
"""The year 2000: what is smaller counts from the start of a run, and says nothing of the day."""
_LATEST = 10**20
"""The year 5138."""
_ENDLESS = float("inf")


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
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - _BEGIN
        return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _ENDLESS:
        # 1e11 s is the year 5138 and 1e11 ms is 1973: the size tells the unit.
        for scale in (10**9, 10**6, 10**3):
            if value < 10**20 // scale:
                return int(value * scale)
        return int(value)
    return 0


def find_time(*records: Mapping[str, Any]) -> int:
    """The time that one of several records tells, the first that does; 0 where none does.

    Durations, which have the same names in some logs, are none.
    """
    for record in records:
        for key in _KEYS:
            if key in record and (moment := nanoseconds(record[key])) >= _EARLIEST:
                return moment
    return 0


def as_moment(time: int) -> datetime | None:
    """A time in nanoseconds as a date; None where it is not one."""
    if not _EARLIEST <= time < _LATEST:
        return None
    return _BEGIN + timedelta(microseconds=time // 1000)
