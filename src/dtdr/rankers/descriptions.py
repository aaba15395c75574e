"""Texts of tools for encoders and word statistics."""

from __future__ import annotations

import re

from dtdr.data.tools import Tool

_CAMEL_CASE = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\W_]+")


def name_words(name: str) -> str:
    """The words of a tool name: ``getUser_by-id`` becomes ``get user by id``.

    A name without any letter or digit is given back as it is.
    """
    spaced = _SEPARATORS.sub(" ", _CAMEL_CASE.sub(" ", name)).strip().lower()
    return spaced or name


def document(tool: Tool) -> str:
    """Name, description and parameters as one text."""
    parts = [name_words(tool.name), tool.description]
    for parameter in tool.parameters:
        parts += [name_words(parameter.name), parameter.description]
    return "\n".join(part for part in parts if part)
