"""The fields of a request: the step that is asked about, and the limits of the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import before_record
from dtdr.data.run import BeforeLike, CallLike
from dtdr.errors import check_lists
from dtdr.rankers.selection import Bounds, Selection


def step_fields(
    query: str | None,
    history: Sequence[CallLike],
    before: Sequence[BeforeLike],
    text: str | None = None,
) -> dict[str, Any]:
    """The fields that say which step of which run a request is about.

    Raises:
        InputError: what should be a list is a text, or something before the query is no message.
    """
    check_lists(history=history, before=before)
    calls, earlier = list(map(_call_record, history)), list(map(before_record, before))
    step = {"query": query, "history": calls, "before": earlier}
    return step if text is None else step | {"text": text}


def limit_fields(bounds: Bounds, offered: Collection[str] | None) -> dict[str, Any]:
    """The fields of a request that limit the answer."""
    check_lists(offered=offered)
    return {**Selection(**bounds).to_dict(), "offered": offered}


def _call_record(call: CallLike) -> Any:
    """A call as the server takes it: a name, or an object."""
    if isinstance(call, str):
        return call
    return call.to_dict() if isinstance(call, ToolCall) else dict(call)
