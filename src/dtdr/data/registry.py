"""Classes by the names that users type, imported on demand."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from dtdr.errors import InputError, check_choice

T = TypeVar("T")


class Registry(Generic[T]):
    """Module and attribute of each class, by name; ``kind`` is for error messages.

    A process imports only what it uses, and a class may need an extra.
    """

    def __init__(self, kind: str, entries: Mapping[str, tuple[str, str]]) -> None:
        self.kind = kind
        self.names = tuple(entries)
        self._entries = entries

    def find(self, name: str) -> type[T]:
        """The class of that name; InputError if there is none."""
        check_choice(self.kind, name, self.names)
        module, attribute = self._entries[name]
        entry: type[T] = getattr(import_module(module), attribute)
        return entry

    def create(self, name: str, *arguments: Any, **parameters: Any) -> T:
        """An object of the class of that name; InputError if it does not take a parameter."""
        entry = self.find(name)
        try:
            return entry(*arguments, **parameters)
        except TypeError as error:
            raise InputError(f"{self.kind} {name!r}: {error}") from error
