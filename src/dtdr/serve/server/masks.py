"""``/v1/mask/openai`` and ``/v1/mask/anthropic``: a request in, its changes out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field
from starlette.exceptions import HTTPException

from dtdr.agents import ToolMask, ToolPolicy, anthropic, openai
from dtdr.agents.policy import TOLERANCE
from dtdr.rankers.selection import AnthropicForm, OpenAIForm
from dtdr.serve.server.schemas import (
    ModelAnswer,
    ModelName,
    Object,
    RequestBody,
    SelectionBounds,
    ToolName,
    says,
)
from dtdr.serve.server.service import RequestContext


class MaskPolicy(SelectionBounds, kw_only=True):
    """Which tools are shown; see ``dtdr.agents.ToolPolicy``."""

    always_include: tuple[ToolName, ...] = ()
    sticky: Literal["none", "grow", "confidence"] = "none"
    tolerance: Annotated[float, Meta(ge=0, le=1)] = TOLERANCE


class MaskRequest(RequestBody, kw_only=True):
    """Base of requests for a mask."""

    policy: MaskPolicy = field(default_factory=MaskPolicy)
    model: ModelName = None


class OpenAIMaskRequest(MaskRequest, kw_only=True):
    """A request to OpenAI, or to a server with its API."""

    request: Annotated[
        Object, says("Keywords of chat.completions.create or responses.create; others may follow.")
    ]
    form: Annotated[
        OpenAIForm | None,
        says("Null: allowed-tools, or filtered for more than 128 tools, which OpenAI refuses."),
    ] = None


class AnthropicMaskRequest(MaskRequest, kw_only=True):
    """A request to Anthropic."""

    request: Annotated[Object, says("Keywords of messages.create; others may follow.")]
    form: Annotated[AnthropicForm | None, says("Null: deferred.")] = None


class MaskResponse(ModelAnswer, kw_only=True):
    """The changes of a request: ``{**request, **changes}``."""

    changes: Annotated[Object, says("Fields of the request with new values.")]
    shown: list[str]
    hidden: list[str]
    reasons: Annotated[dict[str, str], says("Why each is shown: ranked, called, unknown, …")]
    failure: Annotated[str, says("Why every tool is shown; empty if ranking did not fail.")]


async def mask_openai(context: RequestContext, body: OpenAIMaskRequest) -> MaskResponse:
    """Mask a request to OpenAI: show the tools that the next step needs."""
    return await _mask(context, body, openai)


async def mask_anthropic(context: RequestContext, body: AnthropicMaskRequest) -> MaskResponse:
    """Mask a request to Anthropic: show the tools that the next step needs."""
    return await _mask(context, body, anthropic)


async def _mask(
    context: RequestContext, body: OpenAIMaskRequest | AnthropicMaskRequest, provider: Any
) -> MaskResponse:
    service = context.service
    model = service.models.find(body.model)
    request = body.request
    messages, tools = request.get("messages") or [], request.get("tools") or []
    if not messages and isinstance(request.get("input"), list):
        messages = request["input"]
    limits = service.settings.limits
    for items, limit, what in (
        (tools, limits.tools, "tools"),
        # An answer and its tool results are two messages and more.
        (messages, 4 * limits.history, "messages"),
    ):
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise HTTPException(422, f"request.{what}: expected a list of objects")
        if len(items) > limit:
            raise HTTPException(422, f"{len(items)} {what} were sent; the limit is {limit}")
    context.log(model.name, tools=len(tools), messages=len(messages))
    snapshot = model.current

    def answer() -> MaskResponse:
        mask = ToolMask(snapshot.model, ToolPolicy(**msgspec.structs.asdict(body.policy)))
        try:
            form = body.form or provider.default_form(request)
            selection, masked = provider.select_and_mask(request, mask, form)
            shown, hidden = provider.count_definitions(request, selection, form)
        except (TypeError, AttributeError, KeyError, IndexError) as error:
            raise HTTPException(
                422, f"the request does not fit the provider's API ({type(error).__name__})"
            ) from error
        service.metrics.shown_tokens.labels(model.name).inc(shown)
        service.metrics.hidden_tokens.labels(model.name).inc(hidden)
        return MaskResponse(
            changes={key: value for key, value in masked.items() if request.get(key) != value},
            shown=list(selection.shown),
            hidden=list(selection.hidden),
            reasons=dict(selection.reasons),
            failure=selection.failure,
            **snapshot.identity,
        )

    response = await snapshot.run(answer)
    service.metrics.rankings.labels(model.name).inc()
    return response
