"""The HTTP server, its client, feedback, learning and the studio."""

from importlib import import_module
from typing import Any

_MODULES = ("client", "feedback", "learning", "server", "studio")


def __getattr__(name: str) -> Any:
    """A package, imported when it is asked for."""
    if name in _MODULES:
        return import_module(f"dtdr.serve.{name}")
    raise AttributeError(f"module 'dtdr.serve' has no attribute {name!r}")
