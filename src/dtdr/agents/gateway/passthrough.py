"""Resources, prompts and completions: those of all servers as if of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate

from dtdr.agents.gateway.catalog import Names
from dtdr.agents.gateway.clients import MAX_TEXT, ClientState, Context
from dtdr.agents.gateway.gateway import Gateway
from dtdr.agents.gateway.questions import RawResult
from dtdr.agents.gateway.upstream import Upstream

RESOURCE_NOT_FOUND = -32002

MAX_SUBSCRIPTIONS = 1_000
"""Of one client."""

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
        self._templates: dict[str, str] = {}

    # -- resources -----------------------------------------------------------------------------

    async def list_resources(self, context: Context, params: Any) -> RawResult:
        """Every server's resources; if several have a URI, the first server's."""
        return await self._list_first("resources/list", "resources", "uri", self._uri_owners)

    async def list_templates(self, context: Context | None, params: Any) -> RawResult:
        """Every server's resource templates."""
        method, key = "resources/templates/list", "resourceTemplates"
        return await self._list_first(method, key, "uriTemplate", self._templates)

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

    async def subscribe(self, context: Context, params: types.SubscribeRequestParams) -> RawResult:
        """Start updates of a resource."""
        await self._subscribe(self._gateway.clients.of(context), {params.uri})
        return {}

    async def unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> RawResult:
        """Stop updates of a resource; its server may go on to send them to the gateway."""
        self._gateway.clients.of(context).subscriptions.discard(params.uri)
        return {}

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """A 2026-07-28 client's stream of changes, open until it closes."""
        state = self._gateway.clients.of(context)
        uris = set(params.notifications.resource_subscriptions or ()) - state.subscriptions
        state.running += 1
        try:
            await self._subscribe(state, uris)
            return await state.listen(context, params)
        finally:
            state.running -= 1
            state.subscriptions -= uris

    async def _subscribe(self, state: ClientState, uris: set[str]) -> None:
        """Add URIs to a client's subscriptions, and subscribe to them."""
        if len(state.subscriptions | uris) > MAX_SUBSCRIPTIONS:
            raise MCPError(types.INVALID_PARAMS, f"more than {MAX_SUBSCRIPTIONS} subscriptions")
        if any(len(uri) > MAX_TEXT for uri in uris):
            raise MCPError(types.INVALID_PARAMS, f"a URI is longer than {MAX_TEXT} characters")
        state.subscriptions |= uris
        for uri in uris:
            for upstream in self._readers(uri):
                await upstream.subscribe(uri)

    async def _list_first(
        self, method: str, key: str, identity: str, owners: dict[str, str]
    ) -> RawResult:
        """Every server's items, the first of each identity, with its server noted in ``owners``."""
        first: dict[str, dict[str, Any]] = {}
        for upstream, items in (await self._gather(method, key)).items():
            for item in items:
                if item[identity] not in first:
                    first[item[identity]] = item
                    owners[item[identity]] = upstream
        return {key: list(first.values())}

    def _readers(self, uri: str) -> Sequence[Upstream]:
        """Servers that may have a resource: one that listed it, or that has a matching template."""
        owner = self._uri_owners.get(uri)
        if owner is None:
            owner = next((name for text, name in self._templates.items() if _fits(text, uri)), None)
        if owner is not None:
            return [self._upstreams[owner]]
        return [item for item in self._upstreams.values() if item.has_resources]

    # -- prompts and completions ---------------------------------------------------------------

    async def list_prompts(self, context: Context | None, params: Any) -> RawResult:
        """Every server's prompts, under distinct names."""
        named = self._prompt_names.assign(await self._gather("prompts/list", "prompts"))
        return {"prompts": [{**item, "name": name} for name, _, item in named]}

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> RawResult:
        """A server's prompt."""
        upstream, raw_name = await self._prompt(params.name)
        return await upstream.forward(context, {"name": raw_name})

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> RawResult:
        """Completions from the server of the prompt or resource template."""
        if isinstance(params.ref, types.PromptReference):
            upstream, raw_name = await self._prompt(params.ref.name)
            ref = {"type": "ref/prompt", "name": raw_name}
            return await upstream.forward(context, {"ref": ref})
        if params.ref.uri not in self._templates:
            await self.list_templates(None, None)
        owner = self._templates.get(params.ref.uri)
        if owner is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource template: {params.ref.uri}")
        return await self._upstreams[owner].forward(context)

    async def _prompt(self, name: str) -> tuple[Upstream, str]:
        owner = self._prompt_names.owner(name)
        if owner is None:
            await self.list_prompts(None, None)
            owner = self._prompt_names.owner(name)
        if owner is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")
        return self._upstreams[owner[0]], owner[1]

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


def _fits(template: str, uri: str) -> bool:
    try:
        return UriTemplate.parse(template).match(uri) is not None
    except ValueError:
        return False
