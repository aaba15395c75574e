"""Predicts which tools an LLM agent needs next, from the query and the tool calls made so far."""

from dtdr.api import fit, load
from dtdr.demonstrations import Demonstration, Tool
from dtdr.jsonl import read_demonstrations
from dtdr.plan import Plan, ToolCall
from dtdr.ranking import Ranking

__version__ = "0.1.0"

__all__ = [
    "Demonstration",
    "Plan",
    "Ranking",
    "Tool",
    "ToolCall",
    "fit",
    "load",
    "read_demonstrations",
]
