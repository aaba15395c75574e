"""The parts of files that one task reads each, and what tells whether one has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtdr.data import parquet
from dtdr.data.shards import Shard, find_shards
from dtdr.errors import InputError

_PART_ROWS = 100_000
"""Rows of a Parquet file that are one part; a file of lines is one, however long."""

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads.

    Attributes:
        path: as a user named it.
        shard: its place among the files that the path means.
        groups: row groups of Parquet; None: the whole file, which is lines or cannot be read.
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


def find_parts(paths: Sequence[str | Path]) -> list[Part]:
    """The parts of files, folders, patterns and URLs.

    Raises:
        InputError: there is none, or one cannot be read.
    """
    parts: list[Part] = []
    for path in paths:
        for place, shard in enumerate(find_shards(path)):
            if not shard.name.endswith(parquet.SUFFIX):
                parts.append(Part(str(path), place))
                continue
            try:
                sizes = _groups(shard)
            except InputError:
                sizes = []  # whoever reads the part counts it as bad, or says why
            first, start, rows = 1, 0, 0
            for group, size in enumerate(sizes, start=1):
                rows += size
                if rows >= _PART_ROWS or group == len(sizes):
                    parts.append(Part(str(path), place, tuple(range(start, group)), first))
                    first, start, rows = first + rows, group, 0
            if not sizes:
                parts.append(Part(str(path), place))
    return parts


def open_part(part: Part) -> Shard:
    """The file of a part.

    Raises:
        InputError: it is gone.
    """
    shards = find_shards(part.path)
    if part.shard >= len(shards):
        raise InputError(f"{part.path} has lost files since it was counted; leave it as it is")
    return shards[part.shard]


def hash_part(part: Part) -> str:
    """SHA-256 of all bytes that a part is read from, and of how they are read.

    Raises:
        InputError: the file cannot be read.
    """
    digest = hashlib.sha256(repr(part.groups).encode())
    with open_part(part).open() as stream:
        if part.groups is None:
            while block := stream.read(_BLOCK):
                digest.update(block)
            return digest.hexdigest()
        for start, end in parquet.byte_ranges(stream, part.groups):
            stream.seek(start)
            for position in range(start, end, _BLOCK):
                digest.update(stream.read(min(_BLOCK, end - position)))
    return digest.hexdigest()
