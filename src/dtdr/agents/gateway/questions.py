"""Requests between protocol versions: parameters, and questions of servers to clients.

Questions are sampling, elicitation and roots. Before 2026-07-28, a server sends them as requests
while it works on a call. Since then, it answers the call with its questions, and the client calls
again with the answers.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, ValidationError

from dtdr.agents.gateway.clients import Clients, Context, client_key

MAX_ROUNDS = 10
"""How often one call may ask for input before it fails; the SDK's clients do the same."""

ANSWER_SECONDS = 600.0
"""How long a server's call stays open for the answer of a person."""

MAX_OPEN_CALLS = 1_000
"""Calls of one server that wait for the answers of clients."""

ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that 2026-07-28 lets a server answer with questions."""

_OWN_META = ("io.modelcontextprotocol/", "dtdr/")

_QUESTION = "question"
"""The key of the one question that a client is asked at a time."""

RawResult = dict[str, Any]

InputAnswer = types.InputResponse | types.ErrorData
"""A client's answer to a server's question."""

Caller = tuple[Context, "OpenCall | None"]
"""A client's request that a server is working on, and its open call if it has one."""

OpenCalls = dict[tuple[str, Any], "OpenCall"]
"""Calls that wait for their client's answer to a question, by client and state."""

_Question = tuple[types.ServerRequest, asyncio.Future[InputAnswer]]
"""A question of a server, and the future of its answer."""


async def forward_question(
    clients: Clients, callers: Sequence[Caller], request: types.ServerRequest
) -> InputAnswer:
    """The answer to a server's question of the client whose call it is about."""
    waiting = {id(clients.of(context)): (context, call) for context, call in callers}
    if len(waiting) != 1:
        reason = "no client's call is" if not waiting else "calls of several clients are"
        return _refuse(f"the gateway cannot tell whom to ask: {reason} being worked on")
    ((context, call),) = waiting.values()
    return await (_ask(context, request) if call is None else call.ask(request))


async def _ask(context: Context, request: types.ServerRequest) -> InputAnswer:
    """Ask a client of the handshake protocols, whose request is being worked on."""
    if not context.session.can_send_request:
        return _refuse("this client takes no questions from servers on its connection")
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
            answer = await _ask(context, request)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            added.setdefault("inputResponses", {})[key] = _to_json(answer)
        result = await again(added)
    raise MCPError(types.INTERNAL_ERROR, f"the server asked for input more than {MAX_ROUNDS} times")


class OpenCall:
    """A call of a 2026-07-28 client to a server of the handshake protocols, which may ask it.

    The server's call stays open while the client answers.
    """

    def __init__(self, result: Coroutine[Any, Any, RawResult]) -> None:
        self._loop = asyncio.get_running_loop()
        self._questions: asyncio.Queue[_Question | None] = asyncio.Queue()
        self._asked: _Question | None = None
        self._given_up: asyncio.TimerHandle | None = None
        self._result = self._loop.create_task(result)
        self._result.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[RawResult]) -> None:
        self._questions.put_nowait(None)  # no more of them
        if not task.cancelled():
            task.exception()  # seen, whether or not the client asks for the result

    @staticmethod
    def resume(waiting: OpenCalls, context: Context, sent: Mapping[str, Any]) -> OpenCall | None:
        """The call whose question a request answers, if any."""
        call = waiting.pop((client_key(context), sent.get("requestState")), None)
        if call is None or call._given_up is None or call._asked is None:
            return None
        call._given_up.cancel()
        request, answered = call._asked
        responses = sent.get("inputResponses")
        answer = responses.get(_QUESTION) if isinstance(responses, Mapping) else None
        try:
            result = _answer_type(request).model_validate(answer)
        except ValidationError:
            result = _refuse("no answer was given", types.INVALID_PARAMS)
        if not answered.done():  # the server may have taken its question back
            answered.set_result(result)
        return call

    async def ask(self, request: types.ServerRequest) -> InputAnswer:
        """The client's answer to a question of the server."""
        answered: asyncio.Future[InputAnswer] = self._loop.create_future()
        self._questions.put_nowait((request, answered))
        return await answered

    async def outcome(self, waiting: OpenCalls, context: Context) -> RawResult:
        """The server's result, or its next question in the form of 2026-07-28."""
        try:
            self._asked = await self._questions.get()
        except asyncio.CancelledError:
            self._result.cancel()
            raise
        if self._asked is None:
            return self._result.result()
        if len(waiting) >= MAX_OPEN_CALLS:
            self._result.cancel()
            raise MCPError(types.INTERNAL_ERROR, "too many calls wait for an answer")
        state = secrets.token_urlsafe()
        key = client_key(context), state
        waiting[key] = self

        def give_up() -> None:
            waiting.pop(key, None)
            self._result.cancel()

        self._given_up = self._loop.call_later(ANSWER_SECONDS, give_up)
        return {
            "resultType": "input_required",
            "inputRequests": {_QUESTION: _to_json(self._asked[0])},
            "requestState": state,
        }


def _answer_type(request: types.ServerRequest) -> type[Any]:
    if isinstance(request, types.CreateMessageRequest):
        wants_tools = request.params.tools is not None or request.params.tool_choice is not None
        return types.CreateMessageResultWithTools if wants_tools else types.CreateMessageResult
    return types.ElicitResult if isinstance(request, types.ElicitRequest) else types.ListRootsResult


def _to_json(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


def _refuse(reason: str, code: int = types.INVALID_REQUEST) -> types.ErrorData:
    return types.ErrorData(code=code, message=reason)


def select_params(context: Context) -> dict[str, Any]:
    """A request's parameters without what is between the client and the gateway."""
    params = dict(context.params or {})
    meta = params.pop("_meta", None)
    kept = {
        key: value
        for key, value in (meta.items() if isinstance(meta, Mapping) else ())
        if not (key.startswith(_OWN_META) or key == "progressToken")
    }
    return {**params, "_meta": kept} if kept else params
