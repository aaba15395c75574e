"""In how many runs each slot took each value: hashes and counts, no value itself.

A value that several users' runs gave may become a constant of a model; all that is kept of any
other is a hash with two numbers, from which a later update can still see that it became frequent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dtdr.predict.arguments.values import short_hash

Slot = tuple[str, str]
"""A tool and one of its slots."""

_SEVERAL = -1
"""In place of the hash of a group."""


class RunCount(NamedTuple):
    """The number of runs with a value, and the hash of their group, ``_SEVERAL`` if they differ."""

    runs: int
    group: int


_NO_RUN = RunCount(0, _SEVERAL)


class RunCounts(dict[int, RunCount]):
    """In how many runs entries occurred; an entry is the hash of a slot and of a value of it."""

    def add(self, entries: Iterable[int], group: int) -> None:
        """Count one more run of a group that has these entries, each of them once."""
        for entry in entries:
            runs, before = self.get(entry, (0, group))
            self[entry] = RunCount(runs + 1, group if before == group else _SEVERAL)

    def of(self, slot: Slot, text: str) -> RunCount:
        """The count of a value of a slot, by its canonical form, or of a name."""
        return self.get(entry_of(slot, text), _NO_RUN)

    def is_in_other_groups(
        self, slot: Slot, hashes: npt.NDArray[np.int64], group: int | None
    ) -> npt.NDArray[np.bool_]:
        """Which of m values a slot took in other groups than one, by their hashes; shape (m,)."""
        entries = (hashes ^ _slot_hash(slot)).tolist()
        return np.array(
            [entry in self and self[entry].group != group for entry in entries], np.bool_
        )

    def array(self) -> npt.NDArray[np.int64]:
        """Entries with their runs and groups, sorted; shape (n, 3)."""
        rows = [(entry, *count) for entry, count in sorted(self.items())]
        return np.array(rows, np.int64).reshape(-1, 3)

    @classmethod
    def restore(cls, array: npt.NDArray[Any]) -> Self:
        """Rebuild from the output of ``array``.

        Raises:
            ValueError, TypeError: it is damaged.
        """
        return cls({entry: RunCount(runs, group) for entry, runs, group in array.tolist()})


@dataclass
class RunEntries:
    """The entries of one run, each in the set of what it is counted as; see ``SlotStatistics``."""

    filled: set[int] = field(default_factory=set)
    values: set[int] = field(default_factory=set)
    free_values: set[int] = field(default_factory=set)
    fields: set[int] = field(default_factory=set)


@dataclass(frozen=True, eq=False)
class SlotStatistics:
    """The number of runs in which each slot took a value, a free value or a field.

    Attributes:
        min_runs: runs of two groups that make a value frequent; 0 counts nothing.
        filled: runs in which a slot took any plain value; the text of an entry is empty.
        values: runs with a value, wherever it comes from.
        free_values: runs with a value that was not taken from the run itself, by its canonical
            form: these may become constants.
        fields: runs with a field of objects, or a JSON Pointer into outputs, by its name.
    """

    min_runs: int
    filled: RunCounts = field(default_factory=RunCounts)
    values: RunCounts = field(default_factory=RunCounts)
    free_values: RunCounts = field(default_factory=RunCounts)
    fields: RunCounts = field(default_factory=RunCounts)

    def copy(self) -> SlotStatistics:
        """The same counts, to which runs may be added."""
        return SlotStatistics(self.min_runs, *(RunCounts(counts) for counts in self._counts()))

    def _counts(self) -> list[RunCounts]:
        return [getattr(self, name) for name in _COUNTED]

    def add(self, run: RunEntries, group: int) -> None:
        """Count one more run."""
        if self.min_runs:
            for name, counts in zip(_COUNTED, self._counts(), strict=True):
                counts.add(getattr(run, name), group)

    def most_frequent(
        self, counts: RunCounts, slot: Slot, texts: Iterable[str], known: Collection[str] = ()
    ) -> list[str]:
        """Those that occurred in enough runs and groups, or are known, the most frequent first.

        Args:
            counts: ``free_values`` or ``fields``.
            slot: whose.
            texts: canonical forms, or names of fields.
            known: those of them that were frequent before.
        """
        frequent = []
        for text in texts:
            runs, group = counts.of(slot, text)
            if text in known or (runs >= self.min_runs and group == _SEVERAL):
                frequent.append((-runs, text))
        return [text for _, text in sorted(frequent)]

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """The counts to save, by what is counted."""
        return {
            f"runs_{name}": counts.array()
            for name, counts in zip(_COUNTED, self._counts(), strict=True)
        }

    @classmethod
    def restore(cls, min_runs: int, arrays: Mapping[str, npt.NDArray[Any]]) -> SlotStatistics:
        """Rebuild from the output of ``arrays``.

        Raises:
            ValueError, TypeError, KeyError: they are damaged.
        """
        return cls(min_runs, *(RunCounts.restore(arrays[f"runs_{name}"]) for name in _COUNTED))


_COUNTED = tuple(item.name for item in fields(RunEntries))


def entry_of(slot: Slot, text: str) -> int:
    """The hash under which a value of a slot is counted, by its canonical form, or a name."""
    return _slot_hash(slot) ^ short_hash(text)


@lru_cache(maxsize=1 << 12)
def _slot_hash(slot: Slot) -> int:
    return short_hash(f"{slot[0]}\x00{slot[1]}")
