"""Finds keys in sorted arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.rankers.nn import Indices


def find_sorted(
    keys: npt.NDArray[Any], wanted: npt.NDArray[Any]
) -> tuple[Indices, npt.NDArray[np.bool_]]:
    """Where keys are in a sorted array, and which of them are in it.

    >>> places, known = find_sorted(np.array([2, 5, 9]), np.array([5, 7]))
    >>> places.tolist(), known.tolist()
    ([1, 2], [True, False])

    Args:
        keys: shape (k,), ascending, each once.
        wanted: shape (n,).

    Returns:
        Both of shape (n,). The place of a key that is not in the array says nothing.
    """
    places = keys.searchsorted(wanted)
    if not len(keys):
        return places, np.zeros(len(wanted), np.bool_)
    # Clipped: a key above all others would have the place after the last.
    return places, keys.take(places, mode="clip") == wanted
