"""A log of feedback: demonstrations in the order of their arrival, each with its position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from dtdr.data.demonstrations import Demonstration
from dtdr.data.outputs import OUTPUT_LENGTH
from dtdr.errors import InputError
from dtdr.logs.redaction import Redactor
from dtdr.logs.scrubbing import Scrubber


class DuplicateError(InputError):
    """A demonstration with this id was sent before."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"demonstration {number}: its id was sent before; leave the id out, or give another"
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a log.

    Attributes:
        position: of the entry, to read on behind it.
        demonstration: None for an unreadable entry.
        time: of the write, in seconds since 1970; None if the log has none.
    """

    position: str
    demonstration: Demonstration | None
    time: float | None = None


class FeedbackLog(ABC):
    """An append-only log.

    Args:
        redact: remove secrets and personal data.
    """

    def __init__(self, *, redact: bool = True) -> None:
        self._scrubber = Scrubber(OUTPUT_LENGTH, Redactor()) if redact else None

    def append(self, demonstrations: Sequence[Demonstration]) -> None:
        """Add all demonstrations or none, and wait until they are safe.

        Raises:
            DuplicateError: an id is in the log already; none was added.
            OutputError: the file cannot be written.
            UnavailableError: Redis cannot be used.
        """
        if self._scrubber is not None:
            demonstrations = list(map(self._scrubber.demonstration, demonstrations))
        seen: set[str] = set()
        for number, item in enumerate(demonstrations):
            if item.id in seen:
                raise DuplicateError(number)
            seen.add(item.id)
        self._append(demonstrations)

    def close(self) -> None:  # noqa: B027  # optional
        """Let others append."""

    @abstractmethod
    def _append(self, demonstrations: Sequence[Demonstration]) -> None:
        """Add demonstrations with different ids."""

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


def order_of(position: str) -> tuple[int, ...]:
    """A sort key of positions; the empty one is first."""
    return tuple(map(int, position.split("-"))) if position else (0,)
