"""The agent's own search for tools: what it is offered, what it asks, and what it is answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dtdr.agents.transcript import Transcript
from dtdr.data.tools import Tool
from dtdr.errors import InputError

SEARCH_TOOL = "search_tools"
"""Name of the tool that an agent searches with."""

SEARCH_CALLS = frozenset((SEARCH_TOOL, "tool_search"))
"""What searches are called in conversations: ours, and what OpenAI's item is read as. They are no
steps of the user's task."""

LIMIT = 10
"""Tools that a search brings up unless it says how many."""

MAX_LIMIT = 50

DESCRIPTION = (
    "Find tools that are not listed. Say in a sentence what you want to do; the tools found are "
    "returned, added to your list, and can be called by their names at once."
)

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What you want to do, in plain words."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_LIMIT,
            "default": LIMIT,
            "description": "How many tools to return at most.",
        },
    },
    "required": ["query"],
}

NOTHING = "No tool matches. Name in other words what the tool should work on."


def read_search(arguments: object) -> tuple[str, int]:
    """The text of a search, and how many tools it asks for.

    Args:
        arguments: a JSON object, or its text.

    Raises:
        InputError: it says nothing to search for, or asks for another number of tools.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise InputError("the arguments of the search are not JSON") from error
    given = arguments if isinstance(arguments, Mapping) else {}
    query, limit = given.get("query"), given.get("limit", LIMIT)
    if not isinstance(query, str) or not query.strip():
        raise InputError("'query' is missing: say what you want to do")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise InputError(f"'limit' is {limit!r}; it must be a number from 1 to {MAX_LIMIT}")
    return query, limit


def write_answer(tools: Sequence[Mapping[str, Any]], limit: int, available: int) -> dict[str, Any]:
    """What a search is answered: the tools' definitions, and what to do where they are few."""
    answer: dict[str, Any] = {"tools": list(tools)}
    if not tools:
        answer["message"] = NOTHING
    elif len(tools) < min(limit, available):
        answer["message"] = f"Nothing else matches than the {len(tools)} listed here."
    return answer


def searched_tools(transcript: Transcript) -> Iterator[str]:
    """Names of the tools that searches of a conversation returned, as far as it says which."""
    for turn in transcript.turns:
        for call in turn.calls:
            if call.tool in SEARCH_CALLS:
                yield from _names(call.output)


def _names(output: object) -> Iterator[str]:
    if isinstance(output, str):
        try:
            output = json.loads(output)
        except (ValueError, RecursionError):
            return
    tools = output.get("tools") if isinstance(output, Mapping) else output
    for tool in tools if isinstance(tools, list) else ():
        name = tool.get("name") or tool.get("tool_name") if isinstance(tool, Mapping) else None
        if isinstance(name, str):
            yield name


def described_tools(
    tools: Iterable[Any],
    name_of: Callable[[Any], str | None],
    definition_of: Callable[[Any], object],
) -> list[Tool]:
    """The named tools of a request or a framework, as far as their definitions can be read."""
    return [
        described_tool(name, definition_of(tool))
        for tool in tools
        if (name := name_of(tool)) is not None and name not in SEARCH_CALLS
    ]


def described_tool(name: str, definition: object) -> Tool:
    """A tool under a name, with what can be read of its definition."""
    record = definition if isinstance(definition, Mapping) else {}
    nested = record.get(str(record.get("type", "function")))
    record = nested if isinstance(nested, Mapping) else record
    try:
        return Tool.from_dict({**record, "name": name})
    except InputError:
        return Tool(name, str(record.get("description") or ""))
