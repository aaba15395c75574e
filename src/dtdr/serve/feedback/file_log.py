"""Feedback in a ``demonstrations.jsonl``: one process appends, others may read."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from dtdr.data.files import explain_os_errors, lock_file, open_private
from dtdr.errors import InputError, OutputError, cannot_read
from dtdr.serve.feedback.log import DuplicateError, Entry, FeedbackLog, parse

logger = logging.getLogger("dtdr.feedback")


class FileLog(FeedbackLog):
    """A ``demonstrations.jsonl`` with whole lines and different ids.

    A crash may leave half a line at the end, which was never acknowledged and is cut off. From
    ``prepare`` or the first ``append`` until ``close``, a lock file keeps other processes from
    appending.

    Args:
        path: of the file, which may be new.
        redact: remove secrets and personal data.
    """

    def __init__(self, path: Path, *, redact: bool = True) -> None:
        super().__init__(redact=redact)
        self.path = path
        self._ids: set[str] | None = None
        self._lock = threading.Lock()
        self._lock_file: IO[bytes] | None = None

    def prepare(self) -> set[str]:
        """Lock the file and read its ids.

        Raises:
            OutputError: it cannot be read or written, or another process appends to it.
        """
        ids: set[str] = set()
        with explain_os_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._lock_file is None:
                self._lock_file = self._acquire()
            with open(self.path, "a+b", opener=open_private) as stream:
                stream.seek(0)
                end, line = 0, b""
                for line in stream:
                    end += len(line)
                    ids.add(_id(line))
                if line and not line.endswith(b"\n"):
                    if _id(line):
                        stream.write(b"\n")
                    else:
                        stream.truncate(end - len(line))
                        logger.warning("half a line of %s was cut off", self.path)
        self._ids = ids
        return ids

    def close(self) -> None:
        """Let others append."""
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = self._ids = None

    def _acquire(self) -> IO[bytes]:
        stream = self.path.with_name(f"{self.path.name}.lock").open("ab")
        try:
            lock_file(stream, wait=False)
        except BlockingIOError as error:
            stream.close()
            raise OutputError(
                f"another process appends to {self.path}; give each server its own file, or a "
                "Redis that they share"
            ) from error
        return stream

    def _append(self, ids: Sequence[str], records: Sequence[str]) -> None:
        """Add lines, and wait for the disk; see ``FeedbackLog``."""
        with self._lock:
            known = self.prepare() if self._ids is None else self._ids
            for position, identifier in enumerate(ids):
                if identifier in known:
                    raise DuplicateError(position)
            self._write("".join(f"{line}\n" for line in records).encode())
            known.update(ids)

    def _write(self, content: bytes) -> None:
        with (
            explain_os_errors(self.path),
            open(self.path, "ab", buffering=0, opener=open_private) as stream,
        ):
            lock_file(stream)  # readers wait, since a failed write is cut off
            end = stream.tell()
            try:
                written = 0
                while written < len(content):
                    written += stream.write(content[written:])
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(end)
                raise

    def read(self, position: str, limit: int) -> list[Entry]:
        """The next whole lines; a position is the number of bytes before it.

        Raises:
            InputError: the position is of another log, or the file is missing or cannot be read.
        """
        if not (position or "0").isdecimal():
            raise InputError(
                f"{position} is not a position of {self.path}; name the log in Redis that was read "
                "before, or delete MODEL.versions to begin again"
            )
        start = int(position or 0)
        entries: list[Entry] = []
        try:
            with self.path.open("rb") as stream:
                lock_file(stream, shared=True)
                stream.seek(max(0, start - 1))
                if start and stream.read(1) != b"\n":
                    raise InputError(
                        f"{self.path} is shorter than what was read of it, or another file; append "
                        "to a log, and never replace it, or delete MODEL.versions to begin again"
                    )
                for line in stream:
                    if len(entries) == limit or not line.endswith(b"\n"):
                        break
                    start += len(line)
                    if line.strip():
                        item, sender = parse(line)
                        entries.append(Entry(str(start), item, sender=sender))
        except FileNotFoundError:
            if start:
                raise InputError(f"{self.path}, which was read before, is not there") from None
        except OSError as error:
            raise cannot_read(self.path, error) from error
        return entries


def _id(line: bytes) -> str:
    """The id of a line; empty for half a line."""
    try:
        return str(json.loads(line)["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
