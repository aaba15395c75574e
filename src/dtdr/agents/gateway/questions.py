"""Requests between protocol versions: parameters, and questions of servers to clients.

Questions are sampling, elicitation and roots. Before 2026-07-28, a server sends them as requests
while it works on a call. Since then, it answers the call with its questions, and the client calls
again with the answers.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, ValidationError

from dtdr.agents.gateway.clients import Context

MAX_ROUNDS = 10
"""How often one call may ask for input before it fails; the SDK's clients do the same."""

ANSWER_SECONDS = 600.0
"""How long a server's call stays open for the answer of a person."""

MAX_OPEN_CALLS = 1_000
"""Calls of one client that wait for its answers."""

ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that 2026-07-28 lets a server answer with questions."""

_OWN_META = ("io.modelcontextprotocol/", "dtdr/", "progressToken")

_QUESTION = "question"
"""The key of the one question that a client is asked at a time."""

RawResult = dict[str, Any]

InputAnswer = types.InputResponse | types.ErrorData
"""A client's answer to a server's question."""

_Question = tuple[types.ServerRequest, asyncio.Future[InputAnswer]]
"""A question of a server, and the future of its answer."""


async def ask(context: Context, request: types.ServerRequest) -> InputAnswer:
    """Ask a client of the handshake protocols, whose request is being worked on."""
    if not context.session.can_send_request:
        return refuse("this client takes no questions from servers on its connection")
    metadata = ServerMessageMetadata(related_request_id=context.request_id)
    try:
        result: InputAnswer = await context.session.send_request(
            request, _answer_type(request), metadata=metadata
        )
    except MCPError as error:
        return error.error
    return result


async def answer_inputs(
    context: Context, result: RawResult, again: Callable[[Mapping[str, Any]], Awaitable[RawResult]]
) -> RawResult:
    """The final result of a 2026-07-28 server that asks a client of the handshake protocols.

    ``again`` sends the call once more, with parameters added.
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
        for key, request in (interim.input_requests or {}).items():
            answer = await ask(context, request)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            added.setdefault("inputResponses", {})[key] = _to_json(answer)
        result = await again(added)
    raise MCPError(types.INTERNAL_ERROR, f"the server asked for input more than {MAX_ROUNDS} times")


class OpenCall:
    """A call of a 2026-07-28 client to a server of the handshake protocols, which may ask it.

    The server's call stays open while the client answers.

    Args:
        result: makes the call.
        waiting: the client's calls that wait for an answer, by the state that it sends back.
    """

    def __init__(
        self, result: Coroutine[Any, Any, RawResult], waiting: dict[str, OpenCall]
    ) -> None:
        self._waiting = waiting
        self._questions: asyncio.Queue[_Question | None] = asyncio.Queue()
        self._asked: _Question | None = None
        self._result = asyncio.get_running_loop().create_task(result)
        self._result.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[RawResult]) -> None:
        self._questions.put_nowait(None)  # no more of them
        if not task.cancelled():
            task.exception()  # seen, whether or not the client asks for the result

    async def ask(self, request: types.ServerRequest) -> InputAnswer:
        """The client's answer to a question of the server."""
        answered: asyncio.Future[InputAnswer] = asyncio.get_running_loop().create_future()
        self._questions.put_nowait((request, answered))
        return await answered

    def answer(self, sent: Mapping[str, Any]) -> OpenCall:
        """Take the client's answer to the question from its request."""
        self._timer.cancel()
        if self._asked is not None and not self._asked[1].done():  # or the server took it back
            request, answered = self._asked
            answer = (sent.get("inputResponses") or {}).get(_QUESTION)
            try:
                answered.set_result(_answer_type(request).model_validate(answer))
            except ValidationError:
                answered.set_result(refuse("no answer was given", types.INVALID_PARAMS))
        return self

    async def outcome(self) -> RawResult:
        """The server's result, or its next question in the form of 2026-07-28."""
        try:
            self._asked = await self._questions.get()
        except asyncio.CancelledError:
            self._result.cancel()
            raise
        if self._asked is None:
            return self._result.result()
        if len(self._waiting) >= MAX_OPEN_CALLS:
            self._result.cancel()
            raise MCPError(types.INTERNAL_ERROR, "too many calls wait for an answer")
        state = secrets.token_urlsafe()
        self._waiting[state] = self
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(ANSWER_SECONDS, self._give_up, state)
        return {
            "resultType": "input_required",
            "inputRequests": {_QUESTION: _to_json(self._asked[0])},
            "requestState": state,
        }

    def _give_up(self, state: str) -> None:
        self._waiting.pop(state, None)
        self._result.cancel()


def _answer_type(request: types.ServerRequest) -> type[Any]:
    if isinstance(request, types.CreateMessageRequest):
        wants_tools = request.params.tools is not None or request.params.tool_choice is not None
        return types.CreateMessageResultWithTools if wants_tools else types.CreateMessageResult
    return types.ElicitResult if isinstance(request, types.ElicitRequest) else types.ListRootsResult


def _to_json(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


def refuse(reason: str, code: int = types.INVALID_REQUEST) -> types.ErrorData:
    """An error as the answer to a question."""
    return types.ErrorData(code=code, message=reason)


def select_params(context: Context) -> dict[str, Any]:
    """A request's parameters without what is between the client and the gateway."""
    params = dict(context.params or {})
    meta = params.pop("_meta", None) or {}
    kept = {key: value for key, value in meta.items() if not key.startswith(_OWN_META)}
    return {**params, "_meta": kept} if kept else params
