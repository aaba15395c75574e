"""Sparse matrices: SciPy's, or where it is absent a few lines of NumPy that ranking needs.

A device that only ranks needs neither SciPy nor scikit-learn (``docs/scale.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

__all__ = ["SparseMatrix", "coo_array", "csc_array", "csr_array", "hstack", "vstack"]


class SparseMatrix:
    """A CSR matrix with what loaded models do with one: rows, products, sums.

    Products add the values of a row in their order, as SciPy does, so both give the same bits.

    Args:
        parts: ``(data, indices, indptr)`` as of SciPy's ``csr_array``, ``(data, (rows,
            columns))``, a dense array or another one.
        shape: rows and columns.
        dtype: of the data; None keeps theirs.
    """

    def __init__(self, parts: Any, shape: tuple[int, int] | None = None, dtype: Any = None) -> None:
        if isinstance(parts, SparseMatrix):
            shape, parts = parts.shape, (parts.data, parts.indices, parts.indptr)
        elif isinstance(parts, np.ndarray):
            shape, parts = parts.shape, (parts[parts != 0], np.nonzero(parts))
        if len(parts) == 2 and shape is not None:
            values, (rows, columns) = np.asarray(parts[0]), parts[1]
            places, owner = np.unique(
                np.asarray(rows, np.int64) * shape[1] + columns, return_inverse=True
            )
            data = np.zeros(len(places), values.dtype)
            np.add.at(data, owner, values)  # values of one place are added, as SciPy does
            starts = np.searchsorted(places, np.arange(shape[0] + 1) * shape[1])
            parts = (data, places % max(shape[1], 1), starts)
        data, indices, indptr = map(np.asarray, parts)
        self.data: npt.NDArray[Any] = data if dtype is None else data.astype(dtype)
        self.indices: npt.NDArray[Any] = indices
        self.indptr: npt.NDArray[Any] = indptr
        self.shape: tuple[int, int] = shape or (len(self.indptr) - 1, int(self.indices.max()) + 1)

    @property
    def nnz(self) -> int:
        """How many values are kept."""
        return len(self.data)

    @property
    def owner(self) -> npt.NDArray[np.int64]:
        """Shape (nnz,): the row of each value."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @property
    def T(self) -> SparseMatrix:  # noqa: N802  # as of SciPy and NumPy
        """The transpose."""
        return SparseMatrix((self.data, (self.indices, self.owner)), shape=self.shape[::-1])

    def __getitem__(self, rows: Any) -> SparseMatrix:
        indices = np.atleast_1d(np.arange(self.shape[0])[rows])
        counts = np.diff(self.indptr)[indices]
        starts = np.concatenate([[0], np.cumsum(counts)])
        places = np.repeat(self.indptr[indices] - starts[:-1], counts) + np.arange(starts[-1])
        parts = (self.data[places], self.indices[places], starts)
        return SparseMatrix(parts, shape=(len(indices), self.shape[1]))

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, SparseMatrix):
            return SparseMatrix(self @ other.toarray())
        products = (other[self.indices].T * self.data).T
        result = np.zeros((self.shape[0], *other.shape[1:]), products.dtype)
        np.add.at(result, self.owner, products)
        return result

    def resize(self, shape: tuple[int, int]) -> None:
        """Append rows and columns of zeros in place."""
        more = np.full(shape[0] - self.shape[0], self.indptr[-1])
        self.indptr, self.shape = np.concatenate([self.indptr, more]), shape

    def __gt__(self, least: float) -> SparseMatrix:
        kept = self.data > least
        return SparseMatrix((kept[kept], (self.owner[kept], self.indices[kept])), shape=self.shape)

    def __mul__(self, factor: float) -> SparseMatrix:
        return SparseMatrix((self.data * factor, self.indices, self.indptr), shape=self.shape)

    def multiply(self, other: Any) -> SparseMatrix:
        """Each value times that of an array, of shape (1, columns) or (rows, 1), or its square.

        Another matrix must be this one.
        """
        if isinstance(other, SparseMatrix):
            data = self.data * other.data
        else:
            data = self.data * np.broadcast_to(other, self.shape)[self.owner, self.indices]
        return SparseMatrix((data, self.indices, self.indptr), shape=self.shape)

    def sum(self, axis: int) -> npt.NDArray[Any]:
        """Shape (columns,) for the axis 0, (rows,) for 1."""
        places = self.indices if axis == 0 else self.owner
        total = np.zeros(self.shape[1 - axis], self.data.dtype)
        np.add.at(total, places, self.data)
        return total

    def diagonal(self) -> npt.NDArray[Any]:
        """The values of equal row and column."""
        return self.toarray().diagonal()

    def toarray(self) -> npt.NDArray[Any]:
        """The matrix as a dense array."""
        dense = np.zeros(self.shape, self.data.dtype)
        np.add.at(dense, (self.owner, self.indices), self.data)
        return dense


if TYPE_CHECKING:
    from scipy.sparse import coo_array, csc_array, csr_array, hstack, vstack
else:

    def _imported_later(name: str, otherwise: type | None = None) -> Callable[..., Any]:
        """A class or function of SciPy, whose import takes as long as all of ``dtdr``'s."""

        @cache
        def read() -> Callable[..., Any]:
            try:
                return getattr(import_module("scipy.sparse"), name)
            except ImportError:
                if otherwise is None:
                    raise ImportError(
                        "fitting needs SciPy; install it with: pip install scipy"
                    ) from None
                return otherwise

        return lambda *parts, **keywords: read()(*parts, **keywords)

    csr_array = _imported_later("csr_array", SparseMatrix)
    coo_array, csc_array, hstack, vstack = map(
        _imported_later, ("coo_array", "csc_array", "hstack", "vstack")
    )
