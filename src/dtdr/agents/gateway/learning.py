"""Records the calls that pass through as demonstrations, in a local file."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import anyio

from dtdr.data import json_codec
from dtdr.data.demonstrations import Demonstration
from dtdr.errors import DtdrError, InputError, OutputError
from dtdr.logs.cut_options import CutOptions, Outputs
from dtdr.logs.log_format import Trace, TracedCall, UserMessage
from dtdr.logs.redaction import Redactor
from dtdr.logs.turns import Cutter

logger = logging.getLogger("dtdr.mcp")

SOURCE = "dtdr mcp"

MAX_WAITING = 10_000
"""Runs that wait to be recorded."""

MAX_WAITING_CHARACTERS = 50_000_000
"""Of these runs together."""

CLOSE_SECONDS = 3.0
"""Time to record the waiting runs at the end; a run takes about 0.1 ms."""


class Recorder:
    """Appends one demonstration a run to a ``demonstrations.jsonl`` file.

    References, failures and secrets are treated as ``dtdr import`` treats them. Several gateways
    may append to one file.

    Args:
        path: the file; created when the first run ends.
        stand_in: the query of runs where the client named none.
        redact: scrub secrets and personal data before anything is written.
        outputs: what is written of the calls' outputs.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        stand_in: str,
        redact: bool = True,
        outputs: Outputs = Outputs.TEXT,
    ) -> None:
        self.path = Path(path)
        self._cutter = Cutter(
            CutOptions(query=stand_in, outputs=outputs),
            Redactor() if redact else None,
            SOURCE,
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8"):
                pass
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def record(self, texts: Sequence[str], calls: Sequence[TracedCall]) -> list[Demonstration]:
        """Write a run that has ended; gives back what was written: nothing for a run of no calls.

        Args:
            texts: what the user wanted, as far as the client said.
            calls: in the order they were made.

        Raises:
            OutputError: the file cannot be written.
        """
        said = [UserMessage(text, joins=True) for text in dict.fromkeys(texts)]
        now = time.time_ns()
        # The time keeps the ids of equal runs apart; within a file, ids are unique.
        trace = Trace("", [*said, *calls], salt=str(now), at=now)
        try:
            demonstrations = list(self._cutter.cut(trace))
        except InputError as error:
            logger.warning("a run was not recorded: %s", error)
            return []
        lines = b"".join(json_codec.dumps(item.to_dict()) + b"\n" for item in demonstrations)
        try:
            with self.path.open("ab+") as stream:
                # A line that was cut off, as by a crash or a full disk, spoils no other.
                if stream.seek(0, os.SEEK_END):
                    stream.seek(-1, os.SEEK_END)
                    if stream.read(1) != b"\n":
                        stream.write(b"\n")
                stream.write(lines)
        except OSError as error:
            raise _cannot_write(self.path, error) from error
        return demonstrations


class RunQueue:
    """Runs that have ended and wait to be recorded, in a worker thread.

    Args:
        recorder: writes the file.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting: deque[tuple[Sequence[str], Sequence[TracedCall], int]] = deque()
        self._characters = 0
        self._lock = anyio.Lock()
        self._deadline = float("inf")
        self._dropped = 0
        self.recorded = 0

    def add(self, texts: Sequence[str], calls: Sequence[TracedCall], characters: int = 0) -> None:
        """Take a run that has ended; see ``Recorder.record``."""
        is_full = self._characters + characters > MAX_WAITING_CHARACTERS
        if len(self._waiting) < MAX_WAITING and not is_full:
            self._waiting.append((texts, calls, characters))
            self._characters += characters
            return
        if not self._dropped:
            logger.warning("runs end faster than they are recorded; some are not recorded")
        self._dropped += 1

    async def work(self) -> None:
        """Record the waiting runs; calls that come meanwhile return at once."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if self._waiting:
                    await anyio.to_thread.run_sync(self._record)

    async def close(self) -> None:
        """Record the runs that still wait, for ``CLOSE_SECONDS`` at most."""
        self._deadline = time.monotonic() + CLOSE_SECONDS
        await self.work()
        if dropped := len(self._waiting) + self._dropped:
            logger.warning("%d runs were not recorded: there was no time left", dropped)

    def _record(self) -> None:
        """Record runs; an error is logged: a full disk must not stop the calls."""
        while self._waiting and time.monotonic() < self._deadline:
            texts, calls, characters = self._waiting.popleft()
            self._characters -= characters
            try:
                self.recorded += len(self._recorder.record(texts, calls))
            except DtdrError as error:
                logger.warning("could not record a run: %s", error)


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {path}: {(error.strerror or str(error)).lower()}")
