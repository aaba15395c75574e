"""LangChain and LangGraph: a middleware that shows an agent only the tools for its next step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from dtdr.agents import openai
from dtdr.agents.mask import ToolMask
from dtdr.agents.policy import ToolSelection
from dtdr.agents.requests import Toolbox, hint_text, transcript_of
from dtdr.agents.search import DESCRIPTION, SEARCH_TOOL, write_answer
from dtdr.errors import InputError, MissingExtraError, check_choice

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain.tools import BaseTool, ToolRuntime, tool
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.utils.function_calling import convert_to_openai_tool
except ImportError as error:
    raise MissingExtraError("the LangChain middleware", "langchain", "langchain") from error

if TYPE_CHECKING:
    from langchain.agents.middleware import ModelRequest, ModelResponse, ToolCallRequest
    from langchain_core.messages import BaseMessage
    from langgraph.types import Command

Form = Literal["filtered", "allowed-tools", "hint"]


class ToolMaskMiddleware(AgentMiddleware[Any, Any, Any]):
    """Shows the model of a LangChain agent only the tools for its next step.

    It reads the agent's messages at every model call, so one object serves any number of agents,
    threads and checkpoints.

    Args:
        mask: model and policy.
        form: ``filtered`` leaves tools out; the others keep all, and with them the prompt cache.
            ``allowed-tools``, for models of OpenAI, puts the shown ones into ``tool_choice``;
            ``hint`` names the preferred ones in a last message of this call. None takes
            ``allowed-tools`` for up to 128 tools with OpenAI's own API, else ``filtered``.
        api: which API of OpenAI the model uses, for ``allowed-tools``; None asks the model.
        search: give the agent a tool ``search_tools`` to search for hidden tools; what it finds is
            shown from then on.

    Raises:
        InputError: an unknown form; at a model call, two tools that share a name.
    """

    def __init__(
        self,
        mask: ToolMask,
        *,
        form: Form | None = None,
        api: openai.Api | None = None,
        search: bool = False,
    ) -> None:
        super().__init__()
        check_choice("form", form or "filtered", get_args(Form))
        check_choice("API", api or "chat", get_args(openai.Api))
        self.mask = mask
        self.form = form
        self.api = api
        self.tools = [_search_tool(mask)] if search else []

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Mask the tools of one model call."""
        return handler(self._mask_request(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Mask the tools of one model call, ranking in a thread."""
        return await handler(await asyncio.to_thread(self._mask_request, request))

    def select(self, tools: Sequence[Any], messages: Sequence[BaseMessage]) -> ToolSelection:
        """Which tools are shown after these messages.

        Raises:
            InputError: two tools share a name.
        """
        return _toolbox(tools).select(self.mask, lambda: transcript_of(messages))

    def _mask_request(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        if not request.tools:
            return request
        selection = self.select(request.tools, request.messages)
        address = _address(request.model)
        form = self.form or openai.cheapest_form(len(request.tools), address=address)
        if form == "filtered":
            shown = [tool for tool in request.tools if selection.shows(tool_name(tool))]
            return request.override(tools=shown)
        if form == "allowed-tools":
            is_responses = getattr(request.model, "use_responses_api", None) is True
            choice = openai.allowed_tools(
                [tool if isinstance(tool, dict) else _reference(tool) for tool in request.tools],
                selection,
                api=self.api or ("responses" if is_responses else "chat"),
                choice=request.tool_choice,
            )
            return request.override(tool_choice=choice) if selection.hidden else request
        text = hint_text(selection)
        if not text:
            return request
        # Some providers take a system message at the start only.
        return request.override(messages=[*request.messages, HumanMessage(text)])


def _address(model: object) -> str:
    """URL of the API that a chat model asks through OpenAI's client; empty for other models."""
    client = getattr(model, "root_client", None) or getattr(model, "root_async_client", None)
    return str(getattr(client, "base_url", ""))


def _search_tool(mask: ToolMask) -> BaseTool:
    @tool(SEARCH_TOOL, description=DESCRIPTION)
    def search_tools(query: str, runtime: ToolRuntime) -> str:
        available, messages = runtime.tools, runtime.state["messages"]
        try:
            matches = _toolbox(available).search(
                mask, {"query": query}, lambda: transcript_of(messages)
            )
        except InputError as error:  # the model's mistake, which it can correct
            return str(error)
        described = [
            {"name": item.name, "description": item.description, "parameters": item.args}
            for item in matches
        ]
        answer = write_answer(described, len(available))
        return json.dumps(answer, ensure_ascii=False, default=str)

    return search_tools


def _reference(tool: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool_name(tool)}}


class GuardedToolMaskMiddleware(ToolMaskMiddleware):
    """As ``ToolMaskMiddleware``; it also answers calls of hidden tools with an error.

    It derives what was hidden from the messages before the call.
    """

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Execute a call, unless its tool is hidden."""
        return self._refuse(request) or handler(request)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Execute a call, unless its tool is hidden."""
        return await asyncio.to_thread(self._refuse, request) or await handler(request)

    def _refuse(self, request: ToolCallRequest) -> ToolMessage | None:
        call, before = request.tool_call, []
        for message in request.state["messages"]:
            if any(item["id"] == call["id"] for item in getattr(message, "tool_calls", ())):
                break
            before.append(message)
        refusal = self.select(request.runtime.tools, before).refusal(call["name"])
        if refusal is None:
            return None
        return ToolMessage(
            refusal, name=call["name"], tool_call_id=call["id"] or "", status="error"
        )


def tool_name(tool: object) -> str | None:
    """The name of a LangChain tool, a function, or a definition; None for a provider's own."""
    if isinstance(tool, dict):
        return openai.tool_name(tool)
    name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
    return name if isinstance(name, str) and name else None


def _toolbox(tools: Sequence[Any]) -> Toolbox[Any]:
    def definition(tool: Any) -> dict[str, Any]:
        return tool if isinstance(tool, dict) else convert_to_openai_tool(tool)

    return Toolbox(tools, tool_name, definition)
