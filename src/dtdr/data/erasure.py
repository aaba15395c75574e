"""Takes the demonstrations of a user or tenant out of files, and leaves all others as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtdr.data import json_codec, parquet
from dtdr.data.files import replace_file
from dtdr.data.jsonl import iter_bounded_lines, longest_line, too_long
from dtdr.data.shards import find_shards
from dtdr.errors import InputError


@dataclass(frozen=True, slots=True)
class FileErasure:
    """What was, or would be, taken out of one file."""

    file: Path
    erased: int
    kept: int


def erase_groups(
    paths: Sequence[str | Path], groups: Collection[str], *, dry_run: bool = False
) -> list[FileErasure]:
    """Take the demonstrations of groups out of files of lines and Parquet files.

    Every file is looked through before the first is changed. A file is replaced as a whole or not
    at all; lines and rows that stay are written as they were, and files that hold none of the
    groups are not touched. Called again after a break, it ends what is left to do.

    Args:
        paths: files, folders or patterns, of this machine.
        groups: values of ``group``.
        dry_run: only count.

    Raises:
        InputError: a file cannot be read, or holds a record whose group cannot be told.
        OutputError: a file cannot be written; it is as it was.
    """
    files = [Path(shard.name) for path in paths for shard in find_shards(path)]
    for file in files:
        if not file.is_file():
            raise InputError(f"{file} is not a file of this machine; erase where it is stored")
    erasures = []
    for file in files:
        is_parquet = file.suffix == parquet.SUFFIX
        flags = list(_rows_to_keep(file, groups) if is_parquet else _lines_to_keep(file, groups))
        erasures.append(FileErasure(file, flags.count(False), flags.count(True)))
    for item in erasures:
        if item.erased and not dry_run:
            _rewrite(item.file, groups)
    return erasures


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    limit = longest_line()
    with file.open("rb") as stream:
        for number, (line, _) in enumerate(iter_bounded_lines(stream.readline, limit), start=1):
            if line is None:
                raise InputError(f"{file}:{number}: {too_long(limit)}")
            yield number, line


def _lines_to_keep(file: Path, groups: Collection[str]) -> Iterator[bool]:
    for number, line in _lines(file):
        if line.strip():
            yield _is_kept(file, number, line, groups)


def _is_kept(file: Path, number: int, line: bytes, groups: Collection[str]) -> bool:
    try:
        record = json_codec.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{file}:{number}: not a line of JSON, so that nobody can tell whose it is; fix or "
            "delete it first"
        ) from error
    return not isinstance(record, dict) or str(record.get("group", "")) not in groups


def _rows_to_keep(file: Path, groups: Collection[str]) -> Iterator[bool]:
    try:
        with file.open("rb") as stream:
            for row in parquet.iter_rows(stream, known=("group", "id")):
                yield row.get("group") not in groups
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _rewrite(file: Path, groups: Collection[str]) -> None:
    with replace_file(file) as stream:
        if file.suffix == parquet.SUFFIX:
            with file.open("rb") as source:
                parquet.copy_rows(source, stream.buffer, list(_rows_to_keep(file, groups)))
            return
        for number, line in _lines(file):
            if not line.strip() or _is_kept(file, number, line, groups):
                stream.buffer.write(line)
