"""langgraph-bigtool: the function that retrieves tools, with the history of the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dtdr.errors import MissingExtraError
from dtdr.integrations.langchain_core import definition, tool_name, transcript
from dtdr.integrations.mask import ToolMask
from dtdr.integrations.requests import check_names, token_costs
from dtdr.integrations.search import described_tools
from dtdr.integrations.transcript import Transcript
from dtdr.retrievers.search import SEARCH_LIMIT

try:
    from langgraph.config import get_config
except ImportError as error:
    raise MissingExtraError("the bigtool retriever", "langgraph-bigtool", "langgraph") from error

_SEARCHES = ("retrieve_tools", "aretrieve_tools")
"""What bigtool names the search for tools, after the function; no step of the user's task."""

logger = logging.getLogger("dtdr.integrations")


def retrieve_tools_functions(
    mask: ToolMask, tool_registry: Mapping[str, Any]
) -> tuple[Callable[[str], list[str]], Callable[[str], Awaitable[list[str]]]]:
    """``retrieve_tools_function`` and ``retrieve_tools_coroutine`` for bigtool's ``create_agent``.

    Both answer what the mask shows, by the user's last message and the calls since then, which they
    read from the graph's state, and what the model searched for besides; where the state cannot be
    read, by the text that the model searched for.

    Args:
        mask: retriever and policy.
        tool_registry: the same that is given to ``create_agent``: tools by id.

    Raises:
        InputError: two tools of the registry share a name.
    """
    identifier: dict[str, str] = {}
    names = check_names(map(tool_name, tool_registry.values()))
    for key, tool in tool_registry.items():
        if (name := tool_name(tool)) is not None:
            identifier[name] = key
    costs = token_costs(mask, tool_registry.values(), tool_name, definition)
    described = described_tools(tool_registry.values(), tool_name, definition)

    def retrieve_tools(query: str) -> list[str]:
        """Find the tools that the next steps need, given what you are about to do."""
        conversation = _conversation(query)
        shown = mask.select(names, conversation, costs=costs).shown
        wanted = mask.search(query, described, conversation, SEARCH_LIMIT) if query.strip() else ()
        return [identifier[name] for name in dict.fromkeys((*shown, *wanted))]

    async def aretrieve_tools(query: str) -> list[str]:
        """Find the tools that the next steps need, given what you are about to do."""
        return await asyncio.to_thread(retrieve_tools, query)

    return retrieve_tools, aretrieve_tools


def _conversation(query: str) -> Transcript:
    """The turns of the run in whose tool call this is."""
    try:
        # bigtool hands its function the search text alone; nodes of the graph can read its state
        # through the configuration of the run, as langgraph's own tool node does.
        read = get_config()["configurable"]["__pregel_read"]
        conversation = transcript(read("messages", False)).without(_SEARCHES)
    except Exception as error:  # noqa: BLE001  # outside a graph, or another version of it
        logger.warning("ranking by the search text alone: %s: %s", type(error).__name__, error)
        return Transcript.of(query)
    return conversation if any(turn.query for turn in conversation.turns) else Transcript.of(query)
