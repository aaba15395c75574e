"""Reads logs record by record: JSON lines or one JSON document, from files or pipes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dtdr.data import json_codec
from dtdr.data.jsonl import BadRecords, decode_lines
from dtdr.data.partials import TemporaryFolder
from dtdr.data.shards import Shard, local_shard
from dtdr.errors import InputError
from dtdr.logs.documents import HEAD_BYTES, is_document, iter_items

STANDARD_INPUT = Path("-")
"""What users write for standard input."""


class LogReader:
    """Reads logs, as often as needed. A pipe is copied to a temporary file first.

    Args:
        paths: log files, named pipes, or ``-`` for standard input; plain or gzipped.

    Raises:
        InputError: there is none, or one is neither a file nor a pipe.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.paths = [Path(path) for path in paths]
        for path in self.paths:
            if not path.is_file() and not is_pipe(path):
                reason = "it is a folder" if path.is_dir() else "no such file or directory"
                raise InputError(f"cannot read {path}: {reason}")
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
        self, decode: Callable[[bytes], Any], bad: BadRecords | None
    ) -> Iterator[tuple[Any, bytes, tuple[int, int]]]:
        """Yield ``(record, raw bytes, (file number, line or item from 1))`` for every record.

        Args:
            decode: reads a line; gives None for a line to skip.
            bad: if given, counts lines that are not JSON, or too long.

        Raises:
            InputError: a file cannot be read, a document is not JSON, or a line is not and ``bad``
                is None.
        """
        self.records = self.read_bytes = 0
        for number, shard in enumerate(map(self._shard, self.paths)):
            if is_document(_head(shard)):
                self._documents.add(number)
                records = _document_records(shard)
            else:
                records = decode_lines(shard, decode, bad)
            for item, record, raw in records:
                if record is None:
                    continue
                self.records += 1
                self.read_bytes += len(raw)
                yield record, raw, (number, item)

    def where(self, place: tuple[int, int]) -> str:
        """``file:line`` of a record, or ``file, item n`` in a JSON document."""
        file, number = place
        between = ", item " if file in self._documents else ":"
        return f"{self.paths[file]}{between}{number}"

    def _shard(self, path: Path) -> Shard:
        if not is_pipe(path):
            return local_shard(str(path))
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
        for number, record in enumerate(iter_items(shard.name, stream), start=1):
            yield number, record, json_codec.dumps(record)


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


def is_pipe(path: Path) -> bool:
    """Whether a path can be read only once."""
    return path == STANDARD_INPUT or path.is_fifo() or path.is_char_device()


def file_size(path: Path) -> int:
    """Bytes of a file on disk; 0 for a pipe."""
    return 0 if is_pipe(path) or not path.exists() else path.stat().st_size
