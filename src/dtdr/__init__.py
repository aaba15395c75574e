"""Predicts which tools an LLM agent needs next, from the query and the tool calls made so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtdr.api import fit, load
from dtdr.calls import ToolCall
from dtdr.demonstration_files import read_demonstrations, read_tools
from dtdr.demonstrations import Demonstration, Message
from dtdr.errors import DtdrError
from dtdr.plan import Plan
from dtdr.ranking import Ranking
from dtdr.retrievers.session import Session
from dtdr.run import Run
from dtdr.selection import Selection
from dtdr.tools import Tool

if TYPE_CHECKING:
    from dtdr.client import AsyncClient as AsyncClient
    from dtdr.client import Client as Client

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "Demonstration",
    "DtdrError",
    "Message",
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


def __getattr__(name: str) -> Any:
    """The clients of a server, imported when they are asked for."""
    if name in ("AsyncClient", "Client"):
        from dtdr import client

        return getattr(client, name)
    raise AttributeError(f"module 'dtdr' has no attribute {name!r}")
