"""Checks on the arrays of a model folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from dtdr.errors import ModelError


def require(state: Mapping[str, npt.NDArray[Any]], names: set[str]) -> None:
    """Check that a model folder has the arrays of this retriever and no others.

    Raises:
        ModelError: an array is missing or belongs to another retriever.
    """
    for problem, wrong in (
        ("lacks", sorted(names - state.keys())),
        ("has another retriever's", sorted(state.keys() - names)),
    ):
        if wrong:
            raise ModelError(f"the model folder {problem} array {wrong[0]!r}; fit it again")


def require_shape(
    state: Mapping[str, npt.NDArray[Any]], name: str, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """The array of that name.

    Raises:
        ModelError: it has another shape.
    """
    array = state[name]
    if array.shape != shape:
        raise ModelError(
            f"array {name!r} of the model folder has shape {array.shape}, expected {shape}; "
            "fit it again"
        )
    return array
