"""OpenAI Agents SDK: a model that sees only the tools for its next step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from dtdr.agents.mask import ToolMask
from dtdr.agents.policy import ToolSelection
from dtdr.agents.requests import Toolbox, transcript_of
from dtdr.agents.transcript import Transcript
from dtdr.errors import MissingExtraError

try:
    from agents import FunctionTool, Model
except ImportError as error:
    raise MissingExtraError(
        "the OpenAI Agents integration", "openai-agents", "openai-agents"
    ) from error

if TYPE_CHECKING:
    from agents import ModelResponse, ModelSettings, Tool
    from agents.items import TResponseInputItem, TResponseStreamEvent
    from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest


class ToolMaskModel(Model):
    """Shows any model of the SDK only the tools for its next step.

    It reads the items that the runner sends, so one object serves any number of agents and runs.
    Hosted tools and handoffs stay. It cannot read a conversation that the server stores
    (``previous_response_id``, ``conversation_id``), so all tools stay then.

    Args:
        model: the model to show tools to, or its name.
        mask: model and policy.

    Raises:
        InputError: at a model call, two tools share a name.
    """

    def __init__(self, model: Model | str, mask: ToolMask) -> None:
        if isinstance(model, str):
            from agents import MultiProvider

            model = MultiProvider().get_model(model)
        self.model = model
        self.mask = mask

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # the SDK's own name
        model_settings: ModelSettings,
        tools: list[Tool],
        *arguments: Any,
        **keywords: Any,
    ) -> ModelResponse:
        """Ask the model, with the tools of the next step."""
        shown = await asyncio.to_thread(self._shown, tools, input, model_settings)
        return await self.model.get_response(
            system_instructions, input, model_settings, shown, *arguments, **keywords
        )

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # the SDK's own name
        model_settings: ModelSettings,
        tools: list[Tool],
        *arguments: Any,
        **keywords: Any,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Ask the model for a stream, with the tools of the next step."""
        shown = await asyncio.to_thread(self._shown, tools, input, model_settings)
        async for event in self.model.stream_response(
            system_instructions, input, model_settings, shown, *arguments, **keywords
        ):
            yield event

    async def close(self) -> None:
        """Release what the model uses."""
        await self.model.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """The model's own advice."""
        return self.model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.model._cleanup_on_run_end(owner)

    def select(self, tools: Sequence[Tool], items: str | list[TResponseInputItem]) -> ToolSelection:
        """Which tools are shown after these items.

        Raises:
            InputError: two tools share a name.
        """
        return Toolbox(tools, tool_name, _definition).select(self.mask, lambda: transcript(items))

    def _shown(
        self, tools: list[Tool], items: str | list[TResponseInputItem], settings: ModelSettings
    ) -> list[Tool]:
        if not tools:
            return tools
        selection, forced = self.select(tools, items), settings.tool_choice
        return [
            tool
            for tool in tools
            if selection.shows(name := tool_name(tool)) or (name and name == forced)
        ]


def tool_name(tool: Tool) -> str | None:
    """The name of a function tool; None for hosted tools."""
    return tool.name if isinstance(tool, FunctionTool) else None


def _definition(tool: Any) -> dict[str, Any]:
    """The definition of a function tool, as the model gets it."""
    schema = tool.params_json_schema
    return {"name": tool.name, "description": tool.description, "parameters": schema}


def transcript(items: str | Sequence[TResponseInputItem]) -> Transcript:
    """The turns of a conversation in the items of the SDK."""
    return Transcript.of(items) if isinstance(items, str) else transcript_of(items)
