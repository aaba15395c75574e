"""Reads JSON lines within bounds; counts bad records, or names the first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dtdr.data import json_codec
from dtdr.data.shards import Shard, local_shard
from dtdr.errors import InputError

LINE_VARIABLE = "DTDR_MAX_LINE"
LONGEST_LINE = 32_000_000


@dataclass
class BadRecords:
    """Counts records that were left out; pass one to continue after bad records.

    Attributes:
        count: how many were left out.
        first: the first five reasons, each with file and line.
        is_strict: the first bad record is an error, and only repairs are counted.
        repairs: what was repaired, and how often.
    """

    count: int = 0
    first: list[str] = field(default_factory=list)
    is_strict: bool = False
    repairs: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str) -> None:
        """Count one record that was left out."""
        self.count += 1
        if len(self.first) < 5:
            self.first.append(reason)

    def update(self, other: BadRecords) -> None:
        """Add the counts of another reading."""
        self.count += other.count
        self.first = [*self.first, *other.first][:5]
        self.repairs.update(other.repairs)


def leave_out(reason: str, bad: BadRecords | None) -> None:
    """Count a record that cannot be used.

    Raises:
        InputError: bad records are not counted.
    """
    if bad is None or bad.is_strict:
        raise InputError(f"{reason}; fix it, or pass --skip-bad if the command has it")
    bad.add(reason)


def longest_line() -> int:
    """Maximum bytes of a line of JSON: ``DTDR_MAX_LINE``, by default 32 million.

    Raises:
        InputError: the variable is not a number above 0.
    """
    text = os.environ.get(LINE_VARIABLE, "")
    try:
        limit = int(text) if text else LONGEST_LINE
    except ValueError:
        limit = 0
    if limit < 1:
        raise InputError(f"{LINE_VARIABLE} is {text!r}; it must be a number of bytes above 0")
    return limit


def too_long(limit: int) -> str:
    """The reason why a line, or a record of a document, is not read."""
    return f"it has more than {limit:,} bytes; set {LINE_VARIABLE} to read longer ones"


def iter_bounded_lines(
    readline: Callable[[int], bytes], limit: int
) -> Iterator[tuple[bytes | None, int]]:
    """Yield ``(line, its bytes)`` of a stream; None for a line of more than ``limit`` bytes."""
    while line := readline(limit + 1):
        size = len(line)
        if size <= limit:
            yield line, size
            continue
        while line and not line.endswith(b"\n"):
            line = readline(limit)
            size += len(line)
        yield None, size


def iter_json_lines(
    path: str | Path, *, bad: BadRecords | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield ``(line number from 1, value)`` for every non-blank line of a JSON-lines file.

    Raises:
        InputError: the file cannot be read, or a line is not JSON and ``bad`` is None.
    """
    for line_number, value, _ in decode_lines(local_shard(str(path)), json_codec.loads, bad):
        yield line_number, value


def decode_lines(
    shard: Shard, decode: Callable[[bytes], Any], bad: BadRecords | None
) -> Iterator[tuple[int, Any, bytes]]:
    """Yield ``(line number from 1, value, line)`` for every non-blank line of a file.

    Raises:
        InputError: the file cannot be read, or a line is not JSON and ``bad`` is None.
    """
    for line_number, line in iter_lines(shard, bad):
        try:
            value = decode(line)
        except (ValueError, RecursionError) as error:
            reason = f"not a line of JSON ({json_codec.explain(error)})"
            leave_out(f"{shard.name}:{line_number}: {reason}", bad)
            continue
        yield line_number, value, line


def iter_lines(shard: Shard, bad: BadRecords | None) -> Iterator[tuple[int, bytes]]:
    """Yield ``(line number from 1, line)`` for every non-blank line of a file.

    Raises:
        InputError: the file cannot be read, or a line is too long and ``bad`` is None.
    """
    limit = longest_line()
    with shard.open() as stream:
        lines = iter_bounded_lines(stream.readline, limit)
        for line_number, (line, _) in enumerate(lines, start=1):
            if line is None:
                leave_out(f"{shard.name}:{line_number}: {too_long(limit)}", bad)
            elif not line.isspace():
                yield line_number, line
