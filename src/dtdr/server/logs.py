"""Structured logs: one JSON object a line, on standard error, without the text of queries."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

NAME = "dtdr.server"
logger = logging.getLogger(NAME)


class JsonFormatter(logging.Formatter):
    """Writes a record and its ``fields`` as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; ASCII, so that no text can break it."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            # The frames, not the message: an exception's text may repeat what a client sent.
            line["exception"] = record.exc_info[0].__name__ if record.exc_info[0] else "unknown"
            line["frames"] = _frames(record)
        return json.dumps(line, separators=(",", ":"), default=str)


def log(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={"fields": fields})


def configure(level: int = logging.INFO) -> None:
    """Send the server's and uvicorn's logs to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in (NAME, "uvicorn", "dtdr.integrations"):
        chosen = logging.getLogger(name)
        chosen.handlers = [handler]
        chosen.propagate = False
        chosen.setLevel(level)
    # What uvicorn says at this level is about single connections, which the server logs itself.
    logging.getLogger("uvicorn.error").setLevel(max(level, logging.WARNING))


def _frames(record: logging.LogRecord) -> list[str]:
    import traceback

    if not record.exc_info or record.exc_info[2] is None:
        return []
    frames = traceback.extract_tb(record.exc_info[2])[-8:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
