"""What rankers may be able to do after they were fitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool


@runtime_checkable
class SupportsUpdates(Protocol):
    """A ranker that learns from further demonstrations after ``fit``."""

    def update(self, demonstrations: Sequence[Demonstration]) -> None:
        """Learn from further ones, of tools in the vocabulary; replaces attributes as ``fit``."""


@runtime_checkable
class SupportsToolChanges(Protocol):
    """A ranker whose vocabulary can change after ``fit``."""

    def change_tools(self, tools: Sequence[Tool], names: Sequence[str]) -> None:
        """Take another vocabulary.

        Args:
            tools: the new one, as ``fit`` takes it.
            names: today's names of the tools of the old one, in its order.
        """
