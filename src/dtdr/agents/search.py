"""An agent's search for tools: its definition, its arguments and its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtdr.agents.transcript import Transcript
from dtdr.data.tools import Tool, as_tool
from dtdr.errors import InputError

SEARCH_TOOL = "search_tools"
"""Name of the tool that an agent searches with."""

SEARCH_CALLS = frozenset((SEARCH_TOOL, "tool_search"))
"""Names of searches in conversations: ours, and that of OpenAI's item. A search is not a step of
the user's task."""

LIMIT = 10
"""How many tools a search returns at most."""

DESCRIPTION = (
    "Find tools that are not listed. Say in a sentence what you want to do; the tools found are "
    "returned, added to your list, and can be called by their names at once."
)

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What you want to do, in plain words."},
    },
    "required": ["query"],
}

NOTHING = "No tool matches. Name in other words what the tool should work on."


def read_search(arguments: object) -> str:
    """The text of a search, from a JSON object or its text.

    Raises:
        InputError: the text is missing.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise InputError("the arguments of the search are not JSON") from error
    query = arguments.get("query") if isinstance(arguments, Mapping) else None
    if not isinstance(query, str) or not query.strip():
        raise InputError("'query' is missing: say what you want to do")
    return query


def write_answer(tools: Sequence[Mapping[str, Any]], available: int) -> dict[str, Any]:
    """The answer to a search: the tools' definitions, and advice if there are few."""
    answer: dict[str, Any] = {"tools": list(tools)}
    if not tools:
        answer["message"] = NOTHING
    elif len(tools) < min(LIMIT, available):
        answer["message"] = f"Nothing else matches than the {len(tools)} listed here."
    return answer


def searched_tools(transcript: Transcript) -> Iterator[str]:
    """Names of the tools that searches of a conversation returned."""
    for turn in transcript.turns:
        for call in turn.calls:
            if call.tool in SEARCH_CALLS:
                yield from _names(call.output)


def _names(output: object) -> Iterator[str]:
    """Names of the tools in a search's output, as ``write_answer`` or a provider has them."""
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


def described_tool(name: str, definition: object) -> Tool:
    """A tool with the readable part of its definition."""
    record = definition if isinstance(definition, Mapping) else {}
    try:
        return replace(as_tool(record), name=name)
    except InputError:
        return Tool(name, str(record.get("description") or ""))
