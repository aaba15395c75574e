"""Data sets and metrics of other packages: by entry point, or as ``module:function``."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from dtdr.errors import InputError
from dtdr.rankers import import_own

DATASETS = "dtdr.datasets"
"""Entry points of functions that return a ``Dataset``."""

METRICS = "dtdr.metrics"
"""Entry points of functions from a ``RunLog`` of n steps to scores of shape (n,)."""


def find_plugin(group: str, name: str) -> Callable[..., Any] | None:
    """The function behind a name; None where no installed package has one.

    Args:
        group: ``DATASETS`` or ``METRICS``.
        name: of an entry point, or ``module:function``, also of the current folder.

    Raises:
        InputError: the function cannot be imported, or it is not callable.
    """
    try:
        if ":" in name:
            loaded = import_own(name)
        else:
            entry = next(iter(entry_points(group=group, name=name)), None)
            if entry is None:
                return None
            loaded = entry.load()
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name!r} cannot be imported: {error}") from error
    if not callable(loaded):
        raise InputError(f"{name!r} is not a function")
    function: Callable[..., Any] = loaded
    return function
