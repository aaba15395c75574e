"""Pydantic AI: tools prepared for each step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from dtdr.agents.mask import ToolMask
from dtdr.agents.requests import Toolbox
from dtdr.agents.transcript import Transcript, read_items
from dtdr.conversation.events import AssistantMessage, UserMessage
from dtdr.conversation.items import Item, ToolCallRequest, ToolResult
from dtdr.errors import MissingExtraError, check_choice

try:
    from pydantic_ai import RunContext, ToolDefinition
    from pydantic_ai.messages import (
        BaseToolCallPart,
        BaseToolReturnPart,
        ModelMessage,
        TextPart,
        UserPromptPart,
    )
except ImportError as error:
    raise MissingExtraError("the Pydantic AI integration", "pydantic-ai", "pydantic-ai") from error

Form = Literal["filtered", "deferred"]
Prepare = Callable[[RunContext[Any], list[ToolDefinition]], Awaitable[list[ToolDefinition]]]


def prepare_tools(mask: ToolMask, form: Form = "filtered") -> Prepare:
    """A function for ``PrepareTools``, which calls it before each request to the model.

    Args:
        mask: model and policy.
        form: ``filtered`` leaves tools out, and Pydantic AI answers calls of them with an error;
            ``deferred`` leaves them to its tool search and loads the shown ones.

    Raises:
        InputError: an unknown form; at a step, two tools that share a name.
    """
    check_choice("form", form, get_args(Form))

    async def prepare(
        context: RunContext[Any], definitions: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        tools = Toolbox(definitions, lambda tool: tool.name, _definition)
        selection = await asyncio.to_thread(tools.select, mask, lambda: _conversation(context))
        if form == "filtered":
            return [tool for tool in definitions if selection.shows(tool.name)]
        return [replace(tool, defer_loading=not selection.shows(tool.name)) for tool in definitions]

    return prepare


def transcript(messages: Iterable[ModelMessage]) -> Transcript:
    """The turns of a conversation in Pydantic AI's messages."""
    return read_items(itertools.chain(*map(_items, message.parts)) for message in messages)


def _items(part: Any) -> Iterator[Item]:
    if isinstance(part, UserPromptPart):
        if (text := _text(part.content)).strip():
            yield UserMessage(text)
    elif isinstance(part, TextPart):
        if part.content.strip():
            yield AssistantMessage(part.content)
    elif isinstance(part, BaseToolCallPart):
        yield ToolCallRequest(part.tool_call_id, part.tool_name, part.args)
    elif isinstance(part, BaseToolReturnPart):
        output, has_failed = part.model_response_str(), part.outcome != "success"
        yield ToolResult(part.tool_call_id, output, part.tool_name, has_failed)
    elif getattr(part, "part_kind", "") == "retry-prompt" and part.tool_name is not None:
        yield ToolResult(part.tool_call_id, part.model_response(), part.tool_name, failed=True)


def _definition(tool: ToolDefinition) -> dict[str, Any]:
    schema = tool.parameters_json_schema
    return {"name": tool.name, "description": tool.description, "parameters": schema}


def _conversation(context: RunContext[Any]) -> Transcript:
    conversation = transcript(context.messages)
    if conversation.turns or context.prompt is None:
        return conversation
    return Transcript.of(_text(context.prompt))


def _text(content: str | Sequence[Any]) -> str:
    if isinstance(content, str):
        return content
    texts = [part if isinstance(part, str) else getattr(part, "content", "") for part in content]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
