"""LlamaIndex: an agent that is shown the tools which come next, and an object retriever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any

from dtdr.agents.mask import ToolMask
from dtdr.agents.requests import as_json, check_names, token_costs
from dtdr.agents.transcript import Transcript, Turn, read_items
from dtdr.data.calls import Status, ToolCall
from dtdr.errors import MissingExtraError

try:
    from llama_index.core.agent.workflow import AgentOutput, FunctionAgent
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import BaseMemory
    from llama_index.core.objects import ObjectRetriever
    from llama_index.core.schema import QueryBundle
    from llama_index.core.tools import AsyncBaseTool, BaseTool, ToolOutput, adapt_to_async_tool
except ImportError as error:
    raise MissingExtraError(
        "the LlamaIndex integration", "llama-index", "llama-index-core"
    ) from error

if TYPE_CHECKING:
    from llama_index.core.agent.workflow.agent_context import AgentContext

    from dtdr.logs.messages import Item, ToolCallRequest

_JSON = (str, int, float, bool, list, dict, NoneType)


class ToolMaskAgent(FunctionAgent):
    """A function agent whose model is shown the tools that its next step needs.

    History and query are read from the agent's own messages, so one object serves any number of
    runs. Tools that the retriever never saw and tools that were called stay; when ranking fails,
    all stay and a warning is logged.

    Args:
        mask: retriever and policy.
        keywords: those of ``FunctionAgent``; ``tools`` holds all tools.

    Raises:
        InputError: at a step, two tools share a name.
    """

    _mask: ToolMask = PrivateAttr()

    def __init__(self, *, mask: ToolMask, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._mask = mask

    async def take_step(
        self,
        ctx: AgentContext,
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        """Take one step, with the tools that it needs."""
        scratchpad = await ctx.store.get(self.scratchpad_key, default=[])
        said = await ctx.store.get("user_msg_str", default=None)

        def read() -> Transcript:
            return _with_query(transcript([*llm_input, *scratchpad]), said)

        selection = await self._mask.aselect(_names(tools), read, costs=_costs(self._mask, tools))
        shown = [tool for tool in tools if selection.shows(tool.metadata.name)]
        return await super().take_step(ctx, llm_input, shown, memory)


class ToolMaskRetriever(ObjectRetriever[BaseTool]):
    """What any workflow agent takes as ``tool_retriever``: tools ranked by a session of the run.

    An agent asks its retriever twice a step: with the user's message before it asks the model,
    and with a tool's name before it calls that tool. The tool that it gets in a session is a copy
    that tells the session its arguments and what it returned.
    A session is one run's own, in its task and those that it starts:

    >>> with retriever.session(await memory.aget_all()):     # doctest: +SKIP
    ...     await agent.run("Mail Ann", memory=memory)       # doctest: +SKIP

    Outside a session every request is ranked by its text alone.

    Args:
        mask: retriever and policy.
        tools: all tools.

    Raises:
        InputError: two tools share a name.
    """

    def __init__(self, mask: ToolMask, tools: Sequence[BaseTool]) -> None:
        # The base class holds an index of nodes; there is none here.
        self._mask = mask
        self._names = _names(tools)
        self._tools = {str(tool.metadata.name): tool for tool in tools}
        self._costs = _costs(mask, tools)
        self._session: ContextVar[_Session | None] = ContextVar("dtdr session", default=None)

    @contextlib.contextmanager
    def session(self, messages: Iterable[ChatMessage] = ()) -> Iterator[None]:
        """The scope of one run: what is called in it counts as its history.

        Args:
            messages: what was said and called before, such as the agent's memory.
        """
        token = self._session.set(_Session(transcript(messages)))
        try:
            yield
        finally:
            self._session.reset(token)

    def retrieve(self, str_or_query_bundle: str | QueryBundle) -> list[BaseTool]:
        """The tools to show for a message, or the tool of that name."""
        text = str_or_query_bundle
        if isinstance(text, QueryBundle):
            text = text.query_str
        session = self._session.get()
        if text in self._tools and (session is None or session.is_asked):
            tool = self._tools[text]
            return [tool if session is None else session.observe(tool)]
        conversation = (session or _Session()).ask(text)
        selection = self._mask.select(self._names, conversation, costs=self._costs)
        return [self._tools[name] for name in selection.shown]

    async def aretrieve(self, str_or_query_bundle: str | QueryBundle) -> list[BaseTool]:
        """The tools to show for a message, or the tool of that name."""
        return await asyncio.to_thread(self.retrieve, str_or_query_bundle)


class _Session:
    """A conversation: what came before, the user's message, and the calls since."""

    def __init__(self, conversation: Transcript | None = None) -> None:
        self._conversation = conversation or Transcript()
        self._count = len(self._conversation.called)
        self.is_asked = False

    def ask(self, query: str) -> Transcript:
        """The conversation once the user has said that, which goes on where it was said before."""
        turns = self._conversation.turns
        if self.is_asked and len(turns) > 1 and not turns[-1].events and turns[-2].query == query:
            # In between, the agent asked for a tool that is not there.
            turns = turns[:-1]
        elif not self.is_asked or turns[-1].query != query:
            turns = (*turns, Turn(query))
        self.is_asked = True
        self._conversation = Transcript(turns)
        self._step = 1 + max((call.step or 0 for call in turns[-1].calls), default=0)
        return self._conversation

    def observe(self, tool: BaseTool) -> BaseTool:
        """A copy of a tool that tells this session of its calls; the tool where that cannot be."""
        original = adapt_to_async_tool(tool)
        call, acall, observed = original.call, original.acall, copy(original)

        def observe_call(*positional: Any, **arguments: Any) -> ToolOutput:
            with self._note_failure(tool, arguments):
                output = call(*positional, **arguments)
            return self._note(tool, arguments, output)

        async def observe_acall(*positional: Any, **arguments: Any) -> ToolOutput:
            with self._note_failure(tool, arguments):
                output = await acall(*positional, **arguments)
            return self._note(tool, arguments, output)

        try:
            vars(observed).update(call=observe_call, acall=observe_acall)
        except TypeError:
            self._add(tool, {}, None, "unknown")
            return tool
        return observed

    @contextlib.contextmanager
    def _note_failure(self, tool: BaseTool, arguments: dict[str, Any]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # A tool that waits for a person is called again once they have answered.
            if type(error).__name__ != "WaitingForEvent":
                self._add(tool, arguments, str(error), "error")
            raise

    def _note(self, tool: BaseTool, arguments: dict[str, Any], output: ToolOutput) -> ToolOutput:
        """As the messages of an agent tell it, and with the mark of failure that they lack."""
        self._add(tool, arguments, output.content, "error" if output.is_error else "ok")
        return output

    def _add(self, tool: BaseTool, arguments: dict[str, Any], output: Any, status: Status) -> None:
        self._count += 1
        # An agent adds its context to the arguments of a tool that asks for it.
        known = {key: value for key, value in arguments.items() if isinstance(value, _JSON)}
        call = ToolCall(str(self._count), _name(tool), known, output, status, self._step)
        *earlier, turn = self._conversation.turns
        turn = replace(turn, events=(*turn.events, call))
        self._conversation = Transcript((*earlier, turn))


def transcript(messages: Iterable[ChatMessage]) -> Transcript:
    """The turns of a conversation in LlamaIndex's messages."""
    return read_items(
        (position, item) for position, message in enumerate(messages) for item in _items(message)
    )


def _items(message: ChatMessage) -> Iterator[Item]:
    from dtdr.logs.log_format import AssistantMessage, UserMessage
    from dtdr.logs.messages import ToolResult

    text = message.content or ""
    if message.role == "user" and text.strip():
        yield UserMessage(text)
    elif message.role == "assistant":
        if text.strip():
            yield AssistantMessage(text)
        yield from _calls(message)
    elif message.role in ("tool", "function"):
        more = message.additional_kwargs
        identifier, name = more.get("tool_call_id"), more.get("name")
        yield ToolResult(str(identifier or ""), text, str(name or ""), failed=None)


def _calls(message: ChatMessage) -> Iterator[ToolCallRequest]:
    """The calls that a message asks for; older models put them into the keywords."""
    from dtdr.logs.messages import ToolCallRequest

    has_blocks = False
    for block in message.blocks:
        if getattr(block, "block_type", "") == "tool_call":
            has_blocks = True
            name, arguments = getattr(block, "tool_name", ""), getattr(block, "tool_kwargs", None)
            yield ToolCallRequest(getattr(block, "tool_call_id", None) or "", str(name), arguments)
    if has_blocks:
        return
    for call in message.additional_kwargs.get("tool_calls") or ():
        record = as_json(call)
        function = record.get("function", record)
        name, arguments = function.get("name", ""), function.get("arguments")
        yield ToolCallRequest(str(record.get("id") or ""), str(name), arguments)


def _with_query(conversation: Transcript, said: str | None) -> Transcript:
    """The transcript with the user's own words: an agent with a state writes it around them."""
    if not said or not conversation.turns:
        return conversation
    return Transcript((*conversation.turns[:-1], replace(conversation.turns[-1], query=said)))


def _names(tools: Sequence[BaseTool]) -> tuple[str, ...]:
    return check_names(tool.metadata.name for tool in tools)


def _costs(mask: ToolMask, tools: Sequence[BaseTool]) -> dict[str, int] | None:
    return token_costs(mask, tools, _name, _definition)


def _name(tool: BaseTool) -> str:
    return str(tool.metadata.name)


def _definition(tool: BaseTool) -> dict[str, Any]:
    return tool.metadata.to_openai_tool(skip_length_check=True)
