"""Rows of a table of features by their names: ``rows.steps``, not ``rows[5]``."""

from __future__ import annotations

from inspect import get_annotations
from typing import ClassVar

from dtdr.rankers.nn import Matrix


class FeatureRows:
    """The rows of a table, each an attribute of the name that a subclass annotates.

    The attributes are views, made once for a table: to write into one is to write the table, and
    costs what writing by a number would.

    >>> import numpy as np
    >>> class Counts(FeatureRows):
    ...     calls: Matrix
    ...     repeated: Matrix
    >>> rows = Counts(np.zeros((2, 3), np.float32))
    >>> rows.repeated[1] = 5
    >>> rows.table.tolist()
    [[0.0, 0.0, 0.0], [0.0, 5.0, 0.0]]

    Args:
        table: shape (features, tools), in the order of ``names``.

    Attributes:
        names: of all rows, in their order.
    """

    names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.names = tuple(get_annotations(cls))

    def __init__(self, table: Matrix) -> None:
        self.table = table
        vars(self).update(zip(self.names, table, strict=True))

    @classmethod
    def span(cls, first: str, last: str) -> slice:
        """The rows from one name to another, which are written in one operation."""
        return slice(cls.names.index(first), cls.names.index(last) + 1)
