"""``/v1/mask/openai`` and ``/v1/mask/anthropic``: a request in, what to change in it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.exceptions import HTTPException

from dtdr.integrations import ToolMask, ToolPolicy, ToolSelection, anthropic, openai
from dtdr.integrations.requests import count_definitions
from dtdr.retrievers.base import Retriever
from dtdr.server import schemas
from dtdr.server.endpoints import Call, decode_any


async def mask_openai(call: Call, body: schemas.OpenAIMaskRequest) -> schemas.MaskResponse:
    """Show an OpenAI model the tools that the next step needs."""
    return await _mask(call, body)


async def mask_anthropic(call: Call, body: schemas.AnthropicMaskRequest) -> schemas.MaskResponse:
    """Show a Claude model the tools that the next step needs."""
    return await _mask(call, body)


async def _mask(
    call: Call, body: schemas.OpenAIMaskRequest | schemas.AnthropicMaskRequest
) -> schemas.MaskResponse:
    # As it was sent, with the fields that the body's type does not name.
    request: dict[str, Any] = decode_any(call.content)["request"]
    service = call.service
    model = service.models.find(body.model)
    tools = request.get("tools", [])
    messages = request.get("messages", request.get("input", ""))
    messages = messages if isinstance(messages, list) else []
    _check(call, tools, messages)
    call.log(model.name, tools=len(tools), messages=len(messages))
    snapshot = model.current
    # A sticky or deferred mask ranks every step of the conversation: too long for the event loop.
    masked, selection, tokens = await snapshot.run_in_thread(
        _apply, body, request, snapshot.retriever
    )
    service.metrics.rankings.labels(model.name).inc()
    service.metrics.shown_tokens.labels(model.name).inc(tokens[0])
    service.metrics.hidden_tokens.labels(model.name).inc(tokens[1])
    return schemas.MaskResponse(
        changes={key: value for key, value in masked.items() if request.get(key) != value},
        shown=list(selection.shown),
        hidden=list(selection.hidden),
        reasons=dict(selection.reasons),
        failure=selection.failure,
        model=model.name,
        generation=snapshot.generation,
    )


def _check(call: Call, tools: Sequence[object], messages: Sequence[object]) -> None:
    limits = call.service.settings.limits
    if len(tools) > limits.tools:
        raise HTTPException(422, f"{len(tools)} tools were sent; the limit is {limits.tools}")
    # An answer and its tool results are two messages and more.
    if len(messages) > 4 * limits.history:
        raise HTTPException(
            422, f"{len(messages)} messages were sent; the limit is {4 * limits.history}"
        )


def _apply(
    body: schemas.OpenAIMaskRequest | schemas.AnthropicMaskRequest,
    request: dict[str, Any],
    retriever: Retriever,
) -> tuple[dict[str, Any], ToolSelection, tuple[int, int]]:
    """What to send, what it shows, and the tokens of the definitions in it and left out of it."""
    mask = ToolMask(retriever, ToolPolicy(**msgspec.structs.asdict(body.policy)))
    try:
        if isinstance(body, schemas.OpenAIMaskRequest):
            selection = openai.select(request, mask)
            if body.form == "additional-tools":
                masked = openai.mask_request(request, mask, body.form)
            else:
                masked = openai.apply(request, selection, body.form)
            return masked, selection, count_definitions(request, masked, openai.tool_name)
        selection = anthropic.select(request, mask)
        if body.form == "deferred":
            masked = anthropic.mask_request(request, mask, "deferred")
        else:
            masked = anthropic.apply(request, selection, body.form)
        return masked, selection, count_definitions(request, masked, anthropic.tool_name)
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        raise HTTPException(
            422, f"the request has not the shape of the provider's API ({type(error).__name__})"
        ) from error
