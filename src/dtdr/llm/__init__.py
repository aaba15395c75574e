"""Function calling with an LLM: backends, prompts and the planner."""

from importlib import import_module
from typing import Any

_MODULES = ("backends", "planning", "prompting")


def __getattr__(name: str) -> Any:
    """A package, imported when it is asked for."""
    if name in _MODULES:
        return import_module(f"dtdr.llm.{name}")
    raise AttributeError(f"module 'dtdr.llm' has no attribute {name!r}")
