"""What a log of feedback is: demonstrations in the order they came, each with its position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.logs.cut_options import CutOptions
from dtdr.logs.redaction import Redactor
from dtdr.logs.scrubbing import Scrubber


class DuplicateError(InputError):
    """A demonstration with this id was sent before."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"demonstrations.{number}: a demonstration with this id was sent before; leave the id "
            "out, or give another"
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a log.

    Attributes:
        position: of the entry after which reading goes on behind it.
        demonstration: None where the entry is not one.
        time: when it was written, in seconds since 1970; None where the log does not say.
    """

    position: str
    demonstration: Demonstration | None
    time: float | None = None


class FeedbackLog(ABC):
    """Demonstrations that are appended and never changed.

    Args:
        redact: scrub secrets and personal data from what is appended.

    Attributes:
        path: of the file; None where it is not one.
    """

    path: Path | None = None

    def __init__(self, *, redact: bool = True) -> None:
        self._scrubber = Scrubber(CutOptions(), Redactor()) if redact else None

    def append(self, demonstrations: Sequence[Demonstration]) -> None:
        """Add demonstrations, all or none, and wait until they are kept.

        Raises:
            DuplicateError: one has an id that was there before; none was added.
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

    def close(self) -> None:  # noqa: B027  # a log need not hold anything
        """Let go of what is held to append."""

    @abstractmethod
    def _append(self, demonstrations: Sequence[Demonstration]) -> None:
        """Add demonstrations as they are; their ids differ."""

    @abstractmethod
    def read(self, position: str, limit: int) -> list[Entry]:
        """The next entries, oldest first.

        Args:
            position: of the last entry that was read; empty: from the beginning.
            limit: how many at most.

        Raises:
            InputError: the log is not the one that the position is of.
            UnavailableError: Redis cannot be used.
        """


def order_of(position: str) -> tuple[int, ...]:
    """By which positions of one log can be compared; the empty one comes first."""
    return tuple(map(int, position.split("-"))) if position else (0,)
