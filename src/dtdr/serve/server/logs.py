"""Logs of servers: one JSON object a line, on standard error, without the text of queries."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Any

NAME = "dtdr.server"
logger = logging.getLogger(NAME)
_ENCODE = json.JSONEncoder(separators=(",", ":"), default=str).encode


class JsonFormatter(logging.Formatter):
    """Writes a record and its ``fields`` as one line of JSON, in ASCII: no text can break it."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[2] is not None:
            # Without the message, which may repeat a request.
            line["exception"] = record.exc_info[0].__name__ if record.exc_info[0] else "unknown"
            line["frames"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(record.exc_info[2])[-8:]
            ]
        return _ENCODE(line)


def log(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    logger.log(level, event, extra={"fields": fields})


def configure() -> None:
    """Send the server's and uvicorn's logs to standard error as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    for name in (NAME, "uvicorn", "dtdr.agents"):
        target = logging.getLogger(name)
        target.handlers = [handler]
        target.propagate = False
        target.setLevel(logging.INFO)
    # uvicorn warns of single connections, which the server counts itself.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
