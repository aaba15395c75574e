"""What is held of a log: the conversations and traces that may still go on, within a budget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

DEFAULT_BYTES = 64_000_000
"""Room for some thousand open conversations of 20 kB, and well under the 300 MB of a whole run."""


@dataclass(slots=True)
class Group:
    """Records of one conversation or trace, and where the last of them stood."""

    payloads: list[bytes]
    size: int
    place: tuple[int, int]


class Window:
    """Open groups, the least recently extended first; the oldest leave when the budget is spent.

    Args:
        budget: bytes of records held at most; one group larger than that leaves at once.
    """

    def __init__(self, budget: int = DEFAULT_BYTES) -> None:
        self.budget = budget
        self.size = 0
        self.on_leave: Callable[[str], None] | None = None
        self._groups: OrderedDict[str, Group] = OrderedDict()
        self._finished: list[tuple[str, Group]] = []

    def __contains__(self, key: str) -> bool:
        return key in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def append(self, key: str, payload: bytes, place: tuple[int, int]) -> None:
        """Add a record to a group, which begins here when there is none."""
        group = self._groups.get(key)
        if group is None:
            self.put(key, [payload], place)
            return
        group.payloads.append(payload)
        group.size += len(payload)
        group.place = place
        self.size += len(payload)
        self._groups.move_to_end(key)

    def put(self, key: str, payloads: list[bytes], place: tuple[int, int]) -> None:
        """Begin a group, or replace all its records."""
        former = self._groups.pop(key, None)
        if former is not None:
            self.size -= former.size
        size = sum(map(len, payloads))
        self._groups[key] = Group(payloads, size, place)
        self.size += size

    def payloads(self, key: str) -> list[bytes]:
        """The records of an open group."""
        return self._groups[key].payloads

    def finish(self, key: str) -> None:
        """Let a group leave now."""
        group = self._groups.pop(key)
        self.size -= group.size
        if self.on_leave is not None:
            self.on_leave(key)
        self._finished.append((key, group))

    def pop_finished(self, *, everything: bool = False) -> Iterator[tuple[str, Group]]:
        """Groups that have left since the last call: finished ones, and what is over budget."""
        while self._groups and (everything or self.size > self.budget):
            self.finish(next(iter(self._groups)))
        done, self._finished = self._finished, []
        yield from done

    def open_groups(self) -> Iterator[tuple[str, Group]]:
        """Groups that may still go on, the least recently extended first."""
        yield from self._groups.items()
