"""A log of feedback: demonstrations in the order of their arrival, each with its position."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.data.outputs import OUTPUT_LENGTH
from dtdr.errors import InputError
from dtdr.logs.redaction import Redactor
from dtdr.logs.scrubbing import Scrubber


class DuplicateError(InputError):
    """A demonstration with this id was sent before."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"demonstration {position}: its id was sent before; leave the id out, or give another"
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a log.

    Attributes:
        position: of the entry, to read on behind it.
        demonstration: None for an unreadable entry.
        time: of the write, in seconds since 1970; None if the log has none.
        sender: id of the key that sent it; empty without keys.
    """

    position: str
    demonstration: Demonstration | None
    time: float | None = None
    sender: str = ""


class FeedbackLog(ABC):
    """An append-only log.

    Args:
        redact: remove secrets and personal data.
    """

    def __init__(self, *, redact: bool = True) -> None:
        self._scrubber = Scrubber(OUTPUT_LENGTH, Redactor()) if redact else None

    def append(self, demonstrations: Sequence[Demonstration], sender: str = "") -> None:
        """Add all demonstrations or none, and wait until they are safe.

        Args:
            demonstrations: with ids.
            sender: id of the key that sent them.

        Raises:
            DuplicateError: an id is in the log already; none was added.
            OutputError: the file cannot be written.
            UnavailableError: Redis cannot be used.
        """
        if self._scrubber is not None:
            demonstrations = list(map(self._scrubber.demonstration, demonstrations))
        seen: set[str] = set()
        for position, item in enumerate(demonstrations):
            if item.id in seen:
                raise DuplicateError(position)
            seen.add(item.id)
        marks = {"sender": sender} if sender else {}
        records = [item.to_dict() | marks for item in demonstrations]
        self._append([item.id for item in demonstrations], list(map(_encode, records)))

    def close(self) -> None:  # noqa: B027  # optional
        """Let others append."""

    @abstractmethod
    def _append(self, ids: Sequence[str], records: Sequence[str]) -> None:
        """Add demonstrations with different ids, each as JSON on one line."""

    @abstractmethod
    def read(self, position: str, limit: int) -> list[Entry]:
        """The next entries, oldest first.

        Args:
            position: of the last entry that was read; empty: from the beginning.
            limit: of their number.

        Raises:
            InputError: the position is of another log.
            UnavailableError: Redis cannot be used.
        """


def parse(content: bytes) -> tuple[Demonstration | None, str]:
    """The demonstration of an entry, None if it is unreadable; and its sender."""
    try:
        record = json.loads(content)
        sender = record.pop("sender", "")
        return Demonstration.from_dict(record), sender if isinstance(sender, str) else ""
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None, ""


def _encode(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def order_of(position: str) -> tuple[int, ...]:
    """A sort key of positions; the empty one is first."""
    return tuple(map(int, position.split("-"))) if position else (0,)
