"""What providers' requests have in common: conversations, costs, hints, and tools loaded later."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from dtdr.agents.mask import ToolMask
from dtdr.agents.policy import ToolSelection, unique_names
from dtdr.agents.search import described_tools, read_search, searched_tools
from dtdr.agents.transcript import Transcript, read_items
from dtdr.data.json_codec import quote_json
from dtdr.errors import InputError, unknown_choice
from dtdr.rankers.selection import count_tokens

Tool = TypeVar("Tool")


def transcript_of(messages: Iterable[object]) -> Transcript:
    """The turns of a conversation in a provider's messages.

    Messages of OpenAI, Anthropic, LangChain and others, and items of the responses API; objects of
    their packages are read as well as JSON.
    """
    from dtdr.logs.openai_responses import positioned_items

    return read_items(positioned_items(map(_read_message, messages)))


class Provider(ABC):
    """Masks in the requests of one provider, which are JSON or objects of its package.

    Attributes:
        forms: what ``mask_request`` can write, the default first.
        loading_form: the one of them that needs the conversation's earlier steps, too.
    """

    forms: tuple[str, ...]
    loading_form: str

    @abstractmethod
    def tool_name(self, tool: object) -> str | None:
        """The name of a tool of the user's own; None for one that the provider defines."""

    @abstractmethod
    def messages(self, body: Mapping[str, Any]) -> Sequence[Any]:
        """The conversation of a request.

        Raises:
            InputError: the request has none.
        """

    @abstractmethod
    def write(self, body: Mapping[str, Any], selection: ToolSelection, form: str) -> dict[str, Any]:
        """The fields of a request that a form other than ``loading_form`` changes."""

    @abstractmethod
    def load(self, body: Mapping[str, Any], mask: ToolMask) -> dict[str, Any]:
        """The fields of a request that ``loading_form`` changes."""

    def tool_names(self, tools: Sequence[object]) -> tuple[str, ...]:
        """The names of those tools that have one, in their order.

        Raises:
            InputError: two tools share a name, or one is not a JSON object.
        """
        return check_names(map(self.tool_name, check_tools(tools)))

    def transcript(self, body: Mapping[str, Any]) -> Transcript:
        """The conversation of a request.

        Raises:
            InputError: the request has no list of messages.
        """
        return transcript_of(self.messages(body))

    def select(self, body: Mapping[str, Any], mask: ToolMask) -> ToolSelection:
        """Which tools of a request are shown.

        Raises:
            InputError: two tools share a name, or the request has no list of messages.
        """
        self.messages(body)
        tools = check_tools(body.get("tools") or ())
        return select_tools(mask, tools, lambda: self.transcript(body), self.tool_name)

    def search(self, body: Mapping[str, Any], arguments: object, mask: ToolMask) -> list[Any]:
        """The tools of a request that a model's search brings up, best first.

        Raises:
            InputError: the search says nothing to search for, or two tools share a name.
        """
        tools = check_tools(body.get("tools") or ())
        return find_tools(mask, arguments, tools, lambda: self.transcript(body), self.tool_name)

    def apply(self, body: Mapping[str, Any], selection: ToolSelection, form: str) -> dict[str, Any]:
        """The request with a selection written into it; the given one is not changed.

        The form that loads tools needs the earlier steps too; use ``mask_request`` for it.

        Raises:
            InputError: an unknown form, two tools that share a name, or no conversation.
        """
        choices = [name for name in self.forms if name != self.loading_form]
        if form not in choices:
            raise unknown_choice("form", form, choices)
        self.messages(body)
        return {**body, **(self.write(body, selection, form) if body.get("tools") else {})}

    def mask_request(
        self, body: Mapping[str, Any], mask: ToolMask, form: str | None = None
    ) -> dict[str, Any]:
        """A request that shows the tools which the next step needs; see the module for the forms.

        Args:
            body: the keywords of the provider's ``create``.
            mask: retriever and policy.
            form: one of ``forms``; None for the first of them.

        Raises:
            InputError: an unknown form, two tools that share a name, or no conversation.
        """
        form = form or self.forms[0]
        if form != self.loading_form:
            return self.apply(body, self.select(body, mask), form)
        self.messages(body)
        return {**body, **(self.load(body, mask) if body.get("tools") else {})}

    async def amask_request(
        self, body: Mapping[str, Any], mask: ToolMask, form: str | None = None
    ) -> dict[str, Any]:
        """``mask_request`` in a thread, so that ranking does not block an event loop."""
        return await asyncio.to_thread(self.mask_request, body, mask, form)


def _read_message(message: object) -> dict[str, Any]:
    record = as_json(message)
    if not isinstance(record, Mapping):
        raise InputError(f"a message must be a JSON object, not {type(record).__name__}")
    return dict(record)


def as_json(value: object) -> Any:
    """An object of a provider's package as JSON."""
    if isinstance(value, dict):
        return value
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else value


def select_tools(
    mask: ToolMask,
    tools: Iterable[Tool],
    read: Callable[[], Transcript],
    name_of: Callable[[Tool], str | None],
    definition_of: Callable[[Tool], object] = as_json,
) -> ToolSelection:
    """Which tools of a provider or a framework are shown.

    Args:
        mask: retriever and policy.
        tools: in the order they are given to the model.
        read: reads the conversation.
        name_of: the name of a tool; None where it has none: it stays, and is not searched for.
        definition_of: what the model is sent of a tool.

    Raises:
        InputError: two tools share a name.
    """
    listed = list(tools)
    costs = token_costs(mask, listed, name_of, definition_of)
    return mask.select(check_names(map(name_of, listed)), read, costs=costs)


def token_costs(
    mask: ToolMask,
    tools: Iterable[Tool],
    name_of: Callable[[Tool], str | None],
    definition_of: Callable[[Tool], object] = as_json,
) -> dict[str, int] | None:
    """Tokens of each tool's definition, where the policy has a budget; else none are counted."""
    if mask.policy.token_budget is None:
        return None
    named = ((name_of(tool), tool) for tool in tools)
    return {name: count_tokens(definition_of(tool)) for name, tool in named if name is not None}


def count_definitions(
    request: Mapping[str, Any], masked: Mapping[str, Any], name_of: Callable[[Any], str | None]
) -> tuple[int, int]:
    """Tokens of the definitions that a masked request has the model read, and of those it spares.

    A deferred tool is read once a message refers to it, an added one where it is added, and one
    without a name always.
    """
    tools = request.get("tools") or ()
    every = sum(count_tokens(as_json(tool)) for tool in tools)
    read = 0
    listed = list(masked.get("tools") or ())
    messages = masked.get("messages", masked.get("input"))
    referred: set[object] = set()
    for item in messages if isinstance(messages, list) else ():
        item = as_json(item)
        if isinstance(item, Mapping) and item.get("type") == "additional_tools":
            listed += item.get("tools") or ()
        referred.update(_referred_names(item))
    for tool in map(as_json, listed):
        if not tool.get("defer_loading") or name_of(tool) in referred:
            read += count_tokens(tool)
    return read, max(0, every - read)


def _referred_names(message: object) -> Iterator[object]:
    """Names of the tools that results within a message load."""
    content = message.get("content") if isinstance(message, Mapping) else None
    for block in content if isinstance(content, list) else ():
        results = block.get("content") if isinstance(block, Mapping) else None
        for part in results if isinstance(results, list) else ():
            if isinstance(part, Mapping) and part.get("type") == "tool_reference":
                yield part.get("tool_name")


def find_tools(
    mask: ToolMask,
    arguments: object,
    tools: Sequence[Tool],
    read: Callable[[], Transcript],
    name_of: Callable[[Tool], str | None],
    definition_of: Callable[[Tool], object] = as_json,
) -> list[Tool]:
    """The tools that a model's search brings up, best first; see ``select_tools``.

    Args:
        mask: retriever and policy.
        arguments: what the model called the search with, an object or its JSON.
        tools: all that are available.
        read: reads the conversation.
        name_of: the name of a tool.
        definition_of: what the model is sent of a tool.

    Raises:
        InputError: the search says nothing to search for, or two tools share a name.
    """
    text, limit = read_search(as_json(arguments))
    named = {name: tool for tool in tools if (name := name_of(tool)) is not None}
    described = described_tools(tools, name_of, definition_of)
    return [named[name] for name in mask.search(text, described, read, limit)]


def check_tools(tools: object) -> Sequence[Any]:
    """The ``tools`` of a request.

    Raises:
        InputError: they are not a list of JSON objects.
    """
    for tool in (checked := check_list(tools, "tools")):
        if not isinstance(record := as_json(tool), Mapping):
            raise InputError(f"a tool must be a JSON object, not {type(record).__name__}")
    return checked


def check_list(value: object, name: str) -> Sequence[Any]:
    """A list of a request.

    Raises:
        InputError: it is not a list.
    """
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InputError(f"{name!r} must be a list, not {type(value).__name__}")
    return value


def check_names(names: Iterable[str | None]) -> tuple[str, ...]:
    """The names, less those of tools that have none.

    Raises:
        InputError: two tools share a name.
    """
    return unique_names(name for name in names if name is not None)


def hint_text(selection: ToolSelection, *, weighted: bool = False) -> str:
    """A soft mask in words (paper, "ICL Methods"): all tools stay, the retrieved are preferred.

    Empty when nothing is known to prefer.

    Args:
        selection: what a step shows.
        weighted: write each tool's probability after it.
    """
    if not selection.preferred:
        return ""
    names = ", ".join(
        quote_json(name) + (f" ({selection.weights[name]:.3f})" if weighted else "")
        for name in selection.preferred
    )
    return (
        "In similar runs these tools came next; prefer them unless the request clearly needs "
        f"another: {names}"
    )


def find_loadable(mask: ToolMask, names: Collection[str]) -> frozenset[str]:
    """The tools that wait to be loaded: those that the retriever knows, less those always shown."""
    known = frozenset(mask.retriever.vocabulary).intersection(names)
    return known.difference(mask.policy.always_include)


def insert_loads(
    messages: Sequence[Any],
    answers: Sequence[int],
    tools: Sequence[Tool],
    name_of: Callable[[Tool], str | None],
    mask: ToolMask,
    write: Callable[[list[str], int], list[Any]],
    *,
    also: Collection[str] = (),
) -> list[Any]:
    """The conversation with tools loaded in front of every answer for which some became needed.

    Derived from the conversation each time, and the same each time, so that the cached
    start of the prompt stays what it was. What is loaded stays loaded, and a tool that was called
    without having been loaded is loaded after that call.

    Args:
        messages: the conversation, without anything loaded.
        answers: positions at which the model answered, ascending.
        tools: the request's ``tools``, all of them.
        name_of: the name of a tool; None where it has none.
        mask: retriever and policy.
        write: the messages that load tools of these names, and how many loads there were.
        also: names to load for the next answer, whatever their rank.

    Raises:
        InputError: two tools share a name.
    """
    names = check_names(map(name_of, tools))
    waiting = find_loadable(mask, names)
    points = [*answers, len(messages)]
    transcripts: list[Transcript] = []

    def read() -> list[Transcript]:
        transcripts.extend(transcript_of(messages[:position]) for position in points)
        return transcripts

    costs = token_costs(mask, tools, name_of)
    selections = mask.select_each(names, read, len(points), costs=costs)
    changed: list[Any] = []
    loaded: set[str] = set()
    count = start = 0
    for place, (position, selection) in enumerate(zip(points, selections, strict=True)):
        changed += messages[start:position]
        start = position
        # What a search returned, its result has loaded.
        loaded.update(*(searched_tools(each) for each in transcripts[place : place + 1]))
        wanted = {*selection.shown, *(also if position == len(messages) else ())}
        if new := [name for name in names if name in (wanted & waiting) - loaded]:
            changed += write(new, count)
            loaded.update(new)
            count += 1
    return changed
