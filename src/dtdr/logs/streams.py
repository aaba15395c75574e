"""Reads logs record by record: JSON lines or one JSON document, from files or pipes."""

from __future__ import annotations

import codecs
import contextlib
import io
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from dtdr.data import json_codec
from dtdr.data.jsonl import BadRecords, decode_lines, longest_line, too_long
from dtdr.data.partials import TemporaryFolder
from dtdr.data.shards import Shard, local_shard, open_shard
from dtdr.errors import InputError
from dtdr.logs.documents import HEAD_BYTES, is_document, iter_items
from dtdr.logs.sources import STANDARD_INPUT, is_pipe, require_file, show


class LogReader:
    """Reads logs, as often as needed. A pipe is copied to a temporary file first.

    Args:
        paths: log files, their URLs, named pipes, or ``-`` for standard input; plain or gzipped.

    Raises:
        InputError: there is none, one is neither a file nor a pipe, or cannot be reached.
        MissingExtraError: one is a URL and fsspec is not installed.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.paths = [Path(path) for path in paths]
        for path in self.paths:
            require_file(path)
        if not self.paths:
            raise InputError("name at least one log file, or - for standard input")
        if self.paths.count(STANDARD_INPUT) > 1:
            raise InputError("standard input can be read once only; give - once")
        self.records = 0
        self.read_bytes = 0
        """Bytes of the records up to now."""
        self._documents: set[int] = set()
        self._spools: dict[Path, TemporaryFolder] = {}

    def read(
        self,
        decode: Callable[[bytes], Any],
        bad: BadRecords | None,
        read_file: Callable[[Path], Iterator[Any]] | None = None,
    ) -> Iterator[tuple[Any, bytes, tuple[int, int]]]:
        """Yield ``(record, raw bytes, (file number, line or item from 1))`` for every record.

        Args:
            decode: reads a line; gives None for a line to skip.
            bad: if given, counts lines that are not JSON, or too long.
            read_file: reads the records of a file that is not JSON.

        Raises:
            InputError: a file cannot be read, a document is not JSON, or a line is not and ``bad``
                is None.
        """
        self.records = self.read_bytes = 0
        for index, shard in enumerate(map(self._shard, self.paths)):
            head = [] if read_file is not None else _head(shard)
            records: Iterator[tuple[int, Any, bytes]]
            if read_file is not None:
                self._documents.add(index)
                each = enumerate(read_file(self.paths[index]), start=1)
                records = ((n, record, json_codec.dumps(record)) for n, record in each)
            elif head and head[0].startswith(_ZIP):
                self._documents.add(index)
                records = _zipped_records(shard)
            elif is_document(head):
                self._documents.add(index)
                records = _document_records(shard)
            else:
                records = decode_lines(shard, decode, bad)
            for item, record, raw in records:
                if record is None:
                    continue
                self.records += 1
                self.read_bytes += len(raw)
                yield record, raw, (index, item)

    def where(self, origin: tuple[int, int]) -> str:
        """``file:line`` of a record, or ``file, item n`` in a JSON document."""
        file, item = origin
        between = ", item " if file in self._documents else ":"
        return f"{show(self.paths[file])}{between}{item}"

    def _shard(self, path: Path) -> Shard:
        return recoded(self._plain_shard(path))

    def _plain_shard(self, path: Path) -> Shard:
        if not is_pipe(path):
            return open_shard(show(path))
        if path not in self._spools:
            self._spools[path] = TemporaryFolder("dtdr-pipe-")
            is_input = path == STANDARD_INPUT
            source: Any = sys.stdin.buffer if is_input else path.open("rb")
            with (
                contextlib.nullcontext() if is_input else source,
                self._copy(path).open("wb") as copy,
            ):
                while chunk := source.read1(1 << 20):  # a signal is seen after each chunk
                    copy.write(chunk)
        return local_shard(str(path), self._copy(path))

    def _copy(self, pipe: Path) -> Path:
        return self._spools[pipe].path / "log"


def _document_records(shard: Shard) -> Iterator[tuple[int, Any, bytes]]:
    with shard.open() as stream:
        for position, record in enumerate(iter_items(shard.name, stream), start=1):
            yield position, record, json_codec.dumps(record)


_ZIP = b"PK\x03\x04"
_MEMBERS = "samples/"
"""Folder of the records in a zip file, which is how Inspect writes its logs."""


def _zipped_records(shard: Shard) -> Iterator[tuple[int, Any, bytes]]:
    limit = longest_line()
    try:
        with shard.open() as stream, zipfile.ZipFile(stream) as archive:
            members = [m for m in archive.infolist() if m.filename.startswith(_MEMBERS)]
            for position, member in enumerate(members, start=1):
                if member.file_size > limit:
                    raise InputError(f"{shard.name}, {member.filename}: {too_long(limit)}")
                data = archive.read(member)
                yield position, json_codec.loads(data), data
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        raise InputError(
            f"cannot read {shard.name}: {json_codec.explain(error)}; convert it first, as in "
            "'inspect log dump FILE.eval > FILE.json'"
        ) from error


class _Recoded(io.RawIOBase):
    """A stream in another encoding as UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._waiting = b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read at most as many bytes as the buffer has."""
        while not self._waiting:
            data = self._stream.read(1 << 16)
            self._waiting = self._decoder.decode(data, final=not data).encode("utf-8", "replace")
            if not data:
                break
        size = min(len(buffer), len(self._waiting))
        buffer[:size] = self._waiting[:size]
        self._waiting = self._waiting[size:]
        return size


def recoded(shard: Shard) -> Shard:
    """A file as UTF-8 without a mark, also if it is UTF-16, as Windows PowerShell writes it."""

    @contextlib.contextmanager
    def open_file() -> Iterator[IO[bytes]]:
        with shard.open() as stream:
            begin = stream.peek(3)[:3] if hasattr(stream, "peek") else b""
            if begin[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                yield io.BufferedReader(_Recoded(stream, "utf-16"), 1 << 18)
                return
            if begin == codecs.BOM_UTF8:
                stream.read(3)
            yield stream

    return Shard(shard.name, open_file)


def _head(shard: Shard) -> list[bytes]:
    """The first two lines that are not blank, or as much of one as is read at once."""
    lines: list[bytes] = []
    with shard.open() as stream:
        while len(lines) < 2 and (line := stream.readline(HEAD_BYTES)):
            if not line.isspace():
                lines.append(line.strip())
                if not line.endswith(b"\n"):
                    break
    return lines
