"""OpenAI's responses API: tools that are added within the conversation, when they are needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dtdr.integrations.loading import loadable, loads
from dtdr.integrations.mask import ToolMask
from dtdr.integrations.messages import as_json


def with_additional_tools(
    items: Sequence[Any],
    named: Sequence[tuple[str | None, Any]],
    mask: ToolMask,
    *,
    also: Collection[str] = (),
    costs: Mapping[str, int] | None = None,
) -> tuple[list[Any], list[Any]]:
    """The items with tools added in front of the answers that need them, and the tools that stay.

    Worked out anew from the conversation each time, and the same each time, so that the cached
    start of the prompt stays what it was.

    Args:
        items: the request's ``input``, as the user keeps it: without added tools.
        named: the request's ``tools``, each with its name, or None.
        mask: retriever and policy.
        also: names to add for the next answer, whatever their rank.
        costs: tokens of each tool's definition; needed for ``token_budget``.

    Returns:
        ``input`` and ``tools``; tools that the retriever does not know, that are always included
        or that have no name stay in ``tools``.
    """
    names = [name for name, _ in named if name is not None]
    waiting = loadable(mask, names)
    definitions = {name: tool for name, tool in named if name in waiting}
    answers = [
        position
        for position in range(len(items))
        if _is_answer(items[position]) and (position == 0 or not _is_answer(items[position - 1]))
    ]
    due = loads(items, answers, names, mask, also=also, costs=costs)
    found: list[Any] = []
    for position in range(len(items) + 1):
        if position in due:
            added = [definitions[name] for name in due[position]]
            found.append({"type": "additional_tools", "role": "developer", "tools": added})
        found += items[position : position + 1]
    return found, [tool for name, tool in named if name not in waiting]


def _is_answer(item: object) -> bool:
    """Whether the model wrote an item: a message, reasoning, or a call."""
    record = as_json(item)
    if not isinstance(record, Mapping):
        return False
    if "role" in record:
        return bool(record["role"] == "assistant")
    return not str(record.get("type", "")).endswith("_output")
