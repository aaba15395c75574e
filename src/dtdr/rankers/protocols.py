"""What rankers may be able to do after they were fitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.rankers.training import TrainingData


@runtime_checkable
class SupportsUpdates(Protocol):
    """A ranker that learns from further demonstrations after ``fit``, without a refit."""

    def update(
        self, demonstrations: Sequence[Demonstration], learned: TrainingData, update: TrainingData
    ) -> None:
        """Learn; like ``fit``, it replaces attributes.

        Args:
            demonstrations: further ones, of tools in the vocabulary.
            learned: what was learned so far.
            update: the record of these demonstrations.
        """


@runtime_checkable
class SupportsToolChanges(Protocol):
    """A ranker whose vocabulary can change after ``fit``."""

    def change_tools(self, tools: Sequence[Tool], names: Sequence[str]) -> None:
        """Take another vocabulary.

        Args:
            tools: the new one, as ``fit`` takes it.
            names: today's names of the tools of the old one, in its order.
        """
