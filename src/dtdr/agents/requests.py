"""Tools, conversations and hints, as the requests of all providers have them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dtdr.agents.mask import ToolMask
from dtdr.agents.policy import ToolSelection, unique_names
from dtdr.agents.search import SEARCH_CALLS, described_tool, read_search
from dtdr.agents.transcript import Transcript, read_items
from dtdr.conversation.messages import items_of
from dtdr.data.json_codec import dump_object, quote_json
from dtdr.errors import InputError, check_choice
from dtdr.rankers.selection import count_tokens

Tool = TypeVar("Tool")

_SEND_ALL = frozenset(("allowed-tools", "hint"))
"""Forms that send every definition."""


@dataclass(frozen=True, slots=True)
class Toolbox(Generic[Tool]):
    """The tools of a request or a framework. Two of one name are an InputError.

    Attributes:
        tools: in the order they are given to the model.
        name_of: the name of a tool; None for one that always stays, such as a provider's own.
        definition_of: what the model gets of a tool.
    """

    tools: Sequence[Tool]
    name_of: Callable[[Tool], str | None]
    definition_of: Callable[[Tool], object] = dump_object

    @property
    def names(self) -> tuple[str, ...]:
        """The names of those that have one, in their order."""
        return unique_names(name for name in map(self.name_of, self.tools) if name is not None)

    @property
    def by_name(self) -> dict[str, Tool]:
        """Those that have a name."""
        return {name: tool for tool in self.tools if (name := self.name_of(tool)) is not None}

    def costs(self, mask: ToolMask) -> dict[str, int] | None:
        """Tokens of each definition, if the policy has a budget."""
        if mask.policy.token_budget is None:
            return None
        return {name: count_tokens(self.definition_of(tool)) for name, tool in self.by_name.items()}

    def select(self, mask: ToolMask, read: Callable[[], Transcript]) -> ToolSelection:
        """Which tools are shown; ``read`` reads the conversation."""

        def describe_and_read() -> Transcript:
            self.describe(mask)
            return read()

        return mask.select(self.names, describe_and_read, costs=self.costs(mask))

    def describe(self, mask: ToolMask) -> None:
        """Describe to a mask without a model the tools that it does not know yet."""
        if missing := mask.unknown(self.names):
            tools = self.by_name
            mask.know(described_tool(name, self.definition_of(tools[name])) for name in missing)

    def search(
        self, mask: ToolMask, arguments: object, read: Callable[[], Transcript]
    ) -> list[Tool]:
        """The tools that match a model's search, best first; see ``read_search``."""
        text = read_search(dump_object(arguments))
        by_name = self.by_name
        described = [
            described_tool(name, self.definition_of(by_name[name]))
            for name in self.names
            if name not in SEARCH_CALLS
        ]
        return [by_name[name] for name in mask.search(text, described, read)]


def transcript_of(messages: Iterable[object]) -> Transcript:
    """The turns of a conversation in a provider's messages.

    Messages of OpenAI, Anthropic, LangChain and others, and items of the responses API, as JSON or
    as objects of their packages.
    """
    return read_items(items_of(_read_message(item)) for item in messages)


def _read_message(message: object) -> dict[str, Any]:
    record = dump_object(message)
    if not isinstance(record, Mapping):
        raise InputError(f"a message must be a JSON object, not {type(record).__name__}")
    return dict(record)


class Provider(ABC):
    """Masks in the requests of one provider, which are JSON or objects of its package.

    Every method raises an InputError for a request without messages, for tools that are not a list
    of objects, and for two tools of one name.

    Attributes:
        forms: what ``mask_request`` can write, the provider's own first.
        hint_role: the role of the message that is a hint.
    """

    forms: tuple[str, ...]
    hint_role: str

    @abstractmethod
    def tool_name(self, tool: object) -> str | None:
        """The name of a user's tool; None for one that the provider defines."""

    @abstractmethod
    def key(self, body: Mapping[str, Any]) -> str:
        """The field of a request that has the conversation."""

    @abstractmethod
    def forced_names(self, choice: object) -> Collection[str]:
        """The tools that a ``tool_choice`` names: without them, the API refuses the request."""

    @abstractmethod
    def write(self, body: Mapping[str, Any], selection: ToolSelection) -> dict[str, Any]:
        """The fields of a request that the provider's own form changes."""

    def default_form(self, body: Mapping[str, Any]) -> str:
        """The form of a request for which none is given."""
        return self.forms[0]

    def messages(self, body: Mapping[str, Any]) -> Sequence[Any]:
        """The conversation of a request."""
        key = self.key(body)
        return check_list(body[key], key)

    def toolbox(self, tools: object) -> Toolbox[Any]:
        """The ``tools`` of a request, checked."""
        for tool in (listed := check_list(tools, "tools")):
            if not isinstance(record := dump_object(tool), Mapping):
                raise InputError(f"a tool must be a JSON object, not {type(record).__name__}")
        return Toolbox(listed, self.tool_name)

    def tool_names(self, tools: Sequence[object]) -> tuple[str, ...]:
        """The names of those tools that have one, in their order."""
        return self.toolbox(tools).names

    def transcript(self, body: Mapping[str, Any]) -> Transcript:
        """The conversation of a request."""
        return transcript_of(self.messages(body))

    def select(self, body: Mapping[str, Any], mask: ToolMask) -> ToolSelection:
        """Which tools of a request are shown."""
        self.messages(body)
        return self.toolbox(body.get("tools") or ()).select(mask, lambda: self.transcript(body))

    def search(self, body: Mapping[str, Any], arguments: object, mask: ToolMask) -> list[Any]:
        """The tools of a request that match a model's search, best first."""
        tools = self.toolbox(body.get("tools") or ())
        return tools.search(mask, arguments, lambda: self.transcript(body))

    def apply(self, body: Mapping[str, Any], selection: ToolSelection, form: str) -> dict[str, Any]:
        """The request with a selection written into a copy of it.

        Raises:
            InputError: an unknown form, or one that needs the earlier steps too.
        """
        check_choice("form", form, self.forms)
        messages = self.messages(body)
        if not body.get("tools"):
            return dict(body)
        if form == "filtered":
            keep = self.forced_names(body.get("tool_choice"))
            return {**body, "tools": self.filter_tools(body["tools"], selection, keep=keep)}
        if form == "hint":
            # Last, so that the conversation's start stays cached.
            text = hint_text(selection)
            hints = [{"role": self.hint_role, "content": text}] if text else []
            return {**body, self.key(body): [*messages, *hints]}
        return {**body, **self.write(body, selection)}

    def mask_request(
        self, body: Mapping[str, Any], mask: ToolMask, form: str | None = None
    ) -> dict[str, Any]:
        """A request that shows the tools for the next step; the module describes the forms.

        Args:
            body: the keywords of the provider's ``create``.
            mask: model and policy.
            form: one of ``forms``; None for ``default_form``.

        Raises:
            InputError: an unknown form.
        """
        return self.select_and_mask(body, mask, form or self.default_form(body))[1]

    def select_and_mask(
        self, body: Mapping[str, Any], mask: ToolMask, form: str
    ) -> tuple[ToolSelection, dict[str, Any]]:
        """Which tools are shown for the next step, and ``mask_request``: one ranking for both."""
        selection = self.select(body, mask)
        return selection, self.apply(body, selection, form)

    def filter_tools(
        self, tools: Sequence[Any], selection: ToolSelection, *, keep: Collection[str] = ()
    ) -> list[Any]:
        """The shown tools in their order; tools without a name, and those to ``keep``, stay.

        A cache breakpoint on a tool that is left out moves to the nearest one before it that stays.

        Raises:
            InputError: two tools share a name.
        """
        self.tool_names(tools)
        return self.replace_tools(
            tools,
            lambda name: not selection.shows(name) and name not in keep,
            lambda tool: None,
        )

    def replace_tools(
        self,
        tools: Sequence[Any],
        leaves: Callable[[str], bool],
        instead: Callable[[Mapping[str, Any]], Any],
    ) -> list[Any]:
        """The tools, of which some leave; their cache breakpoints move to the tool before.

        Args:
            tools: the request's ``tools``.
            leaves: whether the tool of that name leaves.
            instead: its replacement; None for none.
        """
        changed: list[Any] = []
        last = None
        for tool in tools:
            name = self.tool_name(tool)
            if name is None or not leaves(name):
                last = len(changed)
                changed.append(tool)
                continue
            record = dict(dump_object(tool))
            breakpoint_ = record.pop("cache_control", None)
            if breakpoint_ is not None and last is not None:
                changed[last] = {"cache_control": breakpoint_, **dump_object(changed[last])}
            if (other := instead(record)) is not None:
                changed.append(other)
        return changed

    def count_definitions(
        self, request: Mapping[str, Any], selection: ToolSelection, form: str
    ) -> tuple[int, int]:
        """Tokens of the definitions that a form shows to the model at a step, and of the others."""
        shown = hidden = 0
        for tool in request.get("tools") or ():
            if form in _SEND_ALL or selection.shows(self.tool_name(tool)):
                shown += count_tokens(dump_object(tool))
            else:
                hidden += count_tokens(dump_object(tool))
        return shown, hidden


def check_list(value: object, name: str) -> Sequence[Any]:
    """A list of a request; anything else is an InputError."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InputError(f"{name!r} must be a list, not {type(value).__name__}")
    return value


def hint_text(selection: ToolSelection) -> str:
    """A soft mask in words (paper, "ICL Methods"): all tools stay, the retrieved are preferred.

    Empty if no tool is preferred. Its tag is one of ``INJECTED_TAGS``, so that who reads the
    conversation, or a log of it, does not take the hint for what the user wrote.
    """
    preferred = [name for name in selection.preferred if selection.reasons[name] != "new"]
    if not preferred:
        return ""
    return (
        "<system-reminder>In similar runs these tools came next; prefer them unless the request "
        f"clearly needs another: {', '.join(map(quote_json, preferred))}"
        "</system-reminder>"
    )
