"""``/v1/mask/openai`` and ``/v1/mask/anthropic``: a request in, what to change in it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from dtdr.integrations import ToolMask, ToolPolicy, ToolSelection, anthropic, openai
from dtdr.retrievers.base import Retriever
from dtdr.server.answers import RefusedError
from dtdr.server.mask_schemas import (
    AnthropicMaskRequest,
    MaskPolicy,
    MaskResponse,
    OpenAIMaskRequest,
)
from dtdr.server.state import State, reply, state_of

router = APIRouter(prefix="/v1/mask", tags=["masks"])


@router.post("/openai", response_model=MaskResponse)
async def mask_openai(request: Request, given: OpenAIMaskRequest) -> Response:
    """Show an OpenAI model the tools that the next step needs."""
    body = given.request.model_dump(exclude_unset=True)
    entered = body.get("messages", body.get("input"))
    return await _answer(request, given, body, entered if isinstance(entered, list) else [])


@router.post("/anthropic", response_model=MaskResponse)
async def mask_anthropic(request: Request, given: AnthropicMaskRequest) -> Response:
    """Show a Claude model the tools that the next step needs."""
    body = given.request.model_dump(exclude_unset=True)
    return await _answer(request, given, body, body["messages"])


async def _answer(
    request: Request,
    given: OpenAIMaskRequest | AnthropicMaskRequest,
    body: dict[str, Any],
    messages: Sequence[object],
) -> Response:
    state = state_of(request)
    model = state.shelf.find(given.model)
    tools = body.get("tools", [])
    _check(state, tools, messages)
    state.log_fields(request, model, tools=len(tools), messages=len(messages))
    snapshot = model.current
    # A sticky or deferred mask ranks every step of the conversation: too long for the event loop.
    changed, selection = await to_thread.run_sync(
        _masked, given, body, snapshot.retriever, given.policy
    )
    state.metrics.rankings.labels(model.name).inc()
    answer = {
        "changes": {key: value for key, value in changed.items() if body.get(key) != value},
        "shown": selection.shown,
        "hidden": selection.hidden,
        "reasons": dict(selection.reasons),
        "failure": selection.failure,
        "model": model.name,
        "generation": snapshot.generation,
    }
    return reply(answer)


def _check(state: State, tools: Sequence[object], messages: Sequence[object]) -> None:
    limits = state.settings.limits
    if len(tools) > limits.tools:
        raise RefusedError(422, f"{len(tools)} tools were sent; the limit is {limits.tools}")
    # An answer and its tool results are two messages and more.
    if len(messages) > 4 * limits.history:
        raise RefusedError(
            422, f"{len(messages)} messages were sent; the limit is {4 * limits.history}"
        )


def _masked(
    given: OpenAIMaskRequest | AnthropicMaskRequest,
    body: dict[str, Any],
    retriever: Retriever,
    policy: MaskPolicy,
) -> tuple[dict[str, Any], ToolSelection]:
    mask = ToolMask(retriever, ToolPolicy(**policy.model_dump()))
    try:
        if isinstance(given, OpenAIMaskRequest):
            selection = openai.select(body, mask)
            if given.form == "additional-tools":
                return openai.masked(body, mask, given.form), selection
            return openai.apply(body, selection, given.form), selection
        selection = anthropic.select(body, mask)
        if given.form == "deferred":
            return anthropic.masked(body, mask, "deferred"), selection
        return anthropic.apply(body, selection, given.form), selection
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        raise RefusedError(
            422, f"the request has not the shape of the provider's API ({type(error).__name__})"
        ) from error
