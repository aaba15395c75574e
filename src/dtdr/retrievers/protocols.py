"""What retrievers may be able to do beside ranking."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Protocol, TypeVar, runtime_checkable

from dtdr.demonstrations import DemonstrationLike
from dtdr.tools import Tool

Updated = TypeVar("Updated")


@runtime_checkable
class SupportsUpdates(Protocol):
    """A retriever that learns from further demonstrations after ``fit``, without a refit."""

    def update(self, demonstrations: Iterable[DemonstrationLike]) -> int:
        """Learn from further demonstrations; survives save and load.

        Sessions that are open keep what they were opened with. Tools that are not known yet are
        added.

        Args:
            demonstrations: as ``fit`` takes them, but not a path; failures are left out where
                ``failure_weight`` is 0.

        Returns:
            How many were learned from.

        Raises:
            InputError: something is not a demonstration.
            DtdrError: the retriever is not fitted.
        """


def update_copy(
    retriever: Updated, demonstrations: Iterable[DemonstrationLike]
) -> tuple[Updated, int]:
    """A copy of a retriever that learned from further demonstrations, and from how many.

    ``update`` replaces what was learned and changes nothing in place, so that the copy may share
    everything with the retriever that goes on ranking.

    Raises:
        DtdrError: see ``SupportsUpdates.update``.
    """
    updated = copy.copy(retriever)
    assert isinstance(updated, SupportsUpdates)
    return updated, updated.update(demonstrations)


@runtime_checkable
class SupportsToolChanges(Protocol):
    """A retriever whose tools can change after ``fit``."""

    def add_tools(self, tools: Iterable[Tool]) -> None:
        """Add tools that no demonstration uses yet, ranked by their descriptions.

        Raises:
            InputError: a name is known already.
            DtdrError: the retriever is not fitted.
        """

    def remove_tools(self, names: Iterable[str]) -> None:
        """Remove tools; their calls in what was learned count as calls of unknown tools.

        Raises:
            InputError: a name is not known.
            DtdrError: the retriever is not fitted.
        """

    def rename_tool(self, old: str, tool: str | Tool) -> None:
        """Give a tool another name, and another description where a ``Tool`` is given.

        Raises:
            InputError: the old name is not known, or the new one is taken.
            DtdrError: the retriever is not fitted.
        """
