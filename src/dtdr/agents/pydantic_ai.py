"""Pydantic AI: a capability that shows an agent only the tools for its next step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from dtdr.agents import openai
from dtdr.agents.mask import ToolMask
from dtdr.agents.requests import Toolbox
from dtdr.agents.transcript import Transcript, read_items
from dtdr.conversation.events import AssistantMessage, UserMessage
from dtdr.conversation.items import Item, ToolCallRequest, ToolResult
from dtdr.deprecated import renamed_function
from dtdr.errors import MissingExtraError, check_choice

try:
    from pydantic_ai import RunContext, ToolDefinition
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        BaseToolCallPart,
        BaseToolReturnPart,
        ModelMessage,
        TextPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.settings import ModelSettings, ToolOrOutput
except ImportError as error:
    raise MissingExtraError("the Pydantic AI integration", "pydantic-ai", "pydantic-ai") from error

Form = Literal["filtered", "allowed-tools", "deferred"]

_HIDDEN = "dtdr_hidden"
"""Marks, in a definition's metadata, which no model gets, the tools that a model may not call."""


@dataclass
class ToolMaskCapability(AbstractCapability[Any]):
    """Shows the model of an agent only the tools for its next step.

    It reads the run's messages before each request, so one object serves any number of agents and
    runs.

    Args:
        mask: model and policy.
        form: ``filtered`` leaves tools out, and Pydantic AI answers calls of them with an error.
            ``allowed-tools``, for models of OpenAI, keeps all, and with them the prompt cache, and
            puts the shown ones into ``tool_choice``; agents with native tools get a filtered list
            all the same. ``deferred`` leaves hidden tools to Pydantic AI's tool search and loads
            the shown ones. None takes ``allowed-tools`` for up to 128 tools with OpenAI's own API,
            else ``filtered``.

    Raises:
        InputError: an unknown form; at a step, two tools that share a name.
    """

    mask: ToolMask
    form: Form | None = None

    def __post_init__(self) -> None:
        check_choice("form", self.form or "filtered", get_args(Form))

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: a mask cannot be written into a specification of an agent."""
        return None

    async def prepare_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """Leave out, defer or mark the hidden tools."""
        tools = Toolbox(tool_defs, lambda tool: tool.name, _definition)
        selection = await asyncio.to_thread(tools.select, self.mask, lambda: _conversation(ctx))
        form = self.form or openai.cheapest_form(len(tool_defs), address=_address(ctx.model))
        if form == "filtered":
            return [tool for tool in tool_defs if selection.shows(tool.name)]
        if form == "deferred":
            return [
                replace(tool, defer_loading=not selection.shows(tool.name)) for tool in tool_defs
            ]
        return [
            tool
            if selection.shows(tool.name)
            else replace(tool, metadata={**(tool.metadata or {}), _HIDDEN: True})
            for tool in tool_defs
        ]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Allow the model all tools but the marked ones."""
        parameters = request_context.model_request_parameters
        tools = parameters.function_tools
        shown = [tool for tool in tools if _HIDDEN not in (tool.metadata or {})]
        if len(shown) == len(tools):
            return request_context
        if parameters.native_tools:  # which a list of allowed tools would forbid
            parameters = replace(parameters, function_tools=shown)
            return replace(request_context, model_request_parameters=parameters)
        settings: ModelSettings = {**(request_context.model_settings or {})}
        names = [tool.name for tool in shown]
        if settings.get("tool_choice") in (None, "auto"):
            settings["tool_choice"] = ToolOrOutput(names)
        elif settings["tool_choice"] == "required":
            settings["tool_choice"] = names
        return replace(request_context, model_settings=settings)


def _prepare_tools(mask: ToolMask, form: Literal["filtered", "deferred"] = "filtered") -> Any:
    """A function for Pydantic AI's ``PrepareTools``."""
    return ToolMaskCapability(mask, form).prepare_tools


prepare_tools = renamed_function("prepare_tools", "ToolMaskCapability", _prepare_tools)


def _address(model: Any) -> str:
    """URL of the API that a model asks; empty for other models than OpenAI's."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model.base_url or ""


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
