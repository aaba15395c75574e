"""Demonstrations as Parquet files; needs ``pip install 'dtdr[parquet]'``.

A row is a demonstration; its columns are the keys of the JSON object, with ``parent_id`` and
``parent_call`` for ``parent``. The ``arguments`` and ``output`` of a call are JSON text, since they
differ by tool. So is ``offered``, since a text that repeats is stored and read once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import IO, Any

from dtdr.data import json_codec
from dtdr.data.demonstrations import Demonstration, read_offered
from dtdr.data.jsonl import longest_line
from dtdr.errors import InputError, MissingExtraError

SUFFIX = ".parquet"

_ROWS = 4_096
"""Rows of a batch: some megabytes."""
_FEW_ROWS = 64
"""Rows of a batch whose texts cannot be a dictionary."""

_LARGEST_GROUP = 1 << 30
"""Bytes of a decoded row group, which Arrow may decode in one piece."""
UNFOLDS = 200
"""Times its size that a file may be decoded to, in all row groups that are read."""
ROOM = 256_000_000
"""Bytes that it may be decoded to in addition."""
_VALUE_BYTES = 8
"""A value takes an index of 4 bytes and two levels of 2, even if it repeats."""

_WRITING: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}

NEEDED = ("id", "query", "calls")
"""Columns without which a row is not a demonstration, for ``iter_rows``."""
_PARENT = {"parent_id": "id", "parent_call": "call"}
COLUMNS = (*NEEDED, "before", "links", "source", "group", "outcome", *_PARENT, "time", "offered")
"""Every column of a demonstration, for ``iter_rows``."""
_JSON = ("arguments", "output")


def iter_rows(stream: IO[bytes], **options: Any) -> Iterator[dict[str, Any]]:
    """Yield rows of a Parquet file as objects; see ``iter_batches``."""
    for batch in iter_batches(stream, **options):
        yield from batch.to_pylist()


def iter_batches(
    stream: IO[bytes],
    *,
    known: Sequence[str] | None = None,
    needed: Sequence[str] = (),
    groups: Sequence[int] | None = None,
) -> Iterator[Any]:
    """Yield the rows of a Parquet file as record batches of a few megabytes.

    Texts that repeat stay one text, in a dictionary: 10 kB can contain 4 GB of them.

    Args:
        stream: the file.
        known: columns to read, if they are there; ``calls.tool`` is one field of the objects in a
            list. None for all.
        needed: columns that must be there.
        groups: row groups to read; None for all.

    Raises:
        InputError: the file is not Parquet, is not whole, lacks a column, has a row that is too
            large, or is decoded to too much.
        MissingExtraError: pyarrow is not installed.
    """
    arrow, parquet = _import_arrow()
    file, largest = _open(stream), longest_line()
    try:
        missing = [name for name in needed if name not in file.schema_arrow.names]
        if missing:
            raise InputError(f"it has no column {missing[0]!r}; needed are {', '.join(needed)}")
        schema = [file.schema.column(index) for index in range(file.metadata.num_columns)]
        paths = [column.path for column in schema]
        columns = paths if known is None else _columns_of(paths, known)
        _check_budget(file, stream.seek(0, os.SEEK_END), groups, columns)
        texts = [column.path for column in schema if column.physical_type == "BYTE_ARRAY"]
        compact = parquet.ParquetFile(
            stream, page_checksum_verification=True, read_dictionary=texts
        )
        done = 0
        try:
            for batch in compact.iter_batches(_ROWS, row_groups=groups, columns=columns):
                parts = list(_bounded_parts(batch, largest))
                done += len(batch)
                yield from parts
            return
        except arrow.ArrowNotImplementedError:
            pass  # of texts within lists, only some are in a dictionary
        for batch in file.iter_batches(_FEW_ROWS, row_groups=groups, columns=columns):
            rest = batch.slice(min(done, len(batch)))
            done -= len(batch) - len(rest)
            yield from _bounded_parts(rest, largest)
    except InputError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"it is not a whole Parquet file ({_first_line(error)})") from error


def _columns_of(paths: Sequence[str], known: Sequence[str]) -> list[str]:
    """Paths of the columns of these names; a field of objects in a list is the fourth step."""
    columns = []
    for name in known:
        column, *field = name.split(".")
        inside = [path for path in paths if path.split(".")[0] == column]
        columns += [path for path in inside if field and path.split(".")[3:] == field] or inside
    return columns


def _check_budget(
    file: Any, size: int, groups: Sequence[int] | None, columns: Sequence[str]
) -> None:
    """Check the decoded size of row groups and columns of a file, before anything is decoded.

    Raises:
        InputError: a row group, or the file of ``size`` bytes, is decoded to too much.
    """
    metadata = file.metadata
    total = 0
    for group in range(metadata.num_row_groups) if groups is None else groups:
        about = metadata.row_group(group)
        parts = map(about.column, range(metadata.num_columns))
        decoded = sum(
            part.total_uncompressed_size + _VALUE_BYTES * part.num_values
            for part in parts
            if part.path_in_schema in columns
        )
        total += decoded
        if decoded > _LARGEST_GROUP:
            raise InputError(
                f"a row group is decoded to more than {_LARGEST_GROUP:,} bytes; write smaller "
                "row groups"
            )
    if total > ROOM + UNFOLDS * size:
        raise InputError(
            f"it is decoded to more than {UNFOLDS} times its size and {ROOM:,} bytes; write it as "
            "lines of JSON"
        )


def _bounded_parts(batch: Any, largest: int) -> Iterator[Any]:
    """The batch in parts that are not too large; InputError if a row is."""
    if sum(map(_size, batch.columns)) <= largest:
        yield batch
    elif len(batch) == 1:
        raise InputError(f"a row has more than {largest:,} bytes")
    else:
        half = len(batch) // 2
        yield from _bounded_parts(batch.slice(0, half), largest)
        yield from _bounded_parts(batch.slice(half), largest)


def _size(array: Any) -> int:
    """About the bytes of a column as Python objects, with repeated texts."""
    import pyarrow.compute as compute
    from pyarrow import types

    kind = array.type
    size = 8 * len(array)
    if types.is_dictionary(kind):
        lengths = compute.binary_length(array.dictionary)
        return size + (compute.sum(lengths.take(array.indices)).as_py() or 0)
    if types.is_struct(kind):
        return size + sum(map(_size, array.flatten()))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        return size + _size(array.flatten())
    return size + int(array.nbytes)


def row_groups(stream: IO[bytes]) -> list[int]:
    """The number of rows of each row group of a Parquet file, without reading them.

    Raises:
        InputError: the file is not Parquet, or is not whole.
        MissingExtraError: pyarrow is not installed.
    """
    metadata = _open(stream).metadata
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def parse_row(row: Mapping[str, Any]) -> Demonstration:
    """The demonstration of a row; InputError as ``Demonstration.from_dict``."""
    record = {key: value for key, value in row.items() if value is not None}
    for key in ("before", "calls"):
        if isinstance(items := record.get(key), list):
            record[key] = list(map(_parse_call, items))
    if isinstance(text := record.get("offered"), str):
        record["offered"] = _parse_offered(text)
    parent = {key: record.pop(name) for name, key in _PARENT.items() if name in record}
    if parent:
        record["parent"] = parent
    return Demonstration.from_dict(record)


def write_parquet(stream: IO[bytes], demonstrations: Iterable[Demonstration]) -> int:
    """Write demonstrations as one Parquet file, compressed with zstd; returns how many.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    return write_tables(stream, iter_tables(demonstrations))


def iter_tables(demonstrations: Iterable[Demonstration]) -> Iterator[Any]:
    """Demonstrations as tables of Arrow, of some thousand rows each, for ``write_tables``.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow, _ = _import_arrow()
    schema = _schema(arrow)
    rows = ({**_row(item.to_dict()), "time": item.time} for item in demonstrations)
    while batch := list(islice(rows, _ROWS)):
        yield arrow.Table.from_pylist(batch, schema)


def write_tables(stream: IO[bytes], tables: Iterable[Any]) -> int:
    """Write tables as one Parquet file; returns the number of rows.

    The file does not depend on how rows are divided into tables.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow, parquet = _import_arrow()
    count, waiting = 0, _schema(arrow).empty_table()
    with parquet.ParquetWriter(stream, waiting.schema, **_WRITING) as writer:
        for table in tables:
            count += len(table)
            waiting = arrow.concat_tables([waiting, table])
            while len(waiting) >= _ROWS:
                writer.write_table(waiting.slice(0, _ROWS).combine_chunks())
                waiting = waiting.slice(_ROWS)
        if len(waiting):
            writer.write_table(waiting.combine_chunks())
    return count


def copy_rows(source: IO[bytes], target: IO[bytes], keep: Sequence[bool]) -> None:
    """Copy the rows of a Parquet file to ``keep``, with all columns.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow, parquet = _import_arrow()
    file = parquet.ParquetFile(source, page_checksum_verification=True)
    start = 0
    with parquet.ParquetWriter(target, file.schema_arrow, **_WRITING) as writer:
        for batch in file.iter_batches(_ROWS):
            kept = batch.filter(arrow.array(keep[start : start + batch.num_rows]))
            start += batch.num_rows
            if kept.num_rows:
                writer.write_batch(kept)


class _FooterIsSoundError(Exception):
    """pyarrow asked for data, so the footer passed its checks."""


class _NoData:
    """A file that cannot be read."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int) -> bytes:
        raise _FooterIsSoundError


def _open(stream: IO[bytes]) -> Any:
    """The Parquet file in a stream, after a check of its whole footer.

    pyarrow ends the process if it is asked about a column whose level histograms have the wrong
    size. Starting to read the data makes the same check of every column, and raises.

    Raises:
        InputError: the file is not Parquet, or is not whole.
        MissingExtraError: pyarrow is not installed.
    """
    arrow, parquet = _import_arrow()
    try:
        file = parquet.ParquetFile(stream, page_checksum_verification=True)
        without = arrow.PythonFile(_NoData(stream), "r")
        with contextlib.suppress(_FooterIsSoundError):
            next(parquet.ParquetFile(without, metadata=file.metadata).iter_batches(), None)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"it is not a whole Parquet file ({_first_line(error)})") from error
    return file


def _import_arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Parquet", "parquet", "pyarrow") from error
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any) -> Any:
    text, int64 = arrow.string(), arrow.int64()
    call = dict.fromkeys(("id", "tool", "arguments"), text)
    call |= {"step": int64, "output": text, "output_length": int64, "status": text, "text": text}
    message = {"role": text, "content": text, **call}
    return arrow.schema(
        {
            "id": text,
            "query": text,
            "before": arrow.list_(arrow.struct(message)),
            "calls": arrow.list_(arrow.struct(call)),
            "links": arrow.list_(arrow.list_(text)),
            **dict.fromkeys(("source", "group", "outcome", *_PARENT), text),
            "time": arrow.timestamp("us", "UTC"),
            "offered": text,
        }
    )


def _row(record: dict[str, Any]) -> dict[str, Any]:
    parent = record.pop("parent", {})
    record.update((name, parent.get(key)) for name, key in _PARENT.items())
    if "offered" in record:
        record["offered"] = json_codec.dumps(record["offered"]).decode()
    for key in ("before", "calls"):
        for item in record.get(key, ()):
            for name in _JSON:
                if name in item:
                    item[name] = json_codec.dumps(item[name]).decode()
    return record


@lru_cache(maxsize=1_024)
def _parse_offered(text: str) -> frozenset[str] | None:
    try:
        return read_offered(json_codec.loads(text))
    except (ValueError, RecursionError):
        raise InputError(f"'offered' must be a JSON list of names, not {text[:40]!r}") from None


def _parse_call(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    call = {key: value for key, value in item.items() if value is not None}
    for name in _JSON:
        text = call.get(name)
        if isinstance(text, str):
            try:
                call[name] = json_codec.loads(text)
            except (ValueError, RecursionError):
                raise InputError(
                    f"the {name} of call {call.get('id')!r} must be JSON text, not {text[:40]!r}"
                ) from None
    return call


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
