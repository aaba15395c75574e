"""Resources, prompts, completions and log levels: all servers' as if they were one's."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate

from dtdr.agents.gateway.catalog import AmbiguousNameError, Names
from dtdr.agents.gateway.clients import MAX_TEXT, ClientState, Context
from dtdr.agents.gateway.forwarding import forward, lowest_level
from dtdr.agents.gateway.gateway import Gateway
from dtdr.agents.gateway.upstream import RawResult, UnavailableError, Upstream

logger = logging.getLogger("dtdr.mcp")

RESOURCE_NOT_FOUND = -32002

MAX_SUBSCRIPTIONS = 1_000
"""Of one client."""

MAX_OWNERS = 10_000
"""Addresses of resources whose server is remembered."""

_NOT_MINE = frozenset({RESOURCE_NOT_FOUND, types.INVALID_PARAMS, types.METHOD_NOT_FOUND})


class PassThrough:
    """Answers requests that are not about tools from the upstreams."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._prompt_names = Names(gateway.upstreams)
        self._uri_owners: dict[str, str] = {}
        self._templates: dict[str, str] = {}

    # -- resources -----------------------------------------------------------------------------

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams
    ) -> RawResult:
        """Every server's resources; of a URI that several have, the first server's."""
        return await self._list_first("resources/list", "resources", "uri", self._uri_owners)

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams
    ) -> RawResult:
        """Every server's resource templates."""
        return await self._list_templates()

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> RawResult:
        """The resource of the server that lists it; else of the first that has it.

        Raises:
            MCPError: the server's own error, or no server has it.
        """
        problem: MCPError | None = None
        for upstream in self._readers(params.uri):
            try:
                result = await self._forward(context, upstream)
            except MCPError as error:
                problem = problem or error
                if error.code not in _NOT_MINE:
                    raise
            else:
                if len(self._uri_owners) < MAX_OWNERS:
                    self._uri_owners[params.uri] = upstream.name
                return result
        raise problem or MCPError(RESOURCE_NOT_FOUND, f"Resource not found: {params.uri}")

    async def subscribe(self, context: Context, params: types.SubscribeRequestParams) -> RawResult:
        """Hear of updates of a resource."""
        state = self._gateway.clients.of(context)
        if params.uri not in state.subscriptions:
            _require_room(state, [params.uri])
            await self._tell_readers(Upstream.subscribe, params.uri)
            state.subscriptions.add(params.uri)
        return {}

    async def unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> RawResult:
        """Hear no more of updates of a resource."""
        state = self._gateway.clients.of(context)
        if params.uri in state.subscriptions:
            state.subscriptions.discard(params.uri)
            await self._tell_readers(Upstream.unsubscribe, params.uri)
        return {}

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """A 2026-07-28 client's stream of changes, open until it closes."""
        state = self._gateway.clients.of(context)
        asked = dict.fromkeys(params.notifications.resource_subscriptions or ())
        uris = [uri for uri in asked if uri not in state.subscriptions]
        _require_room(state, uris)
        state.subscriptions.update(uris)
        state.running += 1
        try:
            await self._tell_readers(Upstream.subscribe, *uris)
            return await state.listen(context, params)
        finally:
            state.running -= 1
            state.subscriptions.difference_update(uris)
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await self._tell_readers(Upstream.unsubscribe, *uris)

    async def _list_templates(self) -> RawResult:
        method, key = "resources/templates/list", "resourceTemplates"
        return await self._list_first(method, key, "uriTemplate", self._templates)

    async def _list_first(
        self, method: str, key: str, identity: str, owners: dict[str, str]
    ) -> RawResult:
        """Every server's items, the first of each identity, with its server noted in ``owners``."""
        first: dict[str, dict[str, Any]] = {}
        for upstream, items in (await self._gather(method, key, "resources")).items():
            for item in items:
                value = item.get(identity)
                if isinstance(value, str) and value not in first:
                    first[value] = item
                    owners[value] = upstream
        return {key: list(first.values())}

    def _readers(self, uri: str) -> list[Upstream]:
        """Who may have a resource: the server that listed it, or a template of whose it fits."""
        owner = self._uri_owners.get(uri)
        if owner is None:
            owner = next((name for text, name in self._templates.items() if _fits(text, uri)), None)
        return self._find_able("resources") if owner is None else [self._gateway.upstreams[owner]]

    async def _tell_readers(
        self, tell: Callable[[Upstream, str], Awaitable[None]], *uris: str
    ) -> None:
        for uri in uris:
            for upstream in self._readers(uri):
                await _log_failure(upstream, tell(upstream, uri))

    # -- prompts and completions ---------------------------------------------------------------

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams
    ) -> RawResult:
        """Every server's prompts, under names that differ."""
        offers = await self._gather("prompts/list", "prompts", "prompts")
        named = self._prompt_names.assign(offers)
        return {"prompts": [{**item, "name": name} for name, _, item in named]}

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> RawResult:
        """A server's prompt.

        Raises:
            MCPError: there is none of that name, or the server's own error.
        """
        upstream, raw_name = await self._prompt(params.name)
        return await self._forward(context, upstream, {"name": raw_name})

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> RawResult:
        """Completions from the server whose prompt or resource template is meant.

        Raises:
            MCPError: no server has it, or the server's own error.
        """
        if isinstance(params.ref, types.PromptReference):
            upstream, raw_name = await self._prompt(params.ref.name)
            ref = {"type": "ref/prompt", "name": raw_name}
            return await self._forward(context, upstream, {"ref": ref})
        if params.ref.uri not in self._templates:
            await self._list_templates()
        owner = self._templates.get(params.ref.uri)
        if owner is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource template: {params.ref.uri}")
        return await self._forward(context, self._gateway.upstreams[owner])

    async def _prompt(self, name: str) -> tuple[Upstream, str]:
        try:
            owner = self._prompt_names.owner(name)
            if owner is None:
                self._prompt_names.assign(await self._gather("prompts/list", "prompts", "prompts"))
                owner = self._prompt_names.owner(name)
        except AmbiguousNameError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        if owner is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")
        return self._gateway.upstreams[owner[0]], owner[1]

    # -- the rest ------------------------------------------------------------------------------

    async def set_level(self, context: Context, params: types.SetLevelRequestParams) -> RawResult:
        """Log messages of this level and above, for this client; servers hear the lowest."""
        gateway = self._gateway
        gateway.clients.of(context).log_level = params.level
        lowest = lowest_level(gateway.clients)
        async with anyio.create_task_group() as tasks:
            for upstream in gateway.upstreams.values():
                tasks.start_soon(_log_failure, upstream, upstream.set_log_level(lowest))
        return {}

    async def roots_changed(self, context: Context, params: types.NotificationParams) -> None:
        """Tell the servers that the client's roots changed."""
        for upstream in self._gateway.upstreams.values():
            await upstream.roots_changed()

    def _find_able(self, capability: str) -> list[Upstream]:
        upstreams = self._gateway.upstreams.values()
        return [item for item in upstreams if getattr(item.capabilities, capability) is not None]

    async def _gather(
        self, method: str, key: str, capability: str
    ) -> dict[str, list[dict[str, Any]]]:
        """A list of every server that has one; a server that fails leaves only its own out."""
        able = self._find_able(capability)
        offers: dict[str, list[dict[str, Any]]] = {upstream.name: [] for upstream in able}

        async def ask(upstream: Upstream) -> None:
            try:
                offers[upstream.name] = await upstream.list_all(method, key)
            except MCPError as error:
                if error.code != types.METHOD_NOT_FOUND:
                    logger.warning("upstream %r: %s failed: %s", upstream.name, method, error)

        async with anyio.create_task_group() as tasks:
            for upstream in able:
                tasks.start_soon(ask, upstream)
        return offers

    async def _forward(
        self, context: Context, upstream: Upstream, changed: Mapping[str, Any] | None = None
    ) -> RawResult:
        """Send a request on, once; a server that is away is a separate error."""
        try:
            return await forward(context, upstream, changed or {})
        except UnavailableError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error


def _require_room(state: ClientState, uris: Sequence[str]) -> None:
    """Bound what one client can have remembered."""
    if len(state.subscriptions) + len(uris) > MAX_SUBSCRIPTIONS:
        raise MCPError(types.INVALID_PARAMS, f"more than {MAX_SUBSCRIPTIONS} subscriptions")
    if any(len(uri) > MAX_TEXT for uri in uris):
        raise MCPError(types.INVALID_PARAMS, f"a URI is longer than {MAX_TEXT} characters")


async def _log_failure(upstream: Upstream, message: Awaitable[None]) -> None:
    """Wait for a message to a server; one that is away, or refuses, is logged."""
    try:
        await message
    except (MCPError, UnavailableError) as error:
        logger.info("upstream %r: %s", upstream.name, error)


def _fits(template: str, uri: str) -> bool:
    try:
        return UriTemplate.parse(template).match(uri) is not None
    except ValueError:
        return False
