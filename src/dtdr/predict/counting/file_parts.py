"""The parts of files: what one task reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtdr.data import parquet
from dtdr.data.shards import Shard, find_shards
from dtdr.errors import InputError

_PART_ROWS = 100_000
"""Rows of a Parquet file in one part. A file of lines is one part."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """What one task reads.

    Attributes:
        path: as a user wrote it.
        shard: position among the files of the path.
        groups: row groups of Parquet; None: the whole file, which is lines or unreadable.
        first_row: number of its first row.
    """

    path: str
    shard: int
    groups: tuple[int, ...] | None = None
    first_row: int = 1


def rows_of(shard: Shard) -> int:
    """An upper bound of the demonstrations in a file, without reading them.

    Raises:
        InputError: it cannot be read.
    """
    if shard.name.endswith(parquet.SUFFIX):
        return sum(_groups(shard))
    rows, last = 0, b"\n"
    with shard.open() as stream:
        while block := stream.read(1 << 20):
            rows += block.count(b"\n")
            last = block[-1:]
    return rows + (last != b"\n")


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
    parts: list[FilePart] = []
    for path in paths:
        for place, shard in enumerate(find_shards(path)):
            if not shard.name.endswith(parquet.SUFFIX):
                parts.append(FilePart(str(path), place))
                continue
            try:
                sizes = _groups(shard)
            except InputError:
                sizes = []  # the first pass reports it or counts it as bad
            first, start, rows = 1, 0, 0
            for group, size in enumerate(sizes, start=1):
                rows += size
                if rows >= _PART_ROWS or group == len(sizes):
                    parts.append(FilePart(str(path), place, tuple(range(start, group)), first))
                    first, start, rows = first + rows, group, 0
            if not sizes:
                parts.append(FilePart(str(path), place))
    return parts


def open_part(part: FilePart) -> Shard:
    """The file of a part.

    Raises:
        InputError: it is gone.
    """
    shards = find_shards(part.path)
    if part.shard >= len(shards):
        raise InputError(f"{part.path} has lost files since it was counted; do not change it")
    return shards[part.shard]
