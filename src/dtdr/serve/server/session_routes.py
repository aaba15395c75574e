"""Endpoints of sessions, which know the step that they are at."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from starlette.exceptions import HTTPException

from dtdr.data.run import CallLike
from dtdr.serve.server import schemas
from dtdr.serve.server.asked import has_details, names_of, read_run
from dtdr.serve.server.endpoints import Call
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.schemas import CallMade
from dtdr.serve.server.served_session import ServedSession, Told
from dtdr.serve.server.step_routes import read_step

Result = TypeVar("Result")

_NO_SELECTION = schemas.Selection()
_NO_BOUNDS = schemas.CallBounds()
_NO_PLAN_BOUNDS = schemas.PlanBounds()

_ID_LENGTH = 64
_ATTEMPTS = 8
"""To tell a session of calls, where others tell it at the same moment."""


async def create_session(call: Call, body: schemas.SessionRequest) -> schemas.SessionResponse:
    """Open a session."""
    step = read_step(call, body)

    def read() -> ServedSession:
        run = step.read() if has_details(step.calls, step.before) else None
        calls: Sequence[CallLike] = step.history if run is None else run.calls
        before = () if run is None else run.before
        return ServedSession(step.model, step.query, calls, call.owner, before)

    session = await _read(call, step.model, read)
    await call.service.sessions.open(session)
    return await _session_response(call, session, body.rank)


async def show_session(call: Call) -> schemas.SessionResponse:
    """What a session knows."""
    return await _session_response(call, await _session(call), None)


async def call_in_session(call: Call, body: schemas.CallRequest) -> schemas.SessionResponse:
    """Tell a session that tools were called."""
    key = body.idempotency_key or secrets.token_hex(8)
    for attempt in range(_ATTEMPTS):
        session = await _session(call, may_lack_calls=not attempt)
        version = session.version
        if key in session.keys:
            break  # an earlier attempt was made, and its answer was lost
        told = await _read(call, session.model, partial(_read_calls, session, body.tools, key))
        if await call.service.sessions.call(session, told, version):
            break
    else:
        raise HTTPException(
            503,
            "others tell this session of calls at the same time; try again",
            {"retry-after": "1"},
        )
    return await _session_response(call, session, body.rank)


async def rank_session(call: Call, body: schemas.Selection = _NO_SELECTION) -> schemas.RankResponse:
    """Rank the tools for the next step of a session."""
    return await call.service.rank(await _session(call), body)


async def delete_session(call: Call) -> None:
    """Close a session."""
    await call.service.sessions.close(await _session(call))


async def search_session(call: Call, body: schemas.SearchBounds) -> schemas.SearchResponse:
    """Answer an agent's search for tools in a session."""
    session = await _session(call)
    call.service.check_step(body.text, ())
    return await call.service.search(session, body)


async def judge_in_session(call: Call, body: schemas.SurpriseBounds) -> schemas.SurpriseResponse:
    """Say how odd a call is at this step of a session."""
    return await call.service.judge(await _session(call), body.call)


async def predict_session(
    call: Call, body: schemas.CallBounds = _NO_BOUNDS
) -> schemas.CallsResponse:
    """Predict the next calls of a session with their arguments."""
    return await call.service.predict(await _session(call), body)


async def plan_session(
    call: Call, body: schemas.PlanBounds = _NO_PLAN_BOUNDS
) -> schemas.PlansResponse:
    """Predict what is left to do in a session."""
    return await call.service.predict_plans(await _session(call), body)


async def _session(call: Call, *, may_lack_calls: bool = False) -> ServedSession:
    identifier = call.parameters["session"]
    if len(identifier) > _ID_LENGTH:
        raise HTTPException(422, f"session: expected at most {_ID_LENGTH} characters")
    session = await call.service.sessions.find(
        identifier, call.owner, may_lack_calls=may_lack_calls
    )
    call.log(session.model.name)
    return session


async def _read(call: Call, model: ServedModel, read: Callable[[], Result]) -> Result:
    """What a request tells; a long one is read in a thread."""
    return read() if call.is_short else await model.current.run(read)


def _read_calls(session: ServedSession, tools: Sequence[CallMade | str], key: str) -> Told:
    if not has_details(tools):
        return Told.of(names_of(tools), key)
    run = read_run(session.query, tools, taken=session.ids, first=session.next_number)
    return Told.of(run.calls, key)


async def _session_response(
    call: Call, session: ServedSession, selection: schemas.Selection | None
) -> schemas.SessionResponse:
    return schemas.SessionResponse(
        session=session.id,
        model=session.model.name,
        history=session.history,
        expires_in=call.service.settings.limits.session_seconds,
        ranking=None if selection is None else await call.service.rank(session, selection),
    )
