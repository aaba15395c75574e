"""The canonical files as streams: demonstrations as JSON lines or Parquet, and ``tools.json``."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dtdr.data import json_codec, parquet
from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.data.files import replace_file
from dtdr.data.jsonl import BadRecords, iter_lines, leave_out
from dtdr.data.shards import Shard, find_beside, find_shards, open_shard
from dtdr.data.tools import Tool, ToolLike, as_tools, unique_tools
from dtdr.errors import InputError, OutputError, check_lists


class SeenIds:
    """Remembers ids in a temporary SQLite file, so that memory stays constant."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", check_same_thread=False)
        self._database.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
        self._database.execute("CREATE TABLE seen (id TEXT PRIMARY KEY) WITHOUT ROWID")
        self._add = self._database.cursor().execute

    def add(self, identifier: str) -> bool:
        """Remember an id; False if it is known."""
        try:
            cursor = self._add("INSERT OR IGNORE INTO seen VALUES (?)", (identifier,))
        except sqlite3.OperationalError as error:
            raise OutputError(
                f"cannot keep the ids seen so far ({error}); free space in the temporary folder, "
                "or set TMPDIR to another"
            ) from error
        return cursor.rowcount == 1

    def close(self) -> None:
        """Drop the temporary file."""
        self._database.close()


class DemonstrationFile(Iterator[Demonstration]):
    """The demonstrations of a file, each read on demand; ``format`` is what it was read as."""

    def __init__(
        self,
        path: Path,
        demonstrations: Iterator[Demonstration],
        logged_tools: Callable[[], Iterable[Tool]] = tuple,
        format: str = "dtdr",
    ) -> None:
        self.path = path
        self.format = format
        self._demonstrations = demonstrations
        self._logged_tools = logged_tools

    def __next__(self) -> Demonstration:
        return next(self._demonstrations)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools with definitions in the file, as far as it was read; else those in ``tools.json``.

        Raises:
            InputError: there is a ``tools.json`` in the folder that cannot be read.
        """
        if logged := tuple(self._logged_tools()):
            return logged
        listing = find_beside(self.path, "tools.json")
        return () if listing is None else read_tools(listing)


def read_demonstrations(path: str | Path, *, bad: BadRecords | None = None) -> DemonstrationFile:
    """Stream demonstrations, validated record by record, in constant memory.

    ``fit`` takes the result, with the tools of the ``tools.json`` in the same folder.

    >>> line = '{"id": "1", "query": "Mail Ann", "calls": ["find_user", "send_mail"]}'
    >>> _ = Path("demonstrations.jsonl").write_text(line)
    >>> [item.query for item in read_demonstrations("demonstrations.jsonl")]
    ['Mail Ann']

    Args:
        path: a file of JSON lines, one demonstration per line, or a Parquet file (``.parquet``); a
            folder or a pattern of such files; or a URL of object storage.
        bad: if given, counts records and files that cannot be used, which are left out.

    Raises:
        InputError: with file and line, at the first bad record if ``bad`` is None; or there is no
            demonstration.
        MissingExtraError: pyarrow or fsspec is needed and not installed.
    """
    return read_shards([path], bad=bad)


def read_shards(paths: Sequence[str | Path], *, bad: BadRecords | None = None) -> DemonstrationFile:
    """``read_demonstrations`` of several paths, one after the other; ids must be unique."""
    check_lists(paths=paths)
    shards = [shard for path in paths for shard in find_shards(path)]
    name = shards[0].name if len(shards) == 1 else ""
    records = (
        (origin.removeprefix(name), record)
        for shard in shards
        for origin, record in iter_records(shard, bad)
    )
    return DemonstrationFile(Path(paths[0]), convert_records(name, records, convert_record, bad))


def iter_records(
    shard: Shard,
    bad: BadRecords | None = None,
    groups: Sequence[int] | None = None,
    first_row: int = 1,
) -> Iterator[tuple[str, bytes | dict[str, Any]]]:
    """Each record of a file with its place: a line of JSON, or a row of Parquet.

    Args:
        shard: the file.
        bad: if given, counts records that cannot be used, which are left out.
        groups: row groups of a Parquet file to read; None for all.
        first_row: number of their first row.

    Raises:
        InputError: with the place, if ``bad`` is None.
    """
    if not shard.name.endswith(parquet.SUFFIX):
        try:
            for line_number, line in iter_lines(shard, bad):
                yield f"{shard.name}:{line_number}", line
        except InputError as error:  # it cannot be opened, or breaks off
            if bad is None or bad.is_strict:
                raise
            bad.add(str(error))
        return
    try:
        with shard.open() as stream:
            needed, known = parquet.NEEDED, parquet.COLUMNS
            rows = parquet.iter_rows(stream, needed=needed, known=known, groups=groups)
            for row_number, row in enumerate(rows, start=first_row):
                yield f"{shard.name}, row {row_number}", row
    except InputError as error:
        leave_out(f"{shard.name}: {error}", bad)


def convert_record(record: bytes | dict[str, Any]) -> Demonstration:
    """The demonstration of a record of ``iter_records``.

    Raises:
        InputError: it is not one.
    """
    try:
        if isinstance(record, bytes):
            return Demonstration.from_dict(json_codec.parse_line(record))
        return parquet.parse_row(record)
    except RecursionError as error:
        raise InputError("nested too deeply") from error


class _Identified(msgspec.Struct):
    id: str


_decode_id = msgspec.json.Decoder(_Identified).decode


def record_id(record: bytes | dict[str, Any]) -> str:
    """The id of a record of ``iter_records``, without reading the rest; InputError if none."""
    if isinstance(record, bytes):
        try:
            return _decode_id(record).id
        except ValueError:
            record = json_codec.parse_line(record)
    identifier = record.get("id") if isinstance(record, dict) else None
    if identifier is None:
        raise InputError("the record has no 'id'")
    return str(identifier)


def convert_records(
    path: str | Path,
    records: Iterable[tuple[str, Any]],
    convert: Callable[[Any], Demonstration],
    bad: BadRecords | None,
) -> Iterator[Demonstration]:
    """Convert ``(where, record)`` pairs one by one; errors name the path, if any, and where.

    Raises:
        InputError: at the first record that cannot be used if ``bad`` is None, or there is no
            demonstration.
    """
    is_empty = True
    with contextlib.closing(SeenIds()) as seen:
        for where, record in records:
            try:
                demonstration = convert(record)
                if not demonstration.query.strip():
                    raise InputError("the query is empty")
                if not seen.add(demonstration.id):
                    raise InputError(f"the id {demonstration.id!r} was used before")
            except (InputError, RecursionError) as error:
                deep = isinstance(error, RecursionError)
                leave_out(f"{path}{where}: {'nested too deeply' if deep else error}", bad)
                continue
            is_empty = False
            yield demonstration
    if is_empty:
        raise InputError(f"{path or 'the input'} has no demonstrations")


def read_tools(path: str | Path | Shard) -> tuple[Tool, ...]:
    """Read ``tools.json``: a list of tools, in any of the forms that ``as_tool`` takes.

    The path may be a URL that fsspec opens.

    >>> _ = Path("tools.json").write_text('[{"name": "send_mail"}]')
    >>> [tool.name for tool in read_tools("tools.json")]
    ['send_mail']

    Raises:
        InputError: the file cannot be read, is not a JSON list, or names a tool twice.
    """
    shard = path if isinstance(path, Shard) else open_shard(str(path))
    path = shard.name
    try:
        with shard.open() as stream:
            value = json.loads(stream.read())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({json_codec.explain(error)})") from error
    if isinstance(value, dict) and isinstance(value.get("tools"), list):
        value = value["tools"]
    if not isinstance(value, list):
        raise InputError(f"{path} must contain a JSON list of tools")
    try:
        return tuple(unique_tools(value).values())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def save_demonstrations(
    path: str | Path, demonstrations: Iterable[DemonstrationLike], *, force: bool = False
) -> int:
    """Write a file as a whole or not at all; returns how many demonstrations.

    JSON lines, or Parquet if its name ends in ``.parquet``. Other users cannot read a new file.

    Raises:
        InputError: the name ends in ``.gz``.
        OutputError: the file exists and ``force`` is False, or it cannot be written.
        MissingExtraError: pyarrow is needed and not installed.
    """
    if Path(path).suffix == ".gz":
        raise InputError(f"{path} would not be packed; leave out .gz, and run gzip on the file")
    with replace_file(path, force=force, private=True) as stream:
        items = as_demonstrations(demonstrations)
        if Path(path).suffix == parquet.SUFFIX:
            return parquet.write_parquet(stream.buffer, items)
        count = 0
        for demonstration in items:
            stream.buffer.write(json_codec.dumps(demonstration.to_dict()) + b"\n")
            count += 1
        return count


def save_tools(path: str | Path, tools: Iterable[ToolLike], *, force: bool = False) -> None:
    """Write ``tools.json`` as a whole or not at all.

    Raises:
        OutputError: the file exists and ``force`` is False, or it cannot be written.
    """
    with replace_file(path, force=force) as stream:
        json.dump(
            [tool.to_dict() for tool in as_tools(tools)], stream, ensure_ascii=False, indent=1
        )
        stream.write("\n")
