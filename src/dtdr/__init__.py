"""Predicts which tools an LLM agent needs next, from the query and the tool calls made so far."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dtdr._version import VERSION
from dtdr.api import fit, load
from dtdr.data.calls import ToolCall
from dtdr.data.demonstration_files import read_demonstrations, read_tools
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import DtdrError
from dtdr.predict.model import Model
from dtdr.predict.session import Session
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import Selection

if TYPE_CHECKING:
    from dtdr.serve.client import AsyncClient as AsyncClient
    from dtdr.serve.client import Client as Client

__version__ = VERSION

__all__ = [
    "AsyncClient",
    "Client",
    "Demonstration",
    "DtdrError",
    "Message",
    "Model",
    "Plan",
    "Ranking",
    "Run",
    "Selection",
    "Session",
    "Tool",
    "ToolCall",
    "fit",
    "load",
    "read_demonstrations",
    "read_tools",
]


_PACKAGES = ("agents", "conversation", "evaluate", "llm", "logs", "serve")
"""Those that ``import dtdr`` does not import: ``dtdr.logs.open_demonstrations(…)`` does."""


def __getattr__(name: str) -> Any:
    """The clients of a server and the other packages, imported when they are asked for."""
    if name in ("AsyncClient", "Client"):
        from dtdr.serve import client

        return getattr(client, name)
    if name in _PACKAGES:
        return import_module(f"dtdr.{name}")
    raise AttributeError(f"module 'dtdr' has no attribute {name!r}")
