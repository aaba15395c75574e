"""Requests and responses of the mask endpoints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dtdr.integrations import anthropic, openai
from dtdr.integrations.policy import TOLERANCE
from dtdr.server.schemas import ModelName, Request, ToolName

Object = dict[str, Any]


class MaskPolicy(Request):
    """Which tools are shown, as ``dtdr.integrations.ToolPolicy``; without bounds, what suits."""

    top_k: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    coverage: Annotated[float | None, Field(gt=0, lt=1)] = None
    threshold: Annotated[float | None, Field(ge=0, lt=1)] = None
    token_budget: Annotated[int | None, Field(ge=1, le=1_000_000_000)] = None
    always_include: tuple[ToolName, ...] = ()
    sticky: Literal["none", "grow", "confidence"] = "none"
    tolerance: Annotated[float, Field(ge=0, le=1)] = TOLERANCE


class OpenAIBody(BaseModel):
    """Keywords of ``chat.completions.create`` (``messages``) or ``responses.create`` (``input``).

    Fields that are not named here are allowed, and not looked at.
    """

    model_config = ConfigDict(extra="allow")

    messages: list[Object] = []
    input: str | list[Object] = ""
    tools: list[Object] = []
    tool_choice: str | Object | None = None


class AnthropicBody(BaseModel):
    """Keywords of ``messages.create``; fields that are not named here are not looked at."""

    model_config = ConfigDict(extra="allow")

    messages: list[Object]
    tools: list[Object] = []
    tool_choice: Object | None = None


class OpenAIMaskRequest(Request):
    """A request to OpenAI, or to a server with the same API, to be masked."""

    request: OpenAIBody
    form: openai.Form = "allowed-tools"
    policy: MaskPolicy = MaskPolicy()
    model: ModelName = None


class AnthropicMaskRequest(Request):
    """A request to Anthropic to be masked."""

    request: AnthropicBody
    form: anthropic.Form = "deferred"
    policy: MaskPolicy = MaskPolicy()
    model: ModelName = None


class MaskResponse(BaseModel):
    """What to change in the request: ``{**request, **changes}``."""

    changes: Annotated[Object, Field(description="Fields of the request that are others now.")]
    shown: list[str]
    hidden: list[str]
    reasons: Annotated[
        dict[str, str], Field(description="Why each tool is shown: ranked, called, unknown, …")
    ]
    failure: Annotated[
        str, Field(description="Why every tool is shown; empty where ranking did not fail.")
    ]
    model: str
    generation: int
