"""Texts of tools for encoders and word statistics."""

from __future__ import annotations

from dtdr.data.tools import Tool
from dtdr.text.words import name_words


def document(tool: Tool) -> str:
    """Name, description and parameters as one text."""
    parts = [name_words(tool.name), tool.description]
    for parameter in tool.parameters:
        parts += [name_words(parameter.name), parameter.description]
    return "\n".join(part for part in parts if part)
