"""Anthropic's deferred loading: the same tools for every run, loaded as the conversation goes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dtdr.errors import InputError
from dtdr.integrations.anthropic_tools import costs, field, tool_names, without
from dtdr.integrations.loading import loads
from dtdr.integrations.mask import ToolMask

LOADER = "load_tools"
"""Name of the tool whose results carry the references to deferred tools."""

LOADER_TOOL: dict[str, Any] = {
    "name": LOADER,
    "description": "Loads the tools that the next steps need. Called automatically.",
    "input_schema": {"type": "object", "properties": {}},
}
"""Its definition: the one tool that is never deferred, which the API requires."""


def deferred(
    tools: Sequence[Any], known: Collection[str], *, always_include: Collection[str] = ()
) -> list[Any]:
    """The same array for every step of every run: known tools are loaded when referred to.

    Args:
        tools: the request's ``tools``.
        known: names that the retriever knows; others are loaded from the start.
        always_include: names that are loaded from the start too.

    Returns:
        ``tools``, the known ones with ``defer_loading``, and the tool ``load_tools``, in whose
        results the references stand. Cache breakpoints of deferred tools move to the nearest tool
        before them that is not.

    Raises:
        InputError: two tools share a name, or one has the name of the loader.
    """
    names = tool_names(tools)
    if LOADER in names:
        raise InputError(f"a tool is named {LOADER!r}, which this form needs; rename the tool")
    waiting = frozenset(known) - frozenset(always_include)
    return without(
        [LOADER_TOOL, *tools],
        lambda name: name in waiting,
        lambda tool: {**tool, "defer_loading": True},
    )


def references(names: Iterable[str]) -> list[dict[str, str]]:
    """Content of a tool result that loads deferred tools."""
    return [{"type": "tool_reference", "tool_name": name} for name in names]


def load(names: Sequence[str], number: int) -> list[dict[str, Any]]:
    """Two messages that load deferred tools as if the model had asked for them.

    The model is spared the round trip of a search: what it will need is there before it asks.

    Args:
        names: the tools to load.
        number: tells this load from the conversation's others; part of its id.
    """
    identifier = f"toolu_dtdr_{number:04d}"
    return [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": identifier, "name": LOADER, "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": identifier,
                    "content": references(names),
                }
            ],
        },
    ]


def with_loads(
    messages: Sequence[Any],
    tools: Sequence[Any],
    mask: ToolMask,
    *,
    also: Collection[str] = (),
) -> list[Any]:
    """The conversation with a load in front of every answer for which tools became needed.

    Worked out anew from the conversation each time, and the same each time; see ``loading``.

    Args:
        messages: the request's ``messages``, as the user keeps them: without loads.
        tools: the request's ``tools``, all of them.
        mask: retriever and policy.
        also: names to load for the next answer, whatever their rank.

    Raises:
        InputError: two tools share a name.
    """
    answers = [
        position
        for position, message in enumerate(messages)
        if field(message, "role") == "assistant"
    ]
    due = loads(messages, answers, tool_names(tools), mask, also=also, costs=costs(mask, tools))
    found: list[Any] = []
    count = 0
    for position in range(len(messages) + 1):
        if position in due:
            count += 1
            found += load(due[position], count)
        found += messages[position : position + 1]
    return found
