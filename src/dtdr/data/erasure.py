"""Deletes the demonstrations of a user or tenant from files, and leaves all others unchanged."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtdr.data import json_codec, parquet
from dtdr.data.files import replace_file
from dtdr.data.jsonl import decode_lines
from dtdr.data.partials import delete_partials, find_partials, is_copy
from dtdr.data.shards import Shard, find_shards, local_folders
from dtdr.errors import InputError, check_lists

WAIT_SECONDS = 10.0
"""Time in which other commands may end that write to the same folders."""


@dataclass(frozen=True, slots=True)
class FileErasure:
    """How many demonstrations were, or would be, deleted from a file."""

    file: Path
    erased: int
    kept: int


def erase_groups(
    paths: Sequence[str | Path], groups: Collection[str], *, dry_run: bool = False
) -> list[FileErasure]:
    """Delete the demonstrations of groups from files of JSON lines and Parquet files.

    Every file is read before the first is changed. A file is replaced as a whole or not at all;
    other lines and rows are written as they were, and files without the groups are not touched.
    Unfinished copies that killed commands left in the folders are deleted. If it is interrupted,
    call it again.

    Args:
        paths: files, folders or patterns, of this machine.
        groups: values of ``group``.
        dry_run: only count.

    Raises:
        InputError: a file cannot be read, a record has no readable group, another command is
            writing a file of the folders, or paths or groups are a text.
        OutputError: a file cannot be written; it is unchanged.
    """
    # A text would be read as a list of one-letter paths, such as / for the whole machine, and as
    # all groups whose names are part of it.
    check_lists(paths=paths, groups=groups)
    if not dry_run:
        delete_unfinished(paths)
    files = [Path(shard.name) for path in paths for shard in find_shards(path, tidy=False)]
    for file in files:
        if not file.is_file():
            raise InputError(f"{file} is not a file of this machine; erase where it is stored")
        if file.suffix == ".gz":
            raise InputError(f"{file} is packed; unpack it with gunzip, and erase in the result")
    erasures = []
    for file in files:
        kept = [is_kept for is_kept, _ in _records(file, groups)]
        erasures.append(FileErasure(file, kept.count(False), kept.count(True)))
    for item in erasures:
        if item.erased and not dry_run:
            _rewrite(item.file, groups)
    return erasures


def find_unfinished(paths: Sequence[str | Path]) -> list[Path]:
    """The unfinished copies of the paths and in their folders, which may contain any group."""
    check_lists(paths=paths)
    partials = {
        partial.resolve()
        for path in map(Path, paths)
        for folder in local_folders(path)
        for partial in find_partials(folder)
        if not path.exists() or is_copy(partial, path.resolve()) or folder.is_relative_to(path)
    }
    return sorted(partials)


def delete_unfinished(paths: Sequence[str | Path]) -> None:
    """Delete the unfinished copies of the paths and in their folders.

    Raises:
        InputError: another command is writing one, also after ``WAIT_SECONDS``.
    """
    end = time.monotonic() + WAIT_SECONDS
    while unfinished := find_unfinished(paths):
        for folder in {path.parent for path in unfinished}:
            delete_partials(folder)
        if unfinished[0].exists() and time.monotonic() > end:
            raise InputError(
                f"another command is writing {unfinished[0]}; erase again when it has ended, or "
                "delete that file if no command is at work"
            )
        time.sleep(0.05 if unfinished[0].exists() else 0)


def _records(file: Path, groups: Collection[str]) -> Iterator[tuple[bool, bytes]]:
    """Whether each record stays, with its line; rows of Parquet have none."""
    if file.suffix == parquet.SUFFIX:
        try:
            with file.open("rb") as stream:
                for row in parquet.iter_rows(stream, known=("group", "id")):
                    yield row.get("group") not in groups, b""
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        return
    # A packed file is not unpacked: it would be written back as plain lines.
    shard = Shard(str(file), lambda: file.open("rb"))
    for _, record, line in decode_lines(shard, json_codec.loads, None):
        is_kept = not isinstance(record, dict) or str(record.get("group", "")) not in groups
        yield is_kept, line


def _rewrite(file: Path, groups: Collection[str]) -> None:
    records = _records(file, groups)
    with replace_file(file) as stream:
        if file.suffix == parquet.SUFFIX:
            with file.open("rb") as source:
                parquet.copy_rows(source, stream.buffer, [is_kept for is_kept, _ in records])
        else:
            stream.buffer.writelines(line for is_kept, line in records if is_kept)
