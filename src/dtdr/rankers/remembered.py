"""A function with its last results, whose owner can be copied and pickled."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Remembered(Generic[Result]):
    """A function that remembers its last results; a copy of it begins without them.

    What ``lru_cache`` returns cannot be pickled, and a deep copy of its owner would go on asking
    the first owner.

    >>> import copy
    >>> size = Remembered(abs, 16)
    >>> size(-2), copy.deepcopy(size)(-3)
    (2, 3)

    Args:
        compute: gives the result for hashable arguments; often a method of the owner.
        size: results that are remembered, those asked for last.
    """

    def __init__(self, compute: Callable[..., Result], size: int) -> None:
        self._parts = compute, size
        self._remembered = lru_cache(size)(compute)

    def __call__(self, *arguments: Any) -> Result:
        """The result, computed if it is not remembered."""
        return self._remembered(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """For ``copy`` and ``pickle``: the function alone."""
        return type(self), self._parts
