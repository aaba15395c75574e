"""A client's request on its way to an upstream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dtdr.agents.gateway.clients import Context
from dtdr.agents.gateway.questions import OpenCall, RawResult, answer_inputs
from dtdr.agents.gateway.upstream import Upstream

_ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that 2026-07-28 lets a server answer with questions."""

_OWN_META = ("io.modelcontextprotocol/", "dtdr/")


async def forward(context: Context, upstream: Upstream, changed: Mapping[str, Any]) -> RawResult:
    """The upstream's result of a client's request, as it came over the wire.

    Progress, log messages and questions of the upstream reach the client while it waits. If the
    client cancels, the upstream's call is cancelled. ``changed`` replaces some of the client's
    parameters, such as the tool's name. Errors are those of ``Upstream.request``.
    """
    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    sent = {**select_params(context), **changed}
    progress = _progress_to(context)

    async def send(added: Mapping[str, Any]) -> RawResult:
        return await upstream.request(context.method, {**sent, **added}, progress)

    call: OpenCall | None = None
    waiting = upstream.open_calls
    if is_modern and not upstream.is_modern and context.method in _ASKING:
        call = OpenCall.resume(waiting, context, sent) or OpenCall(send({}))
    caller = (context, call)
    upstream.callers.append(caller)
    try:
        result = await (send({}) if call is None else call.outcome(waiting, context))
        if not is_modern:
            result = await answer_inputs(context, result, send)
    finally:
        upstream.callers.remove(caller)
    return without_server_stamp(result)


def select_params(context: Context) -> dict[str, Any]:
    """A request's parameters without what is between the client and the gateway."""
    params = dict(context.params or {})
    meta = params.pop("_meta", None)
    kept = {
        key: value
        for key, value in (meta.items() if isinstance(meta, Mapping) else ())
        if key == types.LOG_LEVEL_META_KEY
        or not (key.startswith(_OWN_META) or key == "progressToken")
    }
    return {**params, "_meta": kept} if kept else params


def _progress_to(context: Context) -> ProgressFnT | None:
    """Reports progress to the client, if it asked for it."""
    meta = (context.params or {}).get("_meta")
    is_wanted = isinstance(meta, Mapping) and "progressToken" in meta
    return context.session.report_progress if is_wanted else None


def without_server_stamp(result: RawResult) -> RawResult:
    """A result without the upstream's name, which the gateway replaces with its own."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or types.SERVER_INFO_META_KEY not in meta:
        return result
    kept = {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}
    rest = {key: value for key, value in result.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest
