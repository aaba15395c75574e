"""Masks in Anthropic's requests: filtered, or constant tools with deferred loading.

Needs no package: requests are JSON. Shapes are those of anthropic 2.11.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

from dtdr.errors import InputError, unknown_choice
from dtdr.integrations.anthropic_deferral import LOADER, deferred, load, references, with_loads
from dtdr.integrations.anthropic_tools import costs, field, tool_name, tool_names, without
from dtdr.integrations.mask import ToolMask
from dtdr.integrations.messages import (
    as_json,
    checked_list,
    checked_tools,
    hint_text,
    transcript_of,
)
from dtdr.integrations.policy import ToolSelection
from dtdr.integrations.transcript import Transcript

Form = Literal["filtered", "deferred", "hint", "hint-weighted"]


def transcript(body: Mapping[str, Any]) -> Transcript:
    """The conversation of a request.

    Raises:
        InputError: the request has no list of messages.
    """
    return transcript_of(_messages(body))


def select(body: Mapping[str, Any], mask: ToolMask) -> ToolSelection:
    """Which tools of a request are shown.

    Raises:
        InputError: two tools share a name, or the request has no list of messages.
    """
    _messages(body)
    tools = checked_tools(body.get("tools") or ())
    return mask.select(tool_names(tools), lambda: transcript(body), costs=costs(mask, tools))


def filtered(
    tools: Sequence[Any], selection: ToolSelection, *, keep: Collection[str] = ()
) -> list[Any]:
    """The tools that are shown, in their order; tools without a name of the user's stay.

    A cache breakpoint on a tool that is left out moves to the nearest one before it that stays.

    Args:
        tools: the request's ``tools``.
        selection: what the step shows.
        keep: names that stay in any case.

    Raises:
        InputError: two tools share a name.
    """
    tool_names(tools)
    return without(
        tools,
        lambda name: not selection.shows(name) and name not in keep,
        lambda tool: None,
    )


def with_hint(
    messages: Sequence[Any], selection: ToolSelection, *, weighted: bool = False
) -> list[Any]:
    """The conversation with the soft mask as the last block of its last message of the user.

    Send it, do not keep it: the next step has its own.
    """
    found = list(messages)
    text = hint_text(selection, weighted=weighted)
    if not text:
        return found
    block = {"type": "text", "text": text}
    if not found or field(found[-1], "role") != "user":
        return [*found, {"role": "user", "content": [block]}]
    content = field(found[-1], "content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else []
    found[-1] = {**as_json(found[-1]), "content": [*blocks, block]}
    return found


def apply(body: Mapping[str, Any], selection: ToolSelection, form: Form) -> dict[str, Any]:
    """The request with a selection written into it; the given one is not changed.

    ``deferred`` needs the conversation's earlier steps too; use ``masked`` for it.

    Raises:
        InputError: an unknown form, or two tools that share a name.
    """
    if form not in get_args(Form) or form == "deferred":
        raise unknown_choice("form", form, [name for name in get_args(Form) if name != "deferred"])
    messages = _messages(body)
    changed = dict(body)
    if not body.get("tools"):
        return changed
    if form == "filtered":
        changed["tools"] = filtered(body["tools"], selection, keep=_forced(body))
    else:
        changed["messages"] = with_hint(messages, selection, weighted=form == "hint-weighted")
    return changed


def masked(body: Mapping[str, Any], mask: ToolMask, form: Form = "deferred") -> dict[str, Any]:
    """A request that shows the tools which the next step needs.

    Args:
        body: the keywords of ``messages.create``.
        mask: retriever and policy.
        form: ``deferred`` keeps ``tools`` constant and loads what is needed in the conversation,
            so that the prompt cache holds; ``filtered`` works with every model; ``hint`` and
            ``hint-weighted`` keep all tools and write the preferred ones behind the conversation.

    Raises:
        InputError: an unknown form, or two tools that share a name.
    """
    if form != "deferred":
        return apply(body, select(body, mask), form)
    messages = _messages(body)
    changed = dict(body)
    if tools := body.get("tools"):
        changed["messages"] = with_loads(messages, tools, mask, also=_forced(body))
        changed["tools"] = deferred(
            tools, mask.retriever.vocabulary, always_include=mask.policy.always_include
        )
    return changed


async def amasked(
    body: Mapping[str, Any], mask: ToolMask, form: Form = "deferred"
) -> dict[str, Any]:
    """``masked`` in a thread of its own."""
    return await asyncio.to_thread(masked, body, mask, form)


def _messages(body: Mapping[str, Any]) -> Sequence[Any]:
    if "messages" not in body:
        raise InputError("the request has no 'messages'")
    return checked_list(body["messages"], "messages")


def _forced(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The tool that the request itself forces: without it the request would be refused."""
    choice = body.get("tool_choice")
    name = choice.get("name") if isinstance(choice, Mapping) else None
    return (name,) if isinstance(name, str) else ()


__all__ = [
    "LOADER",
    "Form",
    "amasked",
    "apply",
    "deferred",
    "filtered",
    "load",
    "masked",
    "references",
    "select",
    "tool_name",
    "tool_names",
    "transcript",
    "with_hint",
    "with_loads",
]
