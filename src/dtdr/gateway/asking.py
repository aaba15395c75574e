"""Questions of a server to the client: sampling, elicitation and roots, in both protocol eras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from dtdr.gateway.clients import Context
from dtdr.gateway.link import RawResult
from dtdr.gateway.listener import InputAnswer

MAX_ROUNDS = 10
"""How often one call may ask for input before it is given up; the SDK's clients do the same."""


async def ask(context: Context, request: types.ServerRequest) -> InputAnswer:
    """Put a server's question to the client whose request is being worked on."""
    if not context.session.can_send_request:
        return types.ErrorData(
            code=types.INVALID_REQUEST,
            message="this client takes no questions from servers on its connection",
        )
    answer: type[Any]
    if isinstance(request, types.CreateMessageRequest):
        wants_tools = request.params.tools is not None or request.params.tool_choice is not None
        answer = types.CreateMessageResultWithTools if wants_tools else types.CreateMessageResult
    elif isinstance(request, types.ElicitRequest):
        answer = types.ElicitResult
    elif isinstance(request, types.ListRootsRequest):
        answer = types.ListRootsResult
    else:
        return types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")
    try:
        found: InputAnswer = await context.session.send_request(
            request,
            answer,
            metadata=ServerMessageMetadata(related_request_id=context.request_id),
        )
    except MCPError as error:
        return error.error
    return found


async def resolved(
    context: Context, result: RawResult, again: Callable[[Mapping[str, Any]], Awaitable[RawResult]]
) -> RawResult:
    """The final result where a 2026-07-28 server answers a call with questions.

    For clients of the handshake era, which know questions only as requests of their own.

    Args:
        context: the client's request.
        result: the server's first answer.
        again: sends the request again with the given parameters added.

    Raises:
        MCPError: the client refused, or the server never stops asking.
    """
    for _ in range(MAX_ROUNDS):
        if result.get("resultType") != "input_required":
            return result
        try:
            interim = types.InputRequiredResult.model_validate(result, by_name=False)
        except ValidationError as error:
            raise MCPError(types.INTERNAL_ERROR, "the server asked in a way not known") from error
        added: dict[str, Any] = {}
        if interim.request_state is not None:
            added["requestState"] = interim.request_state
        answers: dict[str, Any] = {}
        for key, request in (interim.input_requests or {}).items():
            answer = await ask(context, request)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        if answers:
            added["inputResponses"] = answers
        result = await again(added)
    raise MCPError(types.INTERNAL_ERROR, f"the server asked for input more than {MAX_ROUNDS} times")
