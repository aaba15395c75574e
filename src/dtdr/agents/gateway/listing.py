"""Listings of a server: every page, each item once, without unusable items."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

logger = logging.getLogger("dtdr.mcp")

MAX_PAGES = 1_000
"""Pages of one list at most, so that a server with endless pages cannot block the others."""

LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
"""By method: the key of a page's items, and that of an item's name."""


def drop_bad_items(server: str, method: str, page: dict[str, Any]) -> dict[str, Any]:
    """A page without the items that the SDK refuses, for which it would refuse the page.

    Args:
        server: its name, for the log.
        method: of the request that the page answers.
        page: as it came over the wire.
    """
    key, identity = LISTS[method]
    version = LATEST_MODERN_VERSION if "cacheScope" in page else LATEST_HANDSHAKE_VERSION
    items = page.get(key)

    def problem_of(items: list[Any]) -> str | None:
        try:
            validate_server_result(method, version, {**page, key: items})
        except (ValueError, RecursionError) as error:
            return first_reason(error)
        return None

    if not isinstance(items, list) or problem_of([]) or not problem_of(items):
        return page
    kept = []
    for item in items:
        if (reason := problem_of([item])) is None:
            kept.append(item)
        else:
            name = item.get(identity) if isinstance(item, dict) else item
            logger.warning(
                "upstream %r: %.100r of its %s cannot be used: %.300s", server, name, key, reason
            )
    return {**page, key: kept}


async def list_items(
    server: str, method: str, ask: Callable[[str | None], Awaitable[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The items of every page of a server's list, each once.

    Args:
        server: its name, for the log.
        method: lists them.
        ask: gives the page at a cursor, None for the first.

    Raises:
        MCPError: a page has no list.
    """
    key, identity = LISTS[method]
    items: dict[str, dict[str, Any]] = {}
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await ask(cursor)
        if not isinstance(page.get(key), list):
            raise MCPError(types.INTERNAL_ERROR, f"the server {server!r} sent no list of {key}")
        for item in page[key]:
            items.setdefault(item[identity], item)
        following = page.get("nextCursor")
        if not following:
            break
        if not isinstance(following, str) or following in seen or len(seen) == MAX_PAGES - 1:
            logger.warning(
                "upstream %r: its pages of %s do not end (a cursor came twice, or there are more "
                "than %d); what they had until then is used", server, key, MAX_PAGES,
            )  # fmt: skip
            break
        seen.add(following)
        cursor = following
    return [item for name, item in items.items() if name.strip()]


def first_reason(error: BaseException) -> str:
    """The first reason in a group of errors, on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename!r}"
    return " ".join(str(error).split()) or type(error).__name__
