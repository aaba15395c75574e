"""Classes by the names that users type, imported when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from dtdr.errors import InputError, unknown_choice

T = TypeVar("T")


class Registry(Generic[T]):
    """One line a class: its name, its module and its attribute there.

    Importing late keeps a process that only ranks from paying for what it does not use, and lets a
    class need an extra.

    Args:
        kind: what the classes are, for error messages.
        entries: module and attribute of each name.
    """

    def __init__(self, kind: str, entries: Mapping[str, tuple[str, str]]) -> None:
        self.kind = kind
        self.names = tuple(entries)
        self._entries = entries

    def find(self, name: str) -> type[T]:
        """The class behind a name.

        Raises:
            InputError: no class has that name.
        """
        if name not in self._entries:
            raise unknown_choice(self.kind, name, self.names)
        module, attribute = self._entries[name]
        chosen: type[T] = getattr(import_module(module), attribute)
        return chosen

    def create(self, name: str, *arguments: Any, **parameters: Any) -> T:
        """An object of the class behind a name.

        Raises:
            InputError: no class has that name, or it does not take a parameter.
        """
        chosen = self.find(name)
        try:
            return chosen(*arguments, **parameters)
        except TypeError as error:
            raise InputError(f"{self.kind} {name!r}: {error}") from error
