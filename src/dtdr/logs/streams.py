"""Reads logs record by record: JSON lines or one JSON document, from files or pipes."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from dtdr.data import json_codec
from dtdr.data.jsonl import BadRecords, iter_lines, leave_out
from dtdr.data.shards import Shard, local_shard
from dtdr.logs.documents import HEAD_BYTES, is_document, iter_items
from dtdr.logs.log_format import TraceFormat

STANDARD_INPUT = Path("-")
"""What users write for standard input."""


class LogReader:
    """Yields ``(record, raw bytes, (file number, line or item from 1))`` for every record.

    A pipe is copied to a temporary file first, since a log is read twice: to find its format, and
    to import it.

    Args:
        paths: log files, named pipes, or ``-`` for standard input; plain or gzipped.

    Raises:
        InputError: a file cannot be read, a document is not JSON, or a line is not and ``bad`` is
            None.
    """

    format: TraceFormat
    """Decodes lines and knows the wrappers of its exports; to be set before reading."""
    bad: BadRecords | None = None
    """Lines that are not JSON, or too long, are counted there."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.records = 0
        self.read_bytes = 0
        """Bytes of the records up to now."""
        self._documents: set[int] = set()
        self._spools: dict[Path, IO[bytes]] = {}

    def first_records(
        self, decode: Callable[[bytes], Any], wrappers: Mapping[str, str], count: int = 20
    ) -> list[Any]:
        """The first records of the first log that holds any.

        Args:
            decode: reads a line; a line for which it raises ValueError is passed over.
            wrappers: keys under which a JSON document may have a list of records.
            count: how many.
        """
        for shard in map(self._shard, self.paths):
            lines = _head(shard, count)
            if is_document(lines[:2]):
                with shard.open() as stream:
                    records = list(islice(iter_items(shard.name, stream, wrappers), count))
            else:
                records = []
                for line in lines:
                    with contextlib.suppress(ValueError, RecursionError):
                        records.append(decode(line))
            if records:
                return records
        return []

    def __iter__(self) -> Iterator[tuple[Any, bytes, tuple[int, int]]]:
        for number, shard in enumerate(map(self._shard, self.paths)):
            is_whole = is_document(_head(shard, 2))
            if is_whole:
                self._documents.add(number)
            for item, record, raw in self._document(shard) if is_whole else self._lines(shard):
                self.records += 1
                self.read_bytes += len(raw)
                yield record, raw, (number, item)

    def where(self, place: tuple[int, int]) -> str:
        """``file:line`` of a record, or ``file, item n`` in a JSON document."""
        file, number = place
        between = ", item " if file in self._documents else ":"
        return f"{self.paths[file]}{between}{number}"

    def _lines(self, shard: Shard) -> Iterator[tuple[int, Any, bytes]]:
        for number, line in iter_lines(shard, self.bad):
            try:
                record = self.format.decode(line)
            except (ValueError, RecursionError) as error:
                reason = f"not a line of JSON ({json_codec.explain(error)})"
                leave_out(f"{shard.name}:{number}: {reason}", self.bad)
                continue
            if record is not None:
                yield number, record, line

    def _document(self, shard: Shard) -> Iterator[tuple[int, Any, bytes]]:
        with shard.open() as stream:
            items = iter_items(shard.name, stream, self.format.wrappers)
            for number, record in enumerate(items, start=1):
                yield number, record, json_codec.dumps(record)

    def _shard(self, path: Path) -> Shard:
        if not is_pipe(path):
            return local_shard(str(path))
        if path not in self._spools:
            self._spools[path] = spool = tempfile.NamedTemporaryFile()  # noqa: SIM115  # kept
            with contextlib.ExitStack() as stack:
                is_input = path == STANDARD_INPUT
                source = sys.stdin.buffer if is_input else stack.enter_context(path.open("rb"))
                shutil.copyfileobj(source, spool)
            spool.flush()
        return local_shard(str(path), Path(self._spools[path].name))


def _head(shard: Shard, count: int) -> list[bytes]:
    """The first lines that are not blank, or as much of one as is read at once."""
    lines: list[bytes] = []
    with shard.open() as stream:
        while len(lines) < count and (line := stream.readline(HEAD_BYTES)):
            if not line.isspace():
                lines.append(line.strip())
                if not line.endswith(b"\n"):
                    break
    return lines


def is_pipe(path: Path) -> bool:
    """Whether what is read there can be read once only."""
    return path == STANDARD_INPUT or path.is_fifo() or path.is_char_device()


def file_size(path: Path) -> int:
    """Bytes of a file as it lies on disk; 0 for a pipe."""
    return 0 if is_pipe(path) or not path.exists() else path.stat().st_size
