"""Prompts that show a ranking to an LLM, and readers of its answers."""

from dtdr.llm.prompting.answer_forms import AnswerForm, filling_form
from dtdr.llm.prompting.examples import Examples
from dtdr.llm.prompting.filling import FillingPrompts
from dtdr.llm.prompting.prompt import Prompt
from dtdr.llm.prompting.selection import (
    DEFAULT,
    LAYOUTS,
    METHODS,
    IclMethod,
    SelectionPrompts,
    icl_method,
)

__all__ = [
    "DEFAULT",
    "LAYOUTS",
    "METHODS",
    "AnswerForm",
    "Examples",
    "FillingPrompts",
    "IclMethod",
    "Prompt",
    "SelectionPrompts",
    "filling_form",
    "icl_method",
]
