"""Structured logs: one JSON object a line, on standard error, without the text of queries."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections import Counter
from typing import Any, TextIO

NAME = "dtdr.server"
logger = logging.getLogger(NAME)


_ENCODE = json.JSONEncoder(separators=(",", ":"), default=str).encode

_GATHER_SECONDS = 0.1
"""Lines about single requests may wait so long for others: at 500 requests/s a write each cost a
third of what a line costs."""


class JsonFormatter(logging.Formatter):
    """Writes a record and its ``fields`` as one line of JSON."""

    _second = ("", 0)

    def format(self, record: logging.LogRecord) -> str:
        """One line; ASCII, so that no text can break it."""
        text, second = self._second
        if second != int(record.created):
            second = int(record.created)
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = (text, second)
        line: dict[str, Any] = {
            "time": f"{text}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            # The frames, not the message: an exception's text may repeat what a client sent.
            line["exception"] = record.exc_info[0].__name__ if record.exc_info[0] else "unknown"
            line["frames"] = _frames(record)
        return _ENCODE(line)


class GatheringHandler(logging.StreamHandler[TextIO]):
    """Writes lines together where an event loop runs; a warning, and what is behind it, at once."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record."""
        try:
            self._waiting.append(self.format(record))
            if record.levelno >= logging.WARNING:
                self.flush()
            elif len(self._waiting) == 1:
                try:
                    asyncio.get_running_loop().call_later(_GATHER_SECONDS, self.flush)
                except RuntimeError:
                    self.flush()
        except Exception:  # noqa: BLE001  # as every logging handler: never raises
            self.handleError(record)

    def flush(self) -> None:
        """Write what waits; nothing where the stream is closed."""
        with self.lock or contextlib.nullcontext():
            if self._waiting:
                text = "\n".join([*self._waiting, ""])
                self._waiting = []
                # A handler never raises: a stream that was closed meanwhile takes nothing more.
                with contextlib.suppress(OSError, ValueError):
                    self.stream.write(text)
                    self.stream.flush()


def log(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    if logger.isEnabledFor(level):
        # Without a look for the line that logs, which is here.
        record = logger.makeRecord(NAME, level, "", 0, event, (), None, extra={"fields": fields})
        logger.handle(record)


class Tally:
    """Counts warnings that may come in floods, and logs the counts at most every ten seconds.

    Args:
        event: what is logged.
    """

    seconds = 10.0

    def __init__(self, event: str) -> None:
        self._event = event
        self._counts: Counter[str] = Counter()
        self._logged = -self.seconds

    def add(self, reason: str) -> None:
        """Count one."""
        self._counts[reason] += 1
        now = time.monotonic()
        if now - self._logged >= self.seconds:
            log(self._event, level=logging.WARNING, **self._counts)
            self._counts, self._logged = Counter(), now


def log_failure(request_id: str) -> None:
    """Log the exception that is being handled, without its text."""
    logger.error("request failed", exc_info=True, extra={"fields": {"id": request_id}})


def configure() -> None:
    """Send the server's and uvicorn's logs to standard error as JSON lines."""
    handler = GatheringHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in (NAME, "uvicorn", "dtdr.integrations"):
        chosen = logging.getLogger(name)
        chosen.handlers = [handler]
        chosen.propagate = False
        chosen.setLevel(logging.INFO)
    # What uvicorn warns of are single connections, which the server counts and reports itself.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def _frames(record: logging.LogRecord) -> list[str]:
    import traceback

    if not record.exc_info or record.exc_info[2] is None:
        return []
    frames = traceback.extract_tb(record.exc_info[2])[-8:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
