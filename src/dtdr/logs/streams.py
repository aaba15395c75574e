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
from pathlib import Path
from typing import IO, Any, cast

from dtdr.data import json_codec
from dtdr.data.jsonl import iter_bounded_lines, longest_line, too_long
from dtdr.errors import InputError
from dtdr.logs.documents import HEAD_BYTES, first_items, is_document, iter_items
from dtdr.logs.log_format import TraceFormat

STANDARD_INPUT = Path("-")
"""What users write for standard input."""

UNFOLDS = 200
"""Times its size that a compressed log may have. Chat logs that repeat themselves have 100."""
ROOM = 64_000_000
"""Bytes that a compressed log may have besides."""
BLANK_LINE = 100
"""Bytes of that budget that a blank line takes, since it takes as long as this many."""


@dataclass(slots=True)
class Position:
    """How far reading has come: file number, bytes (lines) or records (a document), line."""

    file: int = 0
    offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Stands in the stream for a record that is not JSON."""

    reason: str


class LogReader:
    """Yields ``(record, raw bytes, (file number, line or item from 1))`` for every record.

    ``position`` and ``read_bytes`` say how far it has come; set ``position`` to go on from there.

    Args:
        paths: log files, named pipes, or ``-`` for standard input; plain or gzipped.

    Raises:
        InputError: a file cannot be read, or a document is not JSON.
    """

    format: TraceFormat
    """Decodes lines and knows the wrappers of its exports; to be set before reading."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.position = Position()
        self.documents = [False] * len(paths)
        self.read_bytes = 0
        """Bytes read from the files as they lie on disk, compressed or not."""
        self.has_pipes = any(map(is_pipe, paths))
        self._opened: dict[int, _Log] = {}

    def first_records(
        self, decode: Callable[[bytes], Any], wrappers: Mapping[str, str], count: int = 20
    ) -> list[Any]:
        """The first records of the first log that holds any, without losing those of a pipe.

        Args:
            decode: reads a line; a line for which it raises ValueError is passed over.
            wrappers: keys under which a JSON document may have a list of records.
            count: how many.
        """
        for number, path in enumerate(self.paths):
            log = self._log(number)
            lines = log.head(count)
            if is_document(lines[:2]):
                records = first_items(path, log.whole(), wrappers, count)
            else:
                records = []
                for line in lines:
                    with contextlib.suppress(ValueError, RecursionError):
                        records.append(decode(line))
            if not is_pipe(path):
                self._opened.pop(number).close()
            if records:
                return records
        return []

    def __iter__(self) -> Iterator[tuple[Any, bytes, tuple[int, int]]]:
        first = self.position.file
        done = sum(map(file_size, self.paths[:first]))
        for number in range(first, len(self.paths)):
            if number > first:
                self.position = Position(number)
            path = self.paths[number]
            log = self._log(number)
            try:
                if is_document(log.head(2)):
                    self.documents[number] = True
                    records = self._document(path, log.whole())
                else:
                    records = self._lines(log)
                for record in records:
                    self.read_bytes = done + log.tell()
                    yield record
            except (OSError, EOFError, zlib.error) as error:
                raise InputError(f"cannot read {path}: {_reason(error)}") from error
            finally:
                self._opened.pop(number).close()
            done += file_size(path)
            self.read_bytes = done

    def _log(self, number: int) -> _Log:
        if number not in self._opened:
            self._opened[number] = _Log(self.paths[number])
        return self._opened[number]

    def where(self, place: tuple[int, int]) -> str:
        """``file:line`` of a record, or ``file, item n`` in a JSON document."""
        file, number = place
        between = ", item " if self.documents[file] else ":"
        return f"{self.paths[file]}{between}{number}"

    def _lines(self, log: _Log) -> Iterator[tuple[Any, bytes, tuple[int, int]]]:
        position, decode = self.position, self.format.decode
        limit = longest_line()
        for line, size in iter_bounded_lines(log.read_line_from(position.offset), limit):
            position.offset += size
            position.line += 1
            place = (position.file, position.line)
            record: Any
            if line is None:
                yield BadRecord(too_long(limit)), b"", place
                continue
            if line.isspace():
                log.note_blank()
                continue
            try:
                record = decode(line)
            except (ValueError, RecursionError) as error:
                record = BadRecord(f"not a line of JSON ({json_codec.explain(error)})")
            if record is not None:
                yield record, line, place

    def _document(
        self, path: Path, stream: IO[bytes]
    ) -> Iterator[tuple[Any, bytes, tuple[int, int]]]:
        position, skipped = self.position, self.position.offset
        for number, record in enumerate(iter_items(path, stream, self.format.wrappers), start=1):
            if number <= skipped:
                continue
            position.offset = position.line = number
            yield record, json_codec.dumps(record), (position.file, number)


def is_pipe(path: Path) -> bool:
    """Whether what is read there can be read once only."""
    return path == STANDARD_INPUT or path.is_fifo() or path.is_char_device()


def file_size(path: Path) -> int:
    """Bytes of a file as it lies on disk; 0 for a pipe."""
    return 0 if is_pipe(path) or not path.exists() else path.stat().st_size


class _Log:
    """An open log, decompressed; the first lines of a pipe are kept until they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_pipe = is_pipe(path)
        self._begin: list[bytes] = []
        self._spool: IO[bytes] | None = None
        try:
            if path == STANDARD_INPUT:
                self._disk: Any = io.BufferedReader(sys.stdin.buffer, 1 << 16)
            else:
                self._disk = path.open("rb")
            if self._is_pipe:
                packed = self._disk.peek(2)[:2] == b"\x1f\x8b"
            else:
                packed = self._disk.read(2) == b"\x1f\x8b"
                self._disk.seek(0)
        except OSError as error:
            raise InputError(f"cannot read {path}: {_reason(error)}") from error
        self._unpacked = _Unpacked(self._disk, path) if packed else None
        # A larger buffer than gzip's own: line by line it would decompress 8 kB at a time.
        self._stream: Any = io.BufferedReader(self._unpacked, 1 << 18) if packed else self._disk
        self._blank = 0

    def head(self, count: int) -> list[bytes]:
        """The first lines that are not blank, or as much of one as is read at once."""
        begin = self._begin
        try:
            if not self._is_pipe:
                self._stream.seek(0)
                begin.clear()
            told = sum(not line.isspace() for line in begin)
            while told < count and (not begin or begin[-1].endswith(b"\n")):
                line = self._stream.readline(HEAD_BYTES)
                if not line:
                    break
                if is_blank := line.isspace():
                    self.note_blank()
                told += not is_blank
                if self._is_pipe or not is_blank:
                    begin.append(line)
            self._blank = 0
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"cannot read {self.path}: {_reason(error)}") from error
        return [line.strip() for line in begin if not line.isspace()][:count]

    def note_blank(self) -> None:
        """Count a blank line.

        Raises:
            InputError: there are too many for a compressed log of its size.
        """
        self._blank += 1
        if self._unpacked is not None:
            self._unpacked.check(self._blank * BLANK_LINE)

    def read_line_from(self, offset: int) -> Callable[[int], bytes]:
        """Reads line by line, this many bytes of each; from an offset if it is a file."""
        if not self._is_pipe:
            self._stream.seek(offset)
            readline: Callable[[int], bytes] = self._stream.readline
            return readline
        begin, rest = io.BytesIO(b"".join(self._begin)), self._stream

        def read_line(limit: int) -> bytes:
            # The last line that was looked at may be the beginning of a longer one.
            line = begin.readline(limit)
            is_whole = line.endswith(b"\n") or len(line) == limit
            return line if is_whole else line + rest.readline(limit - len(line))

        return read_line

    def whole(self) -> IO[bytes]:
        """The log as a file that can be read twice; a pipe goes to a temporary one."""
        stream: IO[bytes] = self._stream
        if self._is_pipe:
            if self._spool is None:
                self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
                self._spool.writelines(self._begin)
                shutil.copyfileobj(self._stream, self._spool)
            stream = self._spool
        stream.seek(0)
        return stream

    def tell(self) -> int:
        """Bytes read so far as they lie on disk; 0 for a pipe."""
        return 0 if self._is_pipe else int(self._disk.tell())

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()
        if self.path != STANDARD_INPUT:
            self._stream.close()
            self._disk.close()


class _Unpacked(gzip.GzipFile):
    """A compressed log, which may unfold to ``UNFOLDS`` times what was read of it, and ``ROOM``."""

    def __init__(self, disk: Any, path: Path) -> None:
        self._packed = _Counted(disk)
        self._path = path
        super().__init__(fileobj=cast(Any, self._packed))

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
        if size > ROOM + UNFOLDS * self._packed.count:
            raise InputError(
                f"{self._path} unfolds to more than {UNFOLDS} times its size and {ROOM:,} bytes; "
                "unpack it first if it is meant to"
            )


class _Counted:
    """Counts the bytes that gzip reads."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._disk.read(size)
        self.count += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET and offset == 0:
            self.count = 0
        return int(self._disk.seek(offset, whence))


def _reason(error: Exception) -> str:
    if isinstance(error, (EOFError, zlib.error)):
        return "the compressed data is damaged or cut off"
    return (getattr(error, "strerror", None) or str(error)).lower()
