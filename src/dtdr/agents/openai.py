"""Masks in OpenAI's requests: chat completions and responses.

Needs no package: requests are JSON. Shapes are those of openai 3.52. The forms:

``allowed-tools`` keeps ``tools`` constant, and with it the prompt cache; ``filtered`` works with
every compatible server and with more than 128 tools; ``hint`` keeps all tools and names the
preferred ones after the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from dtdr.agents import search
from dtdr.agents.mask import ToolMask
from dtdr.agents.policy import ToolSelection
from dtdr.agents.requests import Provider, check_list
from dtdr.data.json_codec import dump_object
from dtdr.errors import InputError
from dtdr.rankers.selection import OpenAIForm

Api = Literal["chat", "responses"]

MOST_TOOLS = 128
"""OpenAI refuses requests with more tools (its API reference, ``tools``)."""


class _OpenAI(Provider):
    """Requests of both of OpenAI's APIs: with ``messages`` or with ``input``."""

    forms = ("allowed-tools", *(form for form in get_args(OpenAIForm) if form != "allowed-tools"))
    hint_role = "system"

    def tool_name(self, tool: object) -> str | None:
        """The name of a function or custom tool; None for built-in tools, MCP servers, …."""
        record = dump_object(tool)
        if not isinstance(record, Mapping):
            return None
        kind = record.get("type", "function")
        if kind not in ("function", "custom"):
            return None
        nested = record.get(kind)
        name = nested.get("name") if isinstance(nested, Mapping) else record.get("name")
        return name if isinstance(name, str) and name else None

    def key(self, body: Mapping[str, Any]) -> str:
        """See ``Provider``; it differs by API."""
        for key in ("messages", "input"):
            if key in body:
                return key
        raise InputError("the request has neither 'messages' (chat) nor 'input' (responses)")

    def messages(self, body: Mapping[str, Any]) -> Sequence[Any]:
        """See ``Provider``."""
        if self.key(body) == "input" and isinstance(body["input"], str):
            return [{"role": "user", "content": body["input"]}]
        return super().messages(body)

    def forced_names(self, choice: object) -> frozenset[str]:
        """See ``Provider``."""
        if not isinstance(choice, Mapping):
            return frozenset()
        inner = choice.get("allowed_tools", choice)
        listed = inner.get("tools") if isinstance(inner, Mapping) else None
        names = map(self.tool_name, listed if isinstance(listed, list) else [choice])
        return frozenset(filter(None, names))

    def default_form(self, body: Mapping[str, Any]) -> str:
        """See ``Provider``."""
        return cheapest_form(len(body.get("tools") or ()))

    def write(self, body: Mapping[str, Any], selection: ToolSelection) -> dict[str, Any]:
        """See ``Provider``."""
        api: Api = "chat" if self.key(body) == "messages" else "responses"
        choice = body.get("tool_choice")
        decided = allowed_tools(body["tools"], selection, api=api, choice=choice)
        return {"tool_choice": decided} if choice is not None or decided != "auto" else {}


_OPENAI = _OpenAI()
tool_name, tool_names = _OPENAI.tool_name, _OPENAI.tool_names
transcript, select, apply = _OPENAI.transcript, _OPENAI.select, _OPENAI.apply
mask_request, filter_tools = _OPENAI.mask_request, _OPENAI.filter_tools
default_form, count_definitions = _OPENAI.default_form, _OPENAI.count_definitions
select_and_mask = _OPENAI.select_and_mask


def cheapest_form(
    tool_count: int, *, address: object = "https://api.openai.com"
) -> Literal["allowed-tools", "filtered"]:
    """The form that costs least of those that the API at this address takes.

    Only OpenAI itself is known to follow a list of allowed tools.

    >>> cheapest_form(20), cheapest_form(200), cheapest_form(20, address="http://localhost:8000/v1")
    ('allowed-tools', 'filtered', 'filtered')

    Args:
        tool_count: tools of the request.
        address: URL of the API; what is not one is of another provider.
    """
    host = urlsplit(str(address)).hostname or ""
    is_openai = host == "api.openai.com" or host.endswith(".api.openai.com")  # one for each region
    return "allowed-tools" if is_openai and tool_count <= MOST_TOOLS else "filtered"


def allowed_tools(
    tools: Sequence[Any],
    selection: ToolSelection,
    *,
    api: Api = "chat",
    choice: Any = None,
) -> Any:
    """The ``tool_choice`` that allows the shown tools, while ``tools`` stays the same.

    Args:
        tools: all tools of the request.
        selection: what the step shows.
        api: which API, since they write this differently.
        choice: the request's ``tool_choice``. ``required`` becomes the mode; ``none``, a single
            forced tool and a list of the request's own stay as they are.

    Returns:
        ``{"type": "allowed_tools", …}``; the request's choice if nothing is hidden.

    Raises:
        InputError: two tools share a name.
    """
    shown = [_reference(tool, api) for tool in filter_tools(tools, selection)]
    if len(shown) == len(tools) or choice not in (None, "auto", "required"):
        return choice if choice is not None else "auto"
    allowed = {"mode": choice or "auto", "tools": shown}
    if api == "chat":
        return {"type": "allowed_tools", "allowed_tools": allowed}
    return {"type": "allowed_tools", **allowed}


def search_tool(api: Api = "chat") -> dict[str, Any]:
    """The tool that lets a model search for hidden tools; ``answer_searches`` answers it.

    A function for chat completions; the responses API has its own tool search, executed by the
    client.
    """
    described = {"description": search.DESCRIPTION, "parameters": search.PARAMETERS}
    if api == "chat":
        return {"type": "function", "function": {"name": search.SEARCH_TOOL, **described}}
    return {"type": "tool_search", "execution": "client", **described}


def answer_searches(
    body: Mapping[str, Any], output: Sequence[Any], mask: ToolMask
) -> list[dict[str, Any]]:
    """The answers to the searches in a model's answer, to be sent after it.

    The next masked request shows the tools that were found.

    Args:
        body: the request with all tools, without a mask.
        output: the message in a list, for chat completions; else the response's items.
        mask: model and policy.

    Returns:
        A message of role ``tool`` or a ``tool_search_output`` for each search, in their order.

    Raises:
        InputError: two tools share a name, or the body is of neither API.
    """
    _OPENAI.messages(body)
    tool_names(body.get("tools") or ())
    answers = []
    for item in map(dump_object, check_list(output, "output")):
        if item.get("type") == "tool_search_call" and item.get("execution") == "client":
            tools_of_item, _ = _search(body, item.get("arguments"), mask)
            answers.append(
                {
                    "type": "tool_search_output",
                    "execution": "client",
                    "call_id": item.get("call_id"),
                    "status": "completed",
                    "tools": [
                        {**dump_object(tool), "defer_loading": True} for tool in tools_of_item
                    ],
                }
            )
        for call in item.get("tool_calls") or ():
            function = dump_object(call).get("function") or {}
            if function.get("name") == search.SEARCH_TOOL:
                _, text = _search(body, function.get("arguments"), mask)
                answers.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return answers


def _search(body: Mapping[str, Any], arguments: Any, mask: ToolMask) -> tuple[list[Any], str]:
    """The tools that match a search, and the same as a text."""
    try:
        matches = _OPENAI.search(body, arguments, mask)
    except InputError as error:  # the model's mistake, which it can correct
        return [], str(error)
    described = [{"name": tool_name(tool), "definition": dump_object(tool)} for tool in matches]
    answer = search.write_answer(described, len(matches))
    return matches, json.dumps(answer, ensure_ascii=False)


def _reference(tool: object, api: Api) -> dict[str, Any]:
    """A tool as ``allowed_tools`` names it."""
    record = dump_object(tool)
    kind = record.get("type", "function")
    name = tool_name(record)
    if name is not None:
        return (
            {"type": kind, kind: {"name": name}} if api == "chat" else {"type": kind, "name": name}
        )
    labels = {key: record.get(key) for key in ("server_label", "name")}
    return {"type": kind, **{key: text for key, text in labels.items() if isinstance(text, str)}}
