"""The file that demonstrations from feedback are appended to, for the next full fit."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from starlette.exceptions import HTTPException

from dtdr.demonstrations import Demonstration
from dtdr.errors import OutputError
from dtdr.server.logs import log
from dtdr.traces.redaction import Redactor
from dtdr.traces.turns import CutOptions, Cutter


class FeedbackLog:
    """A ``demonstrations.jsonl`` whose lines are whole and whose ids differ.

    Half a line at the end, which a crash left, is cut off: it was never acknowledged.

    Args:
        path: of the file, which is made where there is none.
        redact: scrub secrets and personal data from what is appended.

    Raises:
        OutputError: it cannot be read or written.
    """

    def __init__(self, path: Path, *, redact: bool = True) -> None:
        self.path = path
        self._cutter = Cutter(CutOptions(), Redactor(), "feedback") if redact else None
        self._ids: set[str] = set()
        self._lock = threading.Lock()
        try:
            with path.open("a+b") as stream:
                stream.seek(0)
                end = 0
                line = b""
                for line in stream:
                    end += len(line)
                    self._ids.add(_id(line))
                if line and not line.endswith(b"\n"):
                    if _id(line):
                        stream.write(b"\n")
                    else:
                        stream.truncate(end - len(line))
                        log("half a line was cut off", level=logging.WARNING, file=str(path))
        except OSError as error:
            raise self._error(error) from error

    def scrub(self, demonstrations: Sequence[Demonstration]) -> list[Demonstration]:
        """What may be appended of demonstrations; slow for long ones, to be called in a thread."""
        if self._cutter is None:
            return list(demonstrations)
        return list(map(self._cutter.scrub, demonstrations))

    def reserve(self, demonstrations: Sequence[Demonstration]) -> None:
        """Take the ids of demonstrations that will be appended.

        Raises:
            HTTPException: an id is there already, or occurs twice; none was taken.
        """
        taken: set[str] = set()
        for number, item in enumerate(demonstrations):
            if item.id in self._ids or item.id in taken:
                raise HTTPException(
                    409,
                    f"demonstrations.{number}: a demonstration with this id was sent before; leave "
                    "the id out, or give another",
                )
            taken.add(item.id)
        self._ids |= taken

    def release(self, demonstrations: Sequence[Demonstration]) -> None:
        """Give ids back that were not appended."""
        self._ids.difference_update(item.id for item in demonstrations)

    def append(self, demonstrations: Sequence[Demonstration]) -> None:
        """Add lines and wait until the disk has them; all or none.

        Raises:
            OutputError: it cannot be written.
        """
        lines = (json.dumps(item.to_dict(), separators=(",", ":")) for item in demonstrations)
        content = "".join(f"{line}\n" for line in lines).encode()
        try:
            with self._lock, self.path.open("ab", buffering=0) as stream:
                end = stream.tell()
                try:
                    written = 0
                    while written < len(content):
                        written += stream.write(content[written:])
                    os.fsync(stream.fileno())
                except OSError:
                    stream.truncate(end)
                    raise
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> OutputError:
        return OutputError(f"cannot write {self.path}: {(error.strerror or str(error)).lower()}")


def _id(line: bytes) -> str:
    """The id of a line; empty where it is not one demonstration."""
    try:
        return str(json.loads(line)["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
