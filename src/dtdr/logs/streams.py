"""Reads logs record by record: JSON lines or one JSON document, from files or pipes."""

from __future__ import annotations

import contextlib
import gzip
import io
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from dtdr.data import json_codec
from dtdr.data.jsonl import iter_bounded_lines, longest_line, too_long
from dtdr.errors import InputError
from dtdr.logs.documents import HEAD_BYTES, is_document, iter_items
from dtdr.logs.log_format import TraceFormat

STANDARD_INPUT = Path("-")
"""What users write for standard input."""

UNFOLDS = 200
"""Times its size that a compressed log may have. Chat logs that repeat themselves have 100."""
ROOM = 64_000_000
"""Bytes that a compressed log may have besides."""
BLANK_LINE = 100
"""Bytes of that budget that a blank line takes, since it takes as long as this many."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Stands in the stream for a record that is not JSON."""

    reason: str


class LogReader:
    """Yields ``(record, raw bytes, (file number, line or item from 1))`` for every record.

    A pipe is copied to a temporary file first, since a log is read twice: to find its format, and
    to import it.

    Args:
        paths: log files, named pipes, or ``-`` for standard input; plain or gzipped.

    Raises:
        InputError: a file cannot be read, or a document is not JSON.
    """

    format: TraceFormat
    """Decodes lines and knows the wrappers of its exports; to be set before reading."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.read_bytes = 0
        """Bytes read from the files as they lie on disk, compressed or not."""
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
        for path in self.paths:
            with self._open(path) as log:
                lines = log.head(count)
                if is_document(lines[:2]):
                    records = list(islice(iter_items(path, log.stream, wrappers), count))
                else:
                    records = []
                    for line in lines:
                        with contextlib.suppress(ValueError, RecursionError):
                            records.append(decode(line))
            if records:
                return records
        return []

    def __iter__(self) -> Iterator[tuple[Any, bytes, tuple[int, int]]]:
        done = 0
        for number, path in enumerate(self.paths):
            with self._open(path) as log:
                if is_document(log.head(2)):
                    self._documents.add(number)
                    records = self._document(log)
                else:
                    records = self._lines(log)
                for item, (record, raw) in records:
                    self.read_bytes = done + log.tell()
                    yield record, raw, (number, item)
            done += file_size(path)
            self.read_bytes = done

    @contextlib.contextmanager
    def _open(self, path: Path) -> Iterator[_Log]:
        try:
            if is_pipe(path) and path not in self._spools:
                self._spools[path] = _spool(path)
            with contextlib.closing(_Log(path, self._spools.get(path))) as log:
                yield log
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"cannot read {path}: {_reason(error)}") from error

    def where(self, place: tuple[int, int]) -> str:
        """``file:line`` of a record, or ``file, item n`` in a JSON document."""
        file, number = place
        between = ", item " if file in self._documents else ":"
        return f"{self.paths[file]}{between}{number}"

    def _lines(self, log: _Log) -> Iterator[tuple[int, tuple[Any, bytes]]]:
        decode, limit = self.format.decode, longest_line()
        for number, (line, _) in enumerate(iter_bounded_lines(log.stream.readline, limit), start=1):
            record: Any
            if line is None:
                yield number, (BadRecord(too_long(limit)), b"")
                continue
            if line.isspace():
                log.note_blank()
                continue
            try:
                record = decode(line)
            except (ValueError, RecursionError) as error:
                record = BadRecord(f"not a line of JSON ({json_codec.explain(error)})")
            if record is not None:
                yield number, (record, line)

    def _document(self, log: _Log) -> Iterator[tuple[int, tuple[Any, bytes]]]:
        items = iter_items(log.path, log.stream, self.format.wrappers)
        return enumerate(((item, json_codec.dumps(item)) for item in items), start=1)


def is_pipe(path: Path) -> bool:
    """Whether what is read there can be read once only."""
    return path == STANDARD_INPUT or path.is_fifo() or path.is_char_device()


def file_size(path: Path) -> int:
    """Bytes of a file as it lies on disk; 0 for a pipe."""
    return 0 if is_pipe(path) or not path.exists() else path.stat().st_size


def _spool(path: Path) -> IO[bytes]:
    """A temporary file with what comes through a pipe."""
    spool = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the reader
    with contextlib.ExitStack() as stack:
        is_input = path == STANDARD_INPUT
        source = sys.stdin.buffer if is_input else stack.enter_context(path.open("rb"))
        shutil.copyfileobj(source, spool)
    return spool


class _Log:
    """An open log, decompressed, at its beginning.

    Args:
        path: names the log.
        spool: has its content; else the file has it.
    """

    def __init__(self, path: Path, spool: IO[bytes] | None) -> None:
        self.path = path
        self._is_pipe = spool is not None
        self._disk: Any = spool or path.open("rb")
        self._disk.seek(0)
        packed = self._disk.read(2) == b"\x1f\x8b"
        self._disk.seek(0)
        self._unpacked = _Unpacked(self._disk, path) if packed else None
        # A larger buffer than gzip's own: line by line it would decompress 8 kB at a time.
        self.stream: Any = io.BufferedReader(self._unpacked, 1 << 18) if packed else self._disk
        self._blank = 0

    def head(self, count: int) -> list[bytes]:
        """The first lines that are not blank, or as much of one as is read at once."""
        lines: list[bytes] = []
        while len(lines) < count and (line := self.stream.readline(HEAD_BYTES)):
            if line.isspace():
                self.note_blank()
                continue
            lines.append(line.strip())
            if not line.endswith(b"\n"):
                break
        self.stream.seek(0)
        self._blank = 0
        return lines

    def note_blank(self) -> None:
        """Count a blank line.

        Raises:
            InputError: there are too many for a compressed log of its size.
        """
        self._blank += 1
        if self._unpacked is not None:
            self._unpacked.check(self._blank * BLANK_LINE)

    def tell(self) -> int:
        """Bytes read so far as they lie on disk; 0 for a pipe."""
        return 0 if self._is_pipe else int(self._disk.tell())

    def close(self) -> None:
        """Close the file; what came through a pipe stays, to be read again."""
        if not self._is_pipe:
            self.stream.close()
            self._disk.close()


class _Unpacked(gzip.GzipFile):
    """A compressed log, which may unfold to ``UNFOLDS`` times what was read of it, and ``ROOM``."""

    def __init__(self, disk: Any, path: Path) -> None:
        self._packed = disk
        self._path = path
        super().__init__(fileobj=disk)

    def read(self, size: int | None = -1) -> bytes:
        """At most this many bytes; see ``check``."""
        data = super().read(size)
        self.check(self.tell())
        return data

    def check(self, size: int) -> None:
        """Refuse to unpack more than the log may have.

        Args:
            size: bytes that it has up to now.

        Raises:
            InputError: these are too many.
        """
        if size > ROOM + UNFOLDS * int(self._packed.tell()):
            raise InputError(
                f"{self._path} unfolds to more than {UNFOLDS} times its size and {ROOM:,} bytes; "
                "unpack it first if it is meant to"
            )


def _reason(error: Exception) -> str:
    if isinstance(error, (EOFError, zlib.error)):
        return "the compressed data is damaged or cut off"
    return (getattr(error, "strerror", None) or str(error)).lower()
