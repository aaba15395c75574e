"""Where the values of a call's arguments come from, for reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dtdr.data.calls import ToolCall, is_reference
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.outputs import iter_leaves


def iter_sources(run: Demonstration) -> Iterator[tuple[ToolCall, str, str]]:
    """Where the value of each argument comes from, as far as the run shows it.

    A value counts as an output's only where the run refers to the output.

    Yields:
        The call, the name of the argument, and ``output``, ``query``, ``earlier message``,
        ``argument`` (of an earlier call) or ``other``; one for each value of a list or object.
    """
    query = run.query.casefold()
    said = "\n".join(item.content for item in run.before if isinstance(item, Message)).casefold()
    earlier: set[str] = set()
    for call in run.plan.calls:
        values = list(_iter_values(call))
        for name, value in values:
            text = _text(value)
            if is_reference(value):
                source = "output"
            elif isinstance(value, bool) or not text:
                source = "other"
            elif text in query:
                source = "query"
            elif text in said:
                source = "earlier message"
            else:
                source = "argument" if text in earlier else "other"
            yield call, name, source
        earlier.update(_text(value) for _, value in values if not is_reference(value))


def _iter_values(call: ToolCall) -> Iterator[tuple[str, Any]]:
    """``(parameter, value)`` of each argument, and of each value in lists and objects."""
    for name, argument in call.arguments.items():
        for _, value in iter_leaves(argument, is_reference):
            yield name, value


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.strip().casefold()
