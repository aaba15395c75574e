"""Resources and prompts: those of all servers as if of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from dtdr.agents.gateway.catalog import Names
from dtdr.agents.gateway.clients import Context
from dtdr.agents.gateway.gateway import Gateway
from dtdr.agents.gateway.questions import RawResult
from dtdr.agents.gateway.upstream import Upstream

RESOURCE_NOT_FOUND = -32002

_NOT_MINE = frozenset({RESOURCE_NOT_FOUND, types.INVALID_PARAMS, types.METHOD_NOT_FOUND})


class PassThrough:
    """Answers requests that are not about tools from the upstreams.

    Every method raises an MCPError: the server's own, or one that no server has what is asked for.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._upstreams = gateway.upstreams
        self._prompt_names = Names(gateway.upstreams)
        self._uri_owners: dict[str, str] = {}

    # -- resources -----------------------------------------------------------------------------

    async def list_resources(self, context: Context, params: Any) -> RawResult:
        """Every server's resources; if several have a URI, the first server's."""
        found = await self._list_first("resources/list", "resources", "uri")
        self._uri_owners.update((uri, upstream) for uri, (upstream, _) in found.items())
        return {"resources": [item for _, item in found.values()]}

    async def list_templates(self, context: Context, params: Any) -> RawResult:
        """Every server's resource templates."""
        key = "resourceTemplates"
        found = await self._list_first("resources/templates/list", key, "uriTemplate")
        return {key: [item for _, item in found.values()]}

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> RawResult:
        """The resource of the server that lists it; else of the first that has it."""
        problem: MCPError | None = None
        for upstream in self._readers(params.uri):
            try:
                return await upstream.forward(context)
            except MCPError as error:
                problem = problem or error
                if error.code not in _NOT_MINE:
                    raise
        raise problem or MCPError(RESOURCE_NOT_FOUND, f"Resource not found: {params.uri}")

    async def _list_first(
        self, method: str, key: str, identity: str
    ) -> dict[str, tuple[str, dict[str, Any]]]:
        """The first of every server's items of each identity, with its server."""
        first: dict[str, tuple[str, dict[str, Any]]] = {}
        for upstream, items in (await self._gather(method, key)).items():
            for item in items:
                first.setdefault(item[identity], (upstream, item))
        return first

    def _readers(self, uri: str) -> Sequence[Upstream]:
        """The server that listed a resource; else all that may have it."""
        owner = self._uri_owners.get(uri)
        if owner is not None:
            return [self._upstreams[owner]]
        return [item for item in self._upstreams.values() if item.has_resources]

    # -- prompts -------------------------------------------------------------------------------

    async def list_prompts(self, context: Context | None, params: Any) -> RawResult:
        """Every server's prompts, under distinct names."""
        named = self._prompt_names.assign(await self._gather("prompts/list", "prompts"))
        return {"prompts": [{**item, "name": name} for name, _, item in named]}

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> RawResult:
        """A server's prompt."""
        owner = self._prompt_names.owner(params.name)
        if owner is None:
            await self.list_prompts(None, None)
            owner = self._prompt_names.owner(params.name)
        if owner is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        return await self._upstreams[owner[0]].forward(context, {"name": owner[1]})

    # -- the rest ------------------------------------------------------------------------------

    async def roots_changed(self, context: Context, params: types.NotificationParams) -> None:
        """Tell the servers that the client's roots changed."""
        for upstream in self._upstreams.values():
            await upstream.roots_changed()

    async def _gather(self, method: str, key: str) -> dict[str, list[dict[str, Any]]]:
        """A list of every server; one that fails leaves only its own out."""
        offers: dict[str, list[dict[str, Any]]] = {name: [] for name in self._upstreams}

        async def ask(upstream: Upstream) -> None:
            offers[upstream.name] = await upstream.list_all(method, key)

        async with anyio.create_task_group() as tasks:
            for upstream in self._upstreams.values():
                tasks.start_soon(ask, upstream)
        return offers
