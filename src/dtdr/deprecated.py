"""Old public names: each works for one more version and raises a ``DeprecationWarning``.

Old keys of files are read without a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

REMOVED_IN = "0.2.0"


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that a name is deprecated.

    Args:
        old: the deprecated name.
        new: the name to use.
        stacklevel: frames up to the caller's; 3 is the caller of the function that calls this.
    """
    text = f"{old} is deprecated and will be removed in dtdr {REMOVED_IN}; use {new}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


def renamed_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function to accept old keywords; ``names`` maps each to the new one.

    >>> @renamed_keywords(retriever="ranker")
    ... def fit(ranker="dtdr-f"):
    ...     return ranker
    >>> fit(ranker="dr")
    'dr'
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def accept_old(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                warn_renamed(f"{old}=", f"{names[old]}=")
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return accept_old

    return decorate


def renamed_attribute(old: str, new: str) -> Any:
    """A read-only property that returns the attribute ``new`` under its old name."""

    def read(instance: object) -> Any:
        warn_renamed(f".{old}", f".{new}")
        return getattr(instance, new)

    return property(read)


def renamed_method(old: str, new: str) -> Any:
    """A method that calls the method ``new`` under its old name."""

    def call(instance: object, *args: Any, **kwargs: Any) -> Any:
        warn_renamed(f".{old}()", f".{new}()")
        return getattr(instance, new)(*args, **kwargs)

    return call


def renamed_function(old: str, new: str, function: Callable[P, R]) -> Callable[P, R]:
    """The function under its old name, which warns whenever it is called."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        warn_renamed(old, new)
        return function(*args, **kwargs)

    return call


def renamed_key(values: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """The values of a file, with the value of a key's old name under its new name.

    >>> renamed_key({"runs": [1]}, "runs", "experiments")
    {'experiments': [1]}
    """
    return {new if key == old else key: value for key, value in values.items()}
