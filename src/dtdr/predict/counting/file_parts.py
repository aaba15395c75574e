"""The parts of files: what one task reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtdr.data import parquet
from dtdr.data.shards import Shard, find_shards
from dtdr.errors import InputError, check_lists

_PART_ROWS = 100_000
"""Rows of a Parquet file in one part. A file of lines is one part."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The part of the files that one task reads.

    Attributes:
        path: of the file, or its URL: a task lists no folder.
        groups: row groups of Parquet; None: the whole file, which is lines or unreadable.
        first_row: number of its first row.
    """

    path: str
    groups: tuple[int, ...] | None = None
    first_row: int = 1

    def __str__(self) -> str:
        return self.path


def has_more_rows(shards: Iterable[Shard], limit: int) -> bool:
    """Whether files have more rows than a limit; no more of them is read than that takes.

    Raises:
        InputError: one of them cannot be read.
    """
    rows = 0
    for shard in shards:
        if shard.name.endswith(parquet.SUFFIX):
            rows += sum(_groups(shard))
        else:
            last = b"\n"
            with shard.open() as stream:
                while rows <= limit and (block := stream.read(1 << 20)):
                    rows += block.count(b"\n")
                    last = block[-1:]
            rows += last != b"\n"
        if rows > limit:
            return True
    return False


def _groups(shard: Shard) -> list[int]:
    try:
        with shard.open() as stream:
            return parquet.row_groups(stream)
    except InputError as error:
        raise InputError(f"{shard.name}: {error}") from error


def find_parts(paths: Sequence[str | Path]) -> list[FilePart]:
    """The parts of files, folders, patterns and URLs.

    Raises:
        InputError: there is none, or one cannot be read.
    """
    check_lists(paths=paths)
    parts: list[FilePart] = []
    for path in paths:
        for shard in find_shards(path):
            if not shard.name.endswith(parquet.SUFFIX):
                parts.append(FilePart(shard.name))
                continue
            try:
                sizes = _groups(shard)
            except InputError:
                sizes = []  # the first pass reports it or counts it as bad
            first, start, rows = 1, 0, 0
            for group, size in enumerate(sizes, start=1):
                rows += size
                if rows >= _PART_ROWS or group == len(sizes):
                    parts.append(FilePart(shard.name, tuple(range(start, group)), first))
                    first, start, rows = first + rows, group, 0
            if not sizes:
                parts.append(FilePart(shard.name))
    return parts
