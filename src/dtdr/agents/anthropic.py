"""Masks in Anthropic's requests: filtered, or constant tools with deferred loading.

Needs no package: requests are JSON. Shapes are those of anthropic 2.11.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

from dtdr.agents import search
from dtdr.agents.mask import ToolMask
from dtdr.agents.policy import ToolSelection
from dtdr.agents.requests import Requests, as_json, check_list, hint_text, in_thread, loads
from dtdr.errors import InputError, unknown_choice
from dtdr.rankers.selection import AnthropicForm

Form = AnthropicForm

LOADER = "load_tools"
"""Name of the tool whose results carry the references to deferred tools."""

LOADER_TOOL: dict[str, Any] = {
    "name": LOADER,
    "description": "Loads the tools that the next steps need. Called automatically.",
    "input_schema": {"type": "object", "properties": {}},
}
"""Its definition: the one tool that is never deferred, which the API requires."""


def tool_name(tool: object) -> str | None:
    """The name of a tool of the user's own; None for tools that Anthropic defines."""
    record = as_json(tool)
    if not isinstance(record, Mapping) or record.get("type") not in (None, "custom"):
        return None
    name = record.get("name")
    return name if isinstance(name, str) and name else None


def _messages(body: Mapping[str, Any]) -> Sequence[Any]:
    if "messages" not in body:
        raise InputError("the request has no 'messages'")
    return check_list(body["messages"], "messages")


_REQUESTS = Requests(tool_name, _messages)
tool_names, transcript, select = _REQUESTS.tool_names, _REQUESTS.transcript, _REQUESTS.select


def filter_tools(
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
    return _without(
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
    changed = list(messages)
    text = hint_text(selection, weighted=weighted)
    if not text:
        return changed
    block = {"type": "text", "text": text}
    if not changed or _field(changed[-1], "role") != "user":
        return [*changed, {"role": "user", "content": [block]}]
    content = _field(changed[-1], "content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else []
    changed[-1] = {**as_json(changed[-1]), "content": [*blocks, block]}
    return changed


def defer_tools(
    tools: Sequence[Any], known: Collection[str], *, always_include: Collection[str] = ()
) -> list[Any]:
    """The same array for every step of every run: known tools are loaded when referred to.

    Args:
        tools: the request's ``tools``.
        known: names that the retriever knows; others are loaded from the start.
        always_include: names that are loaded from the start too.

    Returns:
        ``tools``, the known ones with ``defer_loading``, and the tool ``load_tools``, in whose
        results the references stand. Cache breakpoints of deferred tools move to the nearest tool
        before them that is not.

    Raises:
        InputError: two tools share a name, or one has the name of the loader.
    """
    names = tool_names(tools)
    if LOADER in names:
        raise InputError(f"a tool is named {LOADER!r}, which this form needs; rename the tool")
    waiting = frozenset(known) - frozenset(always_include)
    return _without(
        [LOADER_TOOL, *tools],
        lambda name: name in waiting,
        lambda tool: {**tool, "defer_loading": True},
    )


def references(names: Iterable[str]) -> list[dict[str, str]]:
    """Content of a tool result that loads deferred tools."""
    return [{"type": "tool_reference", "tool_name": name} for name in names]


def search_tool() -> dict[str, Any]:
    """The tool that lets a model ask for deferred tools; ``answer_searches`` answers it."""
    return {
        "name": search.SEARCH_TOOL,
        "description": search.DESCRIPTION,
        "input_schema": search.PARAMETERS,
    }


def answer_searches(
    body: Mapping[str, Any], content: Sequence[Any], mask: ToolMask
) -> list[dict[str, Any]]:
    """The ``tool_result`` blocks that answer the searches of a message: references to tools.

    Args:
        body: the request as the user keeps it, with all tools.
        content: of the model's message.
        mask: retriever and policy.

    Raises:
        InputError: two tools share a name, or the request has no list of messages.
    """
    _messages(body)
    tool_names(body.get("tools") or ())
    answers: list[dict[str, Any]] = []
    for block in map(as_json, check_list(content, "content")):
        if block.get("type") != "tool_use" or block.get("name") != search.SEARCH_TOOL:
            continue
        answer: dict[str, Any] = {"type": "tool_result", "tool_use_id": block.get("id")}
        try:
            matches = _REQUESTS.search(body, block.get("input"), mask)
            names = [name for name in map(tool_name, matches) if name is not None]
            answer["content"] = references(names) or search.NOTHING
        except InputError as error:  # the model's mistake, which it can correct
            answer |= {"content": str(error), "is_error": True}
        answers.append(answer)
    return answers


def load(names: Sequence[str], number: int) -> list[dict[str, Any]]:
    """Two messages that load deferred tools as if the model had asked for them.

    The model is spared the round trip of a search: what it will need is there before it asks.

    Args:
        names: the tools to load.
        number: tells this load from the conversation's others; part of its id.
    """
    identifier = f"toolu_dtdr_{number:04d}"
    return [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": identifier, "name": LOADER, "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": identifier,
                    "content": references(names),
                }
            ],
        },
    ]


def with_loads(
    messages: Sequence[Any],
    tools: Sequence[Any],
    mask: ToolMask,
    *,
    also: Collection[str] = (),
) -> list[Any]:
    """The conversation with a load in front of every answer for which tools became needed.

    Derived from the conversation each time, and the same each time.

    Args:
        messages: the request's ``messages``, as the user keeps them: without loads.
        tools: the request's ``tools``, all of them.
        mask: retriever and policy.
        also: names to load for the next answer, whatever their rank.

    Raises:
        InputError: two tools share a name.
    """
    answers = [
        position
        for position, message in enumerate(messages)
        if _field(message, "role") == "assistant"
    ]
    due = loads(messages, answers, tools, tool_name, mask, also=also)
    changed: list[Any] = []
    count = 0
    for position in range(len(messages) + 1):
        if position in due:
            count += 1
            changed += load(due[position], count)
        changed += messages[position : position + 1]
    return changed


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
        changed["tools"] = filter_tools(body["tools"], selection, keep=_forced_names(body))
    else:
        changed["messages"] = with_hint(messages, selection, weighted=form == "hint-weighted")
    return changed


def mask_request(
    body: Mapping[str, Any], mask: ToolMask, form: Form = "deferred"
) -> dict[str, Any]:
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
        changed["messages"] = with_loads(messages, tools, mask, also=_forced_names(body))
        changed["tools"] = defer_tools(
            tools, mask.retriever.vocabulary, always_include=mask.policy.always_include
        )
    return changed


amask_request = in_thread(mask_request)


def _forced_names(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The tool that the request itself forces: without it the request would be refused."""
    choice = body.get("tool_choice")
    name = choice.get("name") if isinstance(choice, Mapping) else None
    return (name,) if isinstance(name, str) else ()


def _without(
    tools: Sequence[Any],
    leaves: Callable[[str], bool],
    instead: Callable[[Mapping[str, Any]], Any],
) -> list[Any]:
    """The tools, some replaced or left out; their cache breakpoints move to the tool before.

    Args:
        tools: the request's ``tools``.
        leaves: whether the tool of that name leaves.
        instead: what takes its place; None for nothing.
    """
    changed: list[Any] = []
    last = None
    for tool in tools:
        name = tool_name(tool)
        if name is None or not leaves(name):
            last = len(changed)
            changed.append(tool)
            continue
        record = dict(as_json(tool))
        breakpoint_ = record.pop("cache_control", None)
        if breakpoint_ is not None and last is not None:
            changed[last] = {"cache_control": breakpoint_, **as_json(changed[last])}
        if (other := instead(record)) is not None:
            changed.append(other)
    return changed


def _field(value: object, key: str) -> Any:
    """A field of a JSON object, or None where there is none."""
    record = as_json(value)
    return record.get(key) if isinstance(record, Mapping) else None
