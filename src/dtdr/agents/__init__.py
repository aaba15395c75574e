"""Tool masks: decide from a ranking which tools an agent sees, in any framework.

``policy`` decides which tools are shown and why, ``mask`` ranks for a transcript and fails open;
``openai`` and ``anthropic`` write the decision into requests; ``prefetch`` makes predicted calls
early; every other module is a framework.
"""

from importlib import import_module
from typing import Any

from dtdr.agents.mask import ToolMask, ToolRun
from dtdr.agents.policy import ToolPolicy, ToolSelection, ToolSelector
from dtdr.agents.prefetch import Prefetch
from dtdr.agents.transcript import Transcript, Turn

__all__ = [
    "Prefetch",
    "ToolMask",
    "ToolPolicy",
    "ToolRun",
    "ToolSelection",
    "ToolSelector",
    "Transcript",
    "Turn",
]

_MODULES = ("anthropic", "langchain", "llama_index", "openai", "openai_agents", "pydantic_ai")


def __getattr__(name: str) -> Any:
    """A provider's or framework's module, imported when it is asked for."""
    if name in _MODULES:
        return import_module(f"dtdr.agents.{name}")
    raise AttributeError(f"module 'dtdr.agents' has no attribute {name!r}")
