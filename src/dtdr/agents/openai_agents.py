"""OpenAI Agents SDK: a model that sees only the tools for its next step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from dtdr.agents import openai
from dtdr.agents.mask import ToolMask
from dtdr.agents.policy import ToolSelection
from dtdr.agents.requests import Toolbox, transcript_of
from dtdr.agents.transcript import Transcript
from dtdr.errors import MissingExtraError, check_choice

try:
    from agents import FunctionTool, Model, OpenAIChatCompletionsModel, OpenAIResponsesModel
except ImportError as error:
    raise MissingExtraError(
        "the OpenAI Agents integration", "openai-agents", "openai-agents"
    ) from error

if TYPE_CHECKING:
    from agents import ModelResponse, ModelSettings, Tool
    from agents.items import TResponseInputItem, TResponseStreamEvent
    from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest


Form = Literal["filtered", "allowed-tools"]


class ToolMaskModel(Model):
    """Shows any model of the SDK only the tools for its next step.

    It reads the items that the runner sends, so one object serves any number of agents and runs.
    Hosted tools and handoffs stay. It cannot read a conversation that the server stores
    (``previous_response_id``, ``conversation_id``), so all tools stay then.

    Args:
        model: the model to show tools to, or its name.
        mask: model and policy.
        form: ``filtered`` leaves tools out. ``allowed-tools``, for models of OpenAI, keeps all, and
            with them the prompt cache, and puts the shown ones into ``tool_choice``; agents with
            hosted tools or handoffs get ``filtered`` all the same. None takes ``allowed-tools`` for
            up to 128 tools with OpenAI's own API, else ``filtered``.

    Raises:
        InputError: an unknown form; at a model call, two tools that share a name.
    """

    def __init__(self, model: Model | str, mask: ToolMask, *, form: Form | None = None) -> None:
        check_choice("form", form or "filtered", get_args(Form))
        if isinstance(model, str):
            from agents import MultiProvider

            model = MultiProvider().get_model(model)
        self.model = model
        self.mask = mask
        self.form = form

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
        is_open = bool(keywords.get("handoffs", arguments[1:2] and arguments[1]))
        settings, shown = await asyncio.to_thread(
            self._apply, tools, input, model_settings, is_open
        )
        return await self.model.get_response(
            system_instructions, input, settings, shown, *arguments, **keywords
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
        is_open = bool(keywords.get("handoffs", arguments[1:2] and arguments[1]))
        settings, shown = await asyncio.to_thread(
            self._apply, tools, input, model_settings, is_open
        )
        async for event in self.model.stream_response(
            system_instructions, input, settings, shown, *arguments, **keywords
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

    def _apply(
        self,
        tools: list[Tool],
        items: str | list[TResponseInputItem],
        settings: ModelSettings,
        has_handoffs: bool,
    ) -> tuple[ModelSettings, list[Tool]]:
        """The settings and the tools of a model call."""
        if not tools:
            return settings, tools
        selection, forced = self.select(tools, items), settings.tool_choice
        form = self.form or openai.cheapest_form(len(tools), address=_address(self.model))
        names = list(map(tool_name, tools))
        if form == "filtered" or has_handoffs or None in names:
            return settings, [
                tool
                for tool, name in zip(tools, names, strict=True)
                if selection.shows(name) or (name and name == forced)
            ]
        if not selection.hidden or forced not in (None, "auto", "required"):
            return settings, tools
        choice = openai.allowed_tools(
            [{"type": "function", "function": {"name": name}} for name in names],
            selection,
            api="chat" if isinstance(self.model, OpenAIChatCompletionsModel) else "responses",
            choice=forced,
        )
        # The settings' own ``tool_choice`` takes no list; what is in the body replaces it.
        body = {**_body(settings), "tool_choice": choice}
        return replace(settings, extra_body=body), tools


def _body(settings: ModelSettings) -> dict[str, Any]:
    return dict(settings.extra_body) if isinstance(settings.extra_body, dict) else {}


def _address(model: Model) -> str:
    """URL of the API that a model asks; empty for models of other packages."""
    if not isinstance(model, (OpenAIChatCompletionsModel, OpenAIResponsesModel)):
        return ""
    return str(model._get_client().base_url)


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
