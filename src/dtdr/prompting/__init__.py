"""Prompts: how a ranking is written for an LLM, and how its answers are read."""

from dtdr.prompting.examples import Examples
from dtdr.prompting.filling import FillingPrompts
from dtdr.prompting.icl import DEFAULT, METHODS, IclMethod, icl_method
from dtdr.prompting.prompt import Prompt
from dtdr.prompting.selection import SelectionPrompts

__all__ = [
    "DEFAULT",
    "METHODS",
    "Examples",
    "FillingPrompts",
    "IclMethod",
    "Prompt",
    "SelectionPrompts",
    "icl_method",
]
