"""A ranker with arguments, plans and sessions."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from dtdr.errors import InputError
from dtdr.rankers import ranker_class

if TYPE_CHECKING:
    from dtdr.predict.model import Model


def create(name: str, **parameters: Any) -> Model:
    """Create a model that is not fitted yet.

    Args:
        name: of the ranker, or its ``module:Class``.
        parameters: of the ranker.

    Raises:
        InputError: no ranker has that name, or it does not take a parameter.
    """
    from dtdr.predict.model import Model

    ranker = ranker_class(name)
    try:
        return Model(ranker(**parameters))
    except TypeError as error:
        known = ", ".join(signature(ranker).parameters)
        raise InputError(f"ranker {name!r}: {error}; its parameters are {known}") from error
