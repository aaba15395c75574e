"""Names that suites use: registered retrievers, and classes of the user's own."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from dtdr.errors import InputError
from dtdr.retrievers import NAMES, retriever_class
from dtdr.retrievers.base import Retriever


def resolve_retriever(name: str) -> type[Retriever]:
    """The class behind a registered name, or behind ``module:Class``.

    Raises:
        InputError: no retriever has that name, or the module does not hold such a class.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        if name not in NAMES:
            raise InputError(
                f"unknown retriever {name!r}; choose one of {', '.join(sorted(NAMES))}, or name a "
                "class of your own as module:Class"
            )
        return retriever_class(name)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"retriever {name!r} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Retriever)):
        raise InputError(f"{name!r} is no subclass of dtdr.retrievers.base.Retriever")
    return found
