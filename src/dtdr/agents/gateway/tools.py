"""``tools/list`` and ``tools/call``: the shown tools, the search tool, and calls passed through."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from dtdr.agents import search
from dtdr.agents.gateway.catalog import AmbiguousNameError
from dtdr.agents.gateway.clients import INTENT_KEY, ClientState, Context
from dtdr.agents.gateway.forwarding import forward, select_params
from dtdr.agents.gateway.gateway import HEAD_START, Gateway
from dtdr.agents.gateway.upstream import RawResult, UnavailableError
from dtdr.data.outputs import parse_output
from dtdr.errors import InputError
from dtdr.logs.log_format import TracedCall
from dtdr.logs.messages import output_of
from dtdr.logs.turns import MAX_DECODED

SHORT_TEXT = 20_000
"""Characters of JSON that are read on the event loop, within 0.2 ms."""

UNAVAILABLE_KEY = "dtdr/unavailable"
"""``_meta`` key of a result that stands in for that of a server that is away."""

ALWAYS_LOAD = {"anthropic/alwaysLoad": True}
"""``_meta`` of a listed tool: clients that defer MCP tools behind a search of their own, as Claude
Code does, load it at once. What is listed was chosen already."""

SEARCH_DEFINITION: dict[str, Any] = {
    "name": search.SEARCH_TOOL,
    "description": search.DESCRIPTION,
    "inputSchema": search.PARAMETERS,
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
    "_meta": ALWAYS_LOAD,
}


class ToolHandlers:
    """Answers clients' requests about tools.

    Args:
        gateway: what stands behind.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams) -> RawResult:
        """The search tool and the tools that this client is shown now."""
        gateway = self._gateway
        state = gateway.clients.of(context)
        self._take_intent(state, context)
        await gateway.refresh(state)
        state.notified = state.shown
        if state.awaited is not None:
            state.awaited.set()
            state.lists_again = True
        tools = [tool.definition for tool in map(gateway.catalog.get, state.shown) if tool]
        most = gateway.options.policy.top_k
        # All tools are no choice: they are listed because ranking failed.
        if len(tools) < len(gateway.catalog) or (most is not None and len(tools) <= most):
            tools = [_load_always(tool) for tool in tools]
        return {"tools": [SEARCH_DEFINITION, *tools]}

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> RawResult:
        """The result of the upstream's tool, shown or hidden, or of the search.

        Raises:
            MCPError: there is no such tool, or the upstream's own error.
        """
        state = self._gateway.clients.of(context)
        self._take_intent(state, context)
        self._gateway.count_definitions(state)
        if params.name == search.SEARCH_TOOL:
            return await self._search(state, params.arguments or {})
        try:
            owner = await self._gateway.owner(params.name)
        except AmbiguousNameError as error:
            return _problem(f"{error}; the call was not made")
        if owner is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        if refusal := self._gateway.pins.refusal(*owner):
            return _problem(refusal)
        name = self._gateway.catalog.name_of(*owner)
        call = self._begin(state, name, params)
        self._gateway.schedule_refresh(state, HEAD_START)
        state.running += 1
        try:
            result = await self._forward(context, owner, params)
            call.failed = result.get("isError") is True
            if self._gateway.keeps_calls and result.get("resultType") != "input_required":
                output = await _read_output(result)
                call.output = state.keep(output, learns=self._gateway.learns)
        except BaseException:
            call.failed = True
            raise
        finally:
            call.ended = state.last_call = time.monotonic()
            state.running -= 1
            self._gateway.schedule_refresh(state)
            self._gateway.schedule_prefetch(state)
        await self._gateway.await_listing(state)
        return result

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool's arguments, for the SDK's check of headers against them."""
        tool = self._gateway.catalog.get(name)
        return None if tool is None else tool.definition.get("inputSchema")

    async def _forward(
        self, context: Context, owner: tuple[str, str], params: types.CallToolRequestParams
    ) -> RawResult:
        """Send a call on, once; a server that is away is an error that the agent can read."""
        state = self._gateway.clients.of(context)
        try:
            result = await self._take_early(state, context, owner)
            if result is None:
                result = await self._send(context, owner)
        except UnavailableError as error:
            return {**_problem(str(error)), "_meta": {UNAVAILABLE_KEY: error.upstream}}
        if not state.is_modern and not isinstance(result.get("structuredContent", {}), dict):
            # Before 2026-07-28 only objects are structured content.
            return {key: value for key, value in result.items() if key != "structuredContent"}
        return result

    async def _send(self, context: Context, owner: tuple[str, str]) -> RawResult:
        gateway = self._gateway
        try:
            return await forward(context, gateway.upstreams[owner[0]], {"name": owner[1]})
        finally:
            prefetcher = gateway.prefetcher
            if prefetcher is not None and not prefetcher.allows(gateway.catalog.name_of(*owner)):
                prefetcher.note_change(owner[0])

    async def _take_early(
        self, state: ClientState, context: Context, owner: tuple[str, str]
    ) -> RawResult | None:
        """The result of the call where exactly it was made early."""
        if self._gateway.prefetcher is None:
            return None
        sent = select_params(context)
        arguments = sent.get("arguments") or {}
        is_plain = sent.keys() <= {"name", "arguments"} and isinstance(arguments, Mapping)
        name = self._gateway.catalog.name_of(*owner)
        return await self._gateway.prefetcher.take(state, name, arguments if is_plain else None)

    def _begin(
        self, state: ClientState, name: str, params: types.CallToolRequestParams
    ) -> TracedCall:
        """Note that a call is made; one that only answers a server's questions is not another."""
        gateway = self._gateway
        tool = gateway.catalog.model_name(name)
        if params.input_responses is not None or params.request_state is not None:
            for call in reversed(state.calls):
                if call.tool == tool:
                    state.resume(call)
                    return call
        if state.has_paused(gateway.options.run_gap) or state.is_full:
            gateway.end_run(state)
        state.last_call = time.monotonic()
        number = str(len(state.calls) + 1)
        arguments: Any = {}
        if gateway.keeps_calls:
            arguments = state.keep(params.arguments or {}, learns=gateway.learns)
        call = TracedCall(tool, arguments, state.last_call, id=number)
        state.calls.append(call)
        state.called[name] = None
        return call

    def _take_intent(self, state: ClientState, context: Context) -> None:
        """Take up what the client says the user wants."""
        intent = (context.meta or {}).get(INTENT_KEY)
        if isinstance(intent, str):
            self._gateway.take_intent(state, intent)

    async def _search(self, state: ClientState, arguments: Mapping[str, Any]) -> RawResult:
        """Tools for a text, which the client sees from now on."""
        gateway = self._gateway
        try:
            query, limit = search.read_search(arguments)
        except InputError as error:
            return _problem(str(error))
        state.add_search(query)
        names = await self._find(state, state.searches[-1], limit)
        state.add_matches(names, max(limit, search.LIMIT))
        gateway.schedule_refresh(state)
        await gateway.await_listing(state)
        tools = [tool for name in names if (tool := gateway.catalog.get(name)) is not None]
        shown = [
            {
                "name": tool.name,
                "description": tool.definition.get("description", ""),
                "inputSchema": tool.definition.get("inputSchema", {}),
            }
            for tool in tools
        ]
        answer = search.write_answer(shown, limit, len(gateway.catalog))
        text = json.dumps(answer, ensure_ascii=False)
        return {"content": [{"type": "text", "text": text}], "structuredContent": answer}

    async def _find(self, state: ClientState, text: str, limit: int) -> list[str]:
        gateway = self._gateway
        # Without an intent, the query is the text.
        query, read = state.query(gateway.options.query), gateway.history_of(state)
        rankings = await gateway.ranker.rank_search(text, query, read)
        return gateway.catalog.search(text, limit, *(rankings or ()))


def _load_always(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {**definition, "_meta": {**definition.get("_meta", {}), **ALWAYS_LOAD}}


async def _read_output(result: RawResult) -> Any:
    """What a call returned; a long text of JSON is read in a worker thread."""
    output = output_of(result)
    if not isinstance(output, str) or len(output) > MAX_DECODED:
        return output
    if len(output) <= SHORT_TEXT:
        return parse_output(output)
    return await anyio.to_thread.run_sync(parse_output, output)


def _problem(text: str) -> RawResult:
    return {"content": [{"type": "text", "text": text}], "isError": True}
