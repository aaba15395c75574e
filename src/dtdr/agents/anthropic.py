"""Masks in Anthropic's requests.

Needs no package: requests are JSON. Shapes are those of anthropic 2.11. The forms:

``deferred`` keeps ``tools`` constant, and with it the prompt cache, and loads tools within the
conversation; ``filtered`` works with every model; ``hint`` keeps all tools and names the preferred
ones after the conversation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

from dtdr.agents import search
from dtdr.agents.mask import ToolMask
from dtdr.agents.policy import ToolSelection
from dtdr.agents.requests import Provider, Toolbox, check_list, transcript_of
from dtdr.agents.search import searched_tools
from dtdr.agents.transcript import Transcript
from dtdr.data.json_codec import dump_object
from dtdr.errors import InputError
from dtdr.rankers.selection import AnthropicForm

LOADER = "load_tools"
"""Name of the tool whose results carry the references to deferred tools."""

LOADER_TOOL: dict[str, Any] = {
    "name": LOADER,
    "description": "Loads the tools that the next steps need. Called automatically.",
    "input_schema": {"type": "object", "properties": {}},
}
"""Its definition: the one tool that is never deferred, which the API requires."""


class _AnthropicProvider(Provider):
    """Requests of the messages API."""

    forms = ("deferred", *(form for form in get_args(AnthropicForm) if form != "deferred"))
    hint_role = "user"

    def tool_name(self, tool: object) -> str | None:
        """The name of a user's tool; None for tools that Anthropic defines."""
        record = dump_object(tool)
        if not isinstance(record, Mapping) or record.get("type") not in (None, "custom"):
            return None
        name = record.get("name")
        return name if isinstance(name, str) and name else None

    def key(self, body: Mapping[str, Any]) -> str:
        """See ``Provider``."""
        if "messages" not in body:
            raise InputError("the request has no 'messages'")
        return "messages"

    def forced_names(self, choice: object) -> tuple[str, ...]:
        """See ``Provider``."""
        name = choice.get("name") if isinstance(choice, Mapping) else None
        return (name,) if isinstance(name, str) else ()

    def write(self, body: Mapping[str, Any], selection: ToolSelection) -> dict[str, Any]:
        """See ``Provider``."""
        raise InputError("the form 'deferred' needs the earlier steps too; use mask_request")

    def select_and_mask(
        self, body: Mapping[str, Any], mask: ToolMask, form: str
    ) -> tuple[ToolSelection, dict[str, Any]]:
        """See ``Provider``.

        With ``deferred``, the tools are the same for every step of every run: those that the
        model knows have ``defer_loading``, and results of ``load_tools`` refer to them. A cache
        breakpoint of a deferred tool moves to the nearest tool before it that is not deferred.
        """
        if form != "deferred" or not body.get("tools"):
            return super().select_and_mask(body, mask, form)
        messages, tools = self.messages(body), self.toolbox(body["tools"])
        if LOADER in tools.names:
            raise InputError(f"a tool is named {LOADER!r}, which this form needs; rename the tool")
        tools.describe(mask)
        known = frozenset(mask.model.vocabulary).intersection(tools.names)
        waiting = known.difference(mask.policy.always_include)
        forced = self.forced_names(body.get("tool_choice"))
        selection, conversation = _insert_loads(messages, tools, waiting, mask, forced)
        listed = self.replace_tools(
            [LOADER_TOOL, *tools.tools],
            lambda name: name in waiting,
            lambda tool: {**tool, "defer_loading": True},
        )
        return selection, {**body, "messages": conversation, "tools": listed}


_ANTHROPIC = _AnthropicProvider()
tool_name, tool_names = _ANTHROPIC.tool_name, _ANTHROPIC.tool_names
transcript, select, apply = _ANTHROPIC.transcript, _ANTHROPIC.select, _ANTHROPIC.apply
mask_request, filter_tools = _ANTHROPIC.mask_request, _ANTHROPIC.filter_tools
default_form, count_definitions = _ANTHROPIC.default_form, _ANTHROPIC.count_definitions
select_and_mask = _ANTHROPIC.select_and_mask


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
        body: the request with all tools, without a mask.
        content: of the model's message.
        mask: model and policy.

    Raises:
        InputError: two tools share a name, or the request has no list of messages.
    """
    _ANTHROPIC.messages(body)
    tool_names(body.get("tools") or ())
    answers: list[dict[str, Any]] = []
    for block in map(dump_object, check_list(content, "content")):
        if block.get("type") != "tool_use" or block.get("name") != search.SEARCH_TOOL:
            continue
        answer: dict[str, Any] = {"type": "tool_result", "tool_use_id": block.get("id")}
        try:
            matches = _ANTHROPIC.search(body, block.get("input"), mask)
            names = [name for name in map(tool_name, matches) if name is not None]
            answer["content"] = references(names) or search.NOTHING
        except InputError as error:  # the model's mistake, which it can correct
            answer |= {"content": str(error), "is_error": True}
        answers.append(answer)
    return answers


def _insert_loads(
    messages: Sequence[Any],
    tools: Toolbox[Any],
    waiting: Collection[str],
    mask: ToolMask,
    forced: Collection[str],
) -> tuple[ToolSelection, list[Any]]:
    """The conversation with tools loaded before every answer for which some became needed.

    The selection of its last step comes first.

    The result is derived from the conversation, and is the same each time, so that the cached start
    of the prompt stays the same. What is loaded stays loaded, and a tool that was called without
    having been loaded is loaded after that call.

    Args:
        messages: the conversation, without anything loaded.
        tools: all tools of the request.
        waiting: names of the tools that are deferred.
        mask: model and policy.
        forced: names to load for the next answer, whatever their rank.
    """
    points = [
        position
        for position, message in enumerate(map(dump_object, messages))
        if isinstance(message, Mapping) and message.get("role") == "assistant"
    ]
    points.append(len(messages))
    transcripts: list[Transcript] = []

    def read() -> list[Transcript]:
        transcripts.extend(transcript_of(messages[:position]) for position in points)
        return transcripts

    selections = mask.select_each(tools.names, read, len(points), costs=tools.costs(mask))
    changed: list[Any] = []
    loaded: set[str] = set()
    count = start = 0
    for index, (position, selection) in enumerate(zip(points, selections, strict=True)):
        changed += messages[start:position]
        start = position
        # What a search returned, its result has loaded.
        loaded.update(*(searched_tools(each) for each in transcripts[index : index + 1]))
        wanted = {*selection.shown, *(forced if position == len(messages) else ())}
        if new := [name for name in tools.names if name in wanted.intersection(waiting) - loaded]:
            changed += load(new, count)
            loaded.update(new)
            count += 1
    return selections[-1], changed


def load(names: Sequence[str], count: int) -> list[dict[str, Any]]:
    """Two messages that load deferred tools as if the model had asked for them.

    This saves the model a search. ``count``, the number of earlier loads, is part of the id.
    """
    identifier = f"toolu_dtdr_{count + 1:04d}"
    use = {"type": "tool_use", "id": identifier, "name": LOADER, "input": {}}
    result = {
        "type": "tool_result",
        "tool_use_id": identifier,
        "content": references(names),
    }
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
