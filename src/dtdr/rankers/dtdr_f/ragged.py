"""Many short arrays in one, such as the words of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.rankers.nn import Indices


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths.

    Attributes:
        values: shape (values,): row after row.
        starts: shape (rows + 1,): where each row begins.
    """

    values: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[npt.NDArray[Any] | Sequence[Any]], dtype: type) -> Self:
        """Rows one after the other."""
        starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, dtype), *rows]).astype(dtype, copy=False), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> npt.NDArray[Any]:
        part: npt.NDArray[Any] = self.values[self.starts[row] : self.starts[row + 1]]
        return part

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Shape (rows,): the length of each row."""
        return np.diff(self.starts)

    @property
    def owner(self) -> Indices:
        """Shape (values,), sorted: the row of each value."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def subset(self, rows: Indices) -> Self:
        """The rows at some positions."""
        sizes = self.sizes[rows]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        flat = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], sizes)
        return type(self)(self.values[flat], starts)

    def concatenate(self, other: Ragged) -> Self:
        """These rows and the others."""
        starts = np.concatenate([self.starts, self.starts[-1] + other.starts[1:]])
        return type(self)(np.concatenate([self.values, other.values]), starts)

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        sizes = self.sizes
        smallest = np.min_scalar_type(int(sizes.max(initial=0)))
        return {name: self.values, f"{name}.sizes": sizes.astype(smallest)}

    @classmethod
    def restore(cls, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Self:
        """Rebuild from the output of ``arrays``."""
        starts = np.concatenate([[0], np.cumsum(arrays[f"{name}.sizes"], dtype=np.int64)])
        return cls(arrays[name], starts)


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
