"""Makes tools that no demonstration uses known to a model that can learn on."""

from __future__ import annotations

import logging

import anyio

from dtdr.demonstrations import Tool
from dtdr.errors import DtdrError, InputError
from dtdr.gateway.catalog import Catalog, CatalogTool
from dtdr.gateway.ranker import Ranker

logger = logging.getLogger("dtdr.mcp")


class Introducer:
    """Adds the tools of a catalog that the model does not know, to be ranked by their descriptions.

    A tool is never removed again: one that is away comes back.

    Args:
        ranker: asked to add them.
        catalog: what there is.
    """

    def __init__(self, ranker: Ranker, catalog: Catalog) -> None:
        self._ranker = ranker
        self._catalog = catalog
        self._refused: set[str] = set()
        self._one_at_a_time = anyio.Lock()
        self.introduced: set[str] = set()

    async def introduce(self) -> bool:
        """Add what is new; whether the model knows more tools now."""
        if not self._ranker.can_add_tools:
            return False
        async with self._one_at_a_time:
            fresh = [item for item in self._catalog.unknown() if item.name not in self._refused]
            if not fresh:
                return False
            names = {item.name for item in fresh}
            try:
                await self._ranker.add_tools([_tool(item) for item in fresh])
            except DtdrError as error:
                self._refused |= names
                logger.warning("the model does not take up %d new tools: %s", len(fresh), error)
                return False
            self.introduced |= names
            logger.info("the model ranks %d new tools by their descriptions", len(fresh))
            return True


def _tool(item: CatalogTool) -> Tool:
    """As the model knows it: under the name that clients see, which no other tool has."""
    definition = item.definition
    try:
        return Tool.from_dict({**definition, "name": item.name})
    except InputError:
        return Tool(item.name, str(definition.get("description") or ""))
