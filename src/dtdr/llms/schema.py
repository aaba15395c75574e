"""Structured output of OpenAI-compatible servers: a choice among names as a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def choice_schema(choices: Sequence[str]) -> dict[str, Any]:
    """The ``response_format`` of a choice: an object with the one key ``function``."""
    schema = {
        "type": "object",
        "properties": {"function": {"type": "string", "enum": list(dict.fromkeys(choices))}},
        "required": ["function"],
        "additionalProperties": False,
    }
    return {
        "type": "json_schema",
        "json_schema": {"name": "next_function", "strict": True, "schema": schema},
    }


def chosen_name(text: str) -> str:
    """The name inside ``{"function": name}``; the text itself where a server ignored the schema."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    name = found.get("function") if isinstance(found, dict) else text
    return name if isinstance(name, str) else ""
