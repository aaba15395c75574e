"""In how many runs and groups each value of each parameter stood, by hashes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from dtdr.demonstrations import Demonstration
from dtdr.errors import ModelError

Parameter = tuple[str, str]
"""A tool and one of its parameters."""


class SeenValues:
    """In how many runs and groups each value of each parameter stood, by hashes.

    Args:
        min_runs, min_groups: what makes a value frequent.
        counts: by the hash of a value, its runs.
        groups: by the hash of a value, hashes of its groups, as many as are needed.
    """

    def __init__(
        self,
        min_runs: int,
        min_groups: int,
        counts: Mapping[int, int] | None = None,
        groups: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        self.min_runs = min_runs
        self.min_groups = min_groups
        self._counts = dict(counts or {})
        self._groups = dict(groups or {})

    def copy(self) -> SeenValues:
        """The same counts, which can be added to."""
        return SeenValues(self.min_runs, self.min_groups, self._counts, self._groups)

    def of_run(self, item: Demonstration) -> RunValues:
        """Takes the values of one more run."""
        return RunValues(self, _hash(item.group or f"\x00{item.id}\x00{item.query}"))

    def add(self, value: int, group: int) -> None:
        """One more run in which a value stood."""
        self._counts[value] = self._counts.get(value, 0) + 1
        known = self._groups.get(value, frozenset())
        if len(known) < self.min_groups:
            self._groups[value] = known | {group}

    def runs(self, key: Parameter, form: str) -> int:
        """The runs in which a parameter took a value, by its canonical form."""
        return self._counts.get(_value_hash(key, form), 0)

    def is_frequent(self, key: Parameter, form: str) -> bool:
        """Whether it stood in enough runs of enough groups."""
        value = _value_hash(key, form)
        runs, groups = self._counts.get(value, 0), self._groups.get(value, ())
        return runs >= self.min_runs and len(groups) >= self.min_groups

    def most_frequent(
        self, key: Parameter, forms: Iterable[str], known: Collection[str] = (), times: int = 1
    ) -> list[str]:
        """Those that stood in enough runs and groups, or are known, the most frequent first.

        Args:
            key: their parameter.
            forms: canonical.
            known: of the forms, those that were frequent before.
            times: how often as many runs are enough.
        """
        frequent = [
            (-counted, form)
            for form, counted in ((form, self.runs(key, form)) for form in forms)
            if form in known or (counted >= times * self.min_runs and self.is_frequent(key, form))
        ]
        return [form for _, form in sorted(frequent)]

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """Arrays that ``from_arrays`` reads back."""
        pairs = [(value, group) for value, by in self._groups.items() for group in sorted(by)]
        return {
            "counts": np.array(sorted(self._counts.items()), np.int64).reshape(-1, 2),
            "groups": np.array(sorted(pairs), np.int64).reshape(-1, 2),
        }

    @classmethod
    def from_arrays(
        cls,
        min_runs: int,
        min_groups: int,
        counts: npt.NDArray[np.int64],
        groups: npt.NDArray[np.int64],
    ) -> SeenValues:
        """What ``arrays`` gave.

        Raises:
            ModelError: they have another shape.
        """
        if any(part.ndim != 2 or part.shape[1] != 2 for part in (counts, groups)):
            raise ModelError("its record of values is damaged; fit it again")
        by_value: dict[int, set[int]] = defaultdict(set)
        for value, group in groups.tolist():
            by_value[value].add(group)
        frozen = {value: frozenset(by) for value, by in by_value.items()}
        return cls(min_runs, min_groups, dict(counts.tolist()), frozen)


class RunValues:
    """Counts each value of one run once."""

    def __init__(self, seen: SeenValues, group: int) -> None:
        self._seen = seen
        self._group = group
        self._added: set[int] = set()

    def add(self, key: Parameter, form: str) -> None:
        """A parameter took a value, by its canonical form."""
        value = _value_hash(key, form)
        if value not in self._added:
            self._added.add(value)
            self._seen.add(value, self._group)


def _value_hash(key: Parameter, form: str) -> int:
    return _hash(f"{key[0]}\x00{key[1]}\x00{form}")


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big")
