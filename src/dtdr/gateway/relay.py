"""Sends a client's request on to an upstream, once, and brings everything about it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT

from dtdr.gateway.asking import resolved
from dtdr.gateway.clients import Context
from dtdr.gateway.link import RawResult
from dtdr.gateway.upstream import Upstream

_OWN_META = ("io.modelcontextprotocol/", "dtdr/")
_PASSED_META = frozenset({types.LOG_LEVEL_META_KEY})


async def relay(
    context: Context, upstream: Upstream, changed: Mapping[str, Any], *, is_modern: bool
) -> RawResult:
    """The upstream's result of a client's request, as it stands on the wire.

    Progress, log messages and questions of the upstream reach the client while it waits; when the
    client cancels, the upstream is told.

    Args:
        context: the client's request.
        upstream: who is to answer it.
        changed: parameters that differ from the client's, such as the tool's own name.
        is_modern: the client speaks 2026-07-28, and answers questions by itself.

    Raises:
        MCPError: the upstream's own error.
        UnavailableError: the upstream is away, or went away before it answered.
    """
    sent = {**_passed(context), **changed}
    progress = _progress_to(context)
    upstream.callers.append(context)
    try:
        result = await upstream.request(context.method, sent, progress)
        if not is_modern:
            result = await resolved(
                context,
                result,
                lambda added: upstream.request(context.method, {**sent, **added}, progress),
            )
    finally:
        upstream.callers.remove(context)
    return _without_server_stamp(result)


def _passed(context: Context) -> dict[str, Any]:
    """A request's parameters without what belongs to the client's own hop."""
    params = dict(context.params or {})
    meta = params.pop("_meta", None)
    if isinstance(meta, Mapping):
        kept = {
            key: value
            for key, value in meta.items()
            if key in _PASSED_META or not (key.startswith(_OWN_META) or key == "progressToken")
        }
        if kept:
            params["_meta"] = kept
    return params


def _progress_to(context: Context) -> ProgressFnT | None:
    """Reports progress to the client, where it asked for it."""
    meta = (context.params or {}).get("_meta")
    if not isinstance(meta, Mapping) or "progressToken" not in meta:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        await context.session.report_progress(progress, total, message)

    return report


def _without_server_stamp(result: RawResult) -> RawResult:
    """A result without the upstream's name tag; the gateway puts its own."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or types.SERVER_INFO_META_KEY not in meta:
        return result
    kept = {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}
    rest = {key: value for key, value in result.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest
