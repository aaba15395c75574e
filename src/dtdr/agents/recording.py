"""Records the calls that pass through as demonstrations, in a local file."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, BinaryIO

from dtdr.conversation.events import Event, LoggedCall, LoggedRun, UserMessage
from dtdr.data import json_codec
from dtdr.data.demonstrations import Demonstration
from dtdr.data.files import explain_os_errors
from dtdr.data.outputs import OUTPUT_LENGTH
from dtdr.logs.mcp import MCP
from dtdr.logs.redaction import Redactor
from dtdr.logs.turns import CutOptions, Cutter

logger = logging.getLogger("dtdr.mcp")

CLOSE_SECONDS = 3.0
"""Time to record the waiting runs at the end; a run takes about 0.1 ms."""


class Recorder:
    """Appends one demonstration per run to a ``demonstrations.jsonl`` file.

    References, failures and secrets are treated as in ``dtdr import``. Several gateways may append
    to one file.

    Args:
        path: the file; created at once.
        redact: scrub secrets and personal data before anything is written.
        outputs: whether the calls' outputs are written.
        source: where the runs come from, as the demonstrations say.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(
        self, path: Path, *, redact: bool = True, outputs: bool = True, source: str = "dtdr mcp"
    ) -> None:
        self.path = path
        length = OUTPUT_LENGTH if outputs else 0
        options = CutOptions(query=MCP.default_query, output_length=length)
        self._cutter = Cutter(options, Redactor() if redact else None, source)
        self._worker = ThreadPoolExecutor(1, "dtdr-learn")
        self._waiting: set[Future[None]] = set()
        with explain_os_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open().close()

    def record(
        self, texts: Sequence[str], calls: Sequence[LoggedCall], earlier: Sequence[Event] = ()
    ) -> list[Demonstration]:
        """Append a run that has ended, and return what was written: nothing without calls.

        Args:
            texts: what the user wanted, if the client sent it.
            calls: in the order they were made.
            earlier: the conversation before.

        Raises:
            InputError: the run cannot be a demonstration.
            OutputError: the file cannot be written.
        """
        messages = [UserMessage(text, joins=True) for text in dict.fromkeys(texts)]
        now = time.time_ns()
        # The time makes the ids of equal runs differ; within a file, ids are unique.
        run = LoggedRun("", [*messages, *calls], earlier=list(earlier), salt=str(now), at=now)
        demonstrations = list(self._cutter.cut(run))
        lines = b"".join(json_codec.dumps(item.to_dict()) + b"\n" for item in demonstrations)
        with explain_os_errors(self.path), self._open() as stream:
            # After half a line, which a crash or a full disk left, begin a new one.
            if stream.seek(0, os.SEEK_END):
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":
                    stream.write(b"\n")
            stream.write(lines)
        return demonstrations

    def _open(self) -> BinaryIO:
        """The file, which only its owner may read if it is new: it has what users wrote."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        return os.fdopen(os.open(self.path, flags, 0o600), "ab+")

    def add(
        self, texts: Sequence[str], calls: Sequence[LoggedCall], earlier: Sequence[Event] = ()
    ) -> None:
        """Record a run in a thread, after those before it; the log says if that is impossible."""
        run = self._worker.submit(self._record, texts, calls, earlier)
        self._waiting.add(run)
        run.add_done_callback(self._waiting.discard)

    def close(self) -> None:
        """Wait for the runs that were added, for ``CLOSE_SECONDS`` at most."""
        _, late = wait(self._waiting.copy(), CLOSE_SECONDS)
        self._worker.shutdown(wait=False, cancel_futures=True)
        if late:
            logger.warning("%d runs were not recorded: there was no time left", len(late))

    def _record(self, *run: Any) -> None:
        try:
            self.record(*run)
        except Exception as error:  # noqa: BLE001  # whatever it is, the calls go on
            logger.warning("could not record a run: %s", error)
