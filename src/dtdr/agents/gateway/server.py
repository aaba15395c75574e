"""The gateway as an MCP server, for any transport: what it answers to each request."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

import anyio
import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError

from dtdr._version import VERSION
from dtdr.agents import search
from dtdr.agents.gateway.catalog import AmbiguousNameError, Names, clean_title
from dtdr.agents.gateway.clients import INTENT_KEY, MAX_SEARCHES, MAX_TEXT, ClientState, Context
from dtdr.agents.gateway.gateway import Gateway
from dtdr.agents.gateway.questions import RawResult, select_params
from dtdr.agents.gateway.upstream import ServerUnavailableError, Upstream
from dtdr.conversation.events import LoggedCall
from dtdr.conversation.items import output_of
from dtdr.data.outputs import parse_output
from dtdr.errors import InputError
from dtdr.logs.turns import MAX_DECODED

UNAVAILABLE_KEY = "dtdr/unavailable"
"""``_meta`` key of a result that replaces the answer of a disconnected server."""

ALWAYS_LOAD = {"anthropic/alwaysLoad": True}
"""``_meta`` of a listed tool: clients that defer MCP tools behind a search of their own, such as
Claude Code, load it at once."""

SEARCH_DEFINITION: dict[str, Any] = {
    "name": search.SEARCH_TOOL,
    "description": search.DESCRIPTION,
    "inputSchema": search.PARAMETERS,
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
    "_meta": ALWAYS_LOAD,
}

RESOURCE_NOT_FOUND = -32002

_NOT_MINE = frozenset({RESOURCE_NOT_FOUND, types.INVALID_PARAMS, types.METHOD_NOT_FOUND})

_CHANGES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


class GatewayServer(Server[Any]):
    """The gateway as an MCP server, in the handshake protocols and in 2026-07-28."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._prompt_names = Names(gateway.upstreams, clean=clean_title)
        self._uri_owners: dict[str, str] = {}
        super().__init__(
            "dtdr",
            version=VERSION,
            title="dtdr gateway",
            get_tool_input_schema=self._input_schema,
            cache_hints={method: CacheHint() for method in get_args(CacheableMethod)},
        )
        page = types.PaginatedRequestParams
        resources = partial(self._list_first, "resources/list", "resources", "uri")
        templates = partial(
            self._list_first, "resources/templates/list", "resourceTemplates", "uriTemplate"
        )
        handlers: tuple[tuple[str, type[types.RequestParams], Any], ...] = (
            ("tools/list", page, self._list_tools),
            ("tools/call", types.CallToolRequestParams, self._call_tool),
            ("resources/list", page, resources),
            ("resources/templates/list", page, templates),
            ("resources/read", types.ReadResourceRequestParams, self._read_resource),
            ("subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen),
            ("prompts/list", page, self._list_prompts),
            ("prompts/get", types.GetPromptRequestParams, self._get_prompt),
        )
        for method, params, handler in handlers:
            self.add_request_handler(method, params, partial(_complete, handler))
        self.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._roots_changed
        )

    @property
    def instructions(self) -> str | None:
        """The gateway's and those of the servers that are connected now."""
        return self._gateway.instructions

    @instructions.setter
    def instructions(self, value: str | None) -> None:
        """Ignore the value that the base class sets."""

    def create_initialization_options(self, *options: Any, **more: Any) -> InitializationOptions:
        """As in the base class, but every list may change."""
        return super().create_initialization_options(*(options or (_CHANGES,)), **more)

    # -- tools ---------------------------------------------------------------------------------

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams
    ) -> RawResult:
        """The search tool and the tools that this client is shown now."""
        gateway = self._gateway
        await gateway.check_pins()
        state = self._state(context)
        await gateway.refresh(state)
        state.notified = tools = gateway.shown_tools(state)
        gateway.count_list(tools)
        if state.awaited is not None:
            state.awaited.set()
            state.lists_again = True
        most = gateway.policy.top_k
        # If ranking failed, all tools are listed, and clients need not load them all.
        if len(tools) < len(gateway.catalog) or (most is not None and len(tools) <= most):
            tools = [{**tool, "_meta": {**tool.get("_meta", {}), **ALWAYS_LOAD}} for tool in tools]
        return {"tools": [SEARCH_DEFINITION, *tools]}

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> RawResult:
        """The result of the upstream's tool, shown or hidden, or of the search."""
        gateway = self._gateway
        state = self._state(context)
        await gateway.check_pins()
        if params.name == search.SEARCH_TOOL:
            return await self._search(state, params.arguments or {})
        try:
            owner = await gateway.owner(params.name)
        except AmbiguousNameError as error:
            return _problem(f"{error}; the call was not made")
        if owner is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        if refusal := gateway.pins.refusal(*owner):
            return _problem(refusal)
        name = gateway.catalog.names.name_of(*owner)
        gateway.count_call(state, name)
        call = self._begin(state, name, params)
        state.running += 1
        try:
            result = await self._forward(context, state, owner)
            call.failed = result.get("isError") is True
            if gateway.keeps_calls and result.get("resultType") != "input_required":
                output = output_of(result)
                is_long = isinstance(output, str) and len(output) > MAX_DECODED
                call.output = state.keep(output if is_long else parse_output(output))
        except BaseException:
            call.failed = True
            raise
        finally:
            call.ended = state.last_call = time.monotonic()
            state.running -= 1
            gateway.schedule_prefetch(state)
            await gateway.update(state)
        return result

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """A 2026-07-28 client's stream of changed lists, open until it closes."""
        state = self._state(context)
        params.notifications.resource_subscriptions = None  # which the gateway does not serve
        state.running += 1
        try:
            return await state.listen(context, params)
        finally:
            state.running -= 1

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool's arguments; the SDK compares headers with it."""
        tool = self._gateway.catalog.get(name)
        return None if tool is None else tool.definition.get("inputSchema")

    def _state(self, context: Context) -> ClientState:
        """The client of a request, with the intent that the request carries."""
        state = self._gateway.clients.of(context)
        intent = (context.meta or {}).get(INTENT_KEY)
        if isinstance(intent, str):
            self._gateway.take_intent(state, intent)
        return state

    async def _forward(
        self, context: Context, state: ClientState, owner: tuple[str, str]
    ) -> RawResult:
        """Send a call on, once; a disconnected server is an error that the agent can read."""
        gateway, (upstream, raw_name) = self._gateway, owner
        send = partial(gateway.upstreams[upstream].forward, context, {"name": raw_name})
        try:
            if gateway.prefetcher is None:
                result = await send()
            else:
                sent = select_params(context)
                result = await gateway.prefetcher.call(state, owner, sent, send)
        except ServerUnavailableError as error:
            return {**_problem(str(error)), "_meta": {UNAVAILABLE_KEY: error.upstream}}
        if not state.is_modern and not isinstance(result.get("structuredContent", {}), dict):
            # Before 2026-07-28 only objects are structured content.
            return {key: value for key, value in result.items() if key != "structuredContent"}
        return result

    def _begin(
        self, state: ClientState, name: str, params: types.CallToolRequestParams
    ) -> LoggedCall:
        """Note that a call is made; one that only answers a server's questions is not another."""
        gateway = self._gateway
        tool = gateway.catalog.model_name(name)
        if params.input_responses is not None or params.request_state is not None:
            for call in reversed(state.calls):
                if call.tool == tool:
                    call.ended = None
                    return call
        if state.has_paused or state.is_full:
            gateway.end_run(state)
        state.last_call = time.monotonic()
        arguments = state.keep(params.arguments or {}) if gateway.keeps_calls else {}
        call = LoggedCall(tool, arguments, state.last_call, id=str(len(state.calls) + 1))
        state.calls.append(call)
        state.called[name] = None
        return call

    async def _search(self, state: ClientState, arguments: Mapping[str, Any]) -> RawResult:
        """Tools for a text, which the client sees from now on."""
        gateway = self._gateway
        try:
            text = search.read_search(arguments)[:MAX_TEXT]
        except InputError as error:
            return _problem(str(error))
        state.searches = [*state.searches, text][-MAX_SEARCHES:]
        # Without an intent, the text is the run's query, too.
        rankings = await gateway.ranker.rank_search(state, text)
        names = gateway.catalog.search(text, search.LIMIT, *(rankings or ()))
        # Only the latest of all searches stay listed.
        state.searched = tuple(dict.fromkeys((*names, *state.searched)))[: search.LIMIT]
        await gateway.update(state)
        shown = [
            {
                "name": tool.name,
                "description": tool.definition.get("description", ""),
                "inputSchema": tool.definition.get("inputSchema", {}),
            }
            for tool in map(gateway.catalog.get, names)
            if tool is not None
        ]
        answer = search.write_answer(shown, len(gateway.catalog))
        content = [{"type": "text", "text": json.dumps(answer, ensure_ascii=False)}]
        return {"content": content, "structuredContent": answer}

    # -- resources -----------------------------------------------------------------------------

    async def _list_first(
        self, method: str, key: str, identity: str, context: Context, params: Any
    ) -> RawResult:
        """Every server's resources or their templates; of equal ones, the first server's."""
        first: dict[str, dict[str, Any]] = {}
        for upstream, items in (await self._gather(method, key)).items():
            for item in items:
                if item[identity] not in first:
                    first[item[identity]] = item
                    if key == "resources":
                        self._uri_owners[item[identity]] = upstream
        return {key: list(first.values())}

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> RawResult:
        """The resource of the server that lists it; else of the first that has it."""
        upstreams, owner = self._gateway.upstreams, self._uri_owners.get(params.uri)
        problem: MCPError | None = None
        for upstream in upstreams.values() if owner is None else [upstreams[owner]]:
            if owner is None and not upstream.has_resources:
                continue
            try:
                return await upstream.forward(context)
            except MCPError as error:
                problem = problem or error
                if error.code not in _NOT_MINE:
                    raise
        raise problem or MCPError(RESOURCE_NOT_FOUND, f"Resource not found: {params.uri}")

    # -- prompts -------------------------------------------------------------------------------

    async def _list_prompts(self, context: Context | None, params: Any) -> RawResult:
        """Every server's prompts, under distinct names."""
        named = self._prompt_names.assign(await self._gather("prompts/list", "prompts"))
        return {"prompts": [{**item, "name": name} for name, _, item in named]}

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> RawResult:
        """A server's prompt."""
        owner = self._prompt_names.owner(params.name)
        if owner is None:
            await self._list_prompts(None, None)
            owner = self._prompt_names.owner(params.name)
        if owner is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        return await self._gateway.upstreams[owner[0]].forward(context, {"name": owner[1]})

    # -- the rest ------------------------------------------------------------------------------

    async def _roots_changed(self, context: Context, params: types.NotificationParams) -> None:
        """Tell the servers that the client's roots changed."""
        for upstream in self._gateway.upstreams.values():
            await upstream.roots_changed()

    async def _gather(self, method: str, key: str) -> dict[str, list[dict[str, Any]]]:
        """A list of every server; one that fails leaves only its own out."""
        offers: dict[str, list[dict[str, Any]]] = {name: [] for name in self._gateway.upstreams}

        async def ask(upstream: Upstream) -> None:
            offers[upstream.name] = await upstream.list_all(method, key)

        async with anyio.create_task_group() as tasks:
            for upstream in self._gateway.upstreams.values():
                tasks.start_soon(ask, upstream)
        return offers


async def _complete(handler: Any, context: Context, params: Any) -> Any:
    """A handler's result as 2026-07-28 wants it; the SDK writes those of earlier protocols.

    The SDK puts the gateway's name where the upstream's was.
    """
    result = await handler(context, params)
    if not isinstance(result, dict):
        return result
    if isinstance(meta := result.get("_meta"), dict):
        meta.pop(types.SERVER_INFO_META_KEY, None)
    return {"resultType": "complete", **result}


def _problem(text: str) -> RawResult:
    return {"content": [{"type": "text", "text": text}], "isError": True}
