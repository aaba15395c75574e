"""LlamaIndex: an agent that sees only the tools for its next step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtdr.agents.mask import ToolMask
from dtdr.agents.requests import Toolbox
from dtdr.agents.transcript import Transcript, read_items
from dtdr.conversation.events import AssistantMessage, UserMessage
from dtdr.conversation.injected import remove_blocks
from dtdr.conversation.items import Item, ToolCallRequest, ToolResult
from dtdr.data.json_codec import dump_object
from dtdr.errors import MissingExtraError

try:
    from llama_index.core.agent.workflow import AgentOutput, FunctionAgent
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import BaseMemory
    from llama_index.core.tools import AsyncBaseTool
except ImportError as error:
    raise MissingExtraError(
        "the LlamaIndex integration", "llama-index", "llama-index-core"
    ) from error

if TYPE_CHECKING:
    from llama_index.core.agent.workflow.agent_context import AgentContext


class ToolMaskAgent(FunctionAgent):
    """A function agent whose model sees only the tools for its next step.

    It reads the agent's messages, so one object serves any number of runs.

    Args:
        mask: model and policy.
        keywords: those of ``FunctionAgent``; ``tools`` has all tools.

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
        """Take one step, with the shown tools."""
        scratchpad = await ctx.store.get(self.scratchpad_key, default=[])
        message = await ctx.store.get("user_msg_str", default=None)

        def read() -> Transcript:
            return _with_query(transcript([*llm_input, *scratchpad]), message)

        toolbox = Toolbox(tools, _name, _definition)
        selection = await asyncio.to_thread(toolbox.select, self._mask, read)
        shown = [tool for tool in tools if selection.shows(_name(tool))]
        return await super().take_step(ctx, llm_input, shown, memory)


def transcript(messages: Iterable[ChatMessage]) -> Transcript:
    """The turns of a conversation in LlamaIndex's messages."""
    return read_items(map(_items, messages))


def _items(message: ChatMessage) -> Iterator[Item]:
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
    """The calls in a message; older models put them into the keywords."""
    has_blocks = False
    for block in message.blocks:
        if getattr(block, "block_type", "") == "tool_call":
            has_blocks = True
            name, arguments = getattr(block, "tool_name", ""), getattr(block, "tool_kwargs", None)
            yield ToolCallRequest(getattr(block, "tool_call_id", None) or "", str(name), arguments)
    if has_blocks:
        return
    for call in message.additional_kwargs.get("tool_calls") or ():
        record = dump_object(call)
        function = record.get("function", record)
        name, arguments = function.get("name", ""), function.get("arguments")
        yield ToolCallRequest(str(record.get("id") or ""), str(name), arguments)


def _with_query(conversation: Transcript, message: str | None) -> Transcript:
    """The transcript with the user's own words: an agent with a state adds it to them."""
    if not message or not conversation.turns:
        return conversation
    last = replace(conversation.turns[-1], query=remove_blocks(message))
    return Transcript((*conversation.turns[:-1], last))


def _name(tool: AsyncBaseTool) -> str:
    return str(tool.metadata.name)


def _definition(tool: AsyncBaseTool) -> dict[str, Any]:
    return tool.metadata.to_openai_tool(skip_length_check=True)
