"""Many short arrays in one, such as the words of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.errors import ModelError
from dtdr.rankers.nn import Indices


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths.

    Attributes:
        values: shape (values,): row after row.
        sizes: shape (rows,): the length of each row.
    """

    values: npt.NDArray[Any]
    sizes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[npt.NDArray[Any] | Sequence[Any]], dtype: type) -> Self:
        """Rows one after the other."""
        values: npt.NDArray[Any] = np.concatenate([np.empty(0, dtype), *rows])
        return cls(values.astype(dtype, copy=False), np.array([*map(len, rows)], np.int64))

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Shape (rows + 1,): where each row begins, and the last ends."""
        return np.append(np.int64(0), np.cumsum(self.sizes))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, row: int) -> npt.NDArray[Any]:
        part: npt.NDArray[Any] = self.values[self.starts[row] : self.starts[row + 1]]
        return part

    @property
    def owner(self) -> Indices:
        """Shape (values,), sorted: the row of each value."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def subset(self, rows: Indices) -> Self:
        """The rows at some positions."""
        sizes = self.sizes[rows]
        shift = self.starts[rows] - (np.cumsum(sizes) - sizes)
        return type(self)(self.values[np.arange(sizes.sum()) + np.repeat(shift, sizes)], sizes)

    def concatenate(self, other: Ragged) -> Self:
        """These rows and the others."""
        values = np.concatenate([self.values, other.values])
        return type(self)(values, np.concatenate([self.sizes, other.sizes]))

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        smallest = np.min_scalar_type(int(self.sizes.max(initial=0)))
        return {name: self.values, f"{name}.sizes": self.sizes.astype(smallest)}

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Self:
        """Rebuild from the output of ``arrays``.

        Raises:
            KeyError: an array is missing.
            ModelError: the sizes do not add up to the number of values.
        """
        values, sizes = arrays[name], arrays[f"{name}.sizes"].astype(np.int64)
        longest = int(sizes.max(initial=0))
        if sizes.min(initial=0) < 0 or longest > len(values) or sizes.sum() != len(values):
            raise ModelError(f"the rows of the array {name} do not have its values; fit it again")
        return cls(values, sizes)


def count_rows(
    values: npt.NDArray[np.uint32], owner: Indices
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Distinct values, sorted, and in how many rows each is.

    Args:
        values: shape (values,): hashes.
        owner: shape (values,): the row of each.
    """
    pairs = np.unique((owner.astype(np.int64) << 32) | values)
    distinct, counts = np.unique(pairs & 0xFFFFFFFF, return_counts=True)
    return distinct.astype(np.uint32), counts
