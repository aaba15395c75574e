"""Endpoints of sessions, which know the step that they are at."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from starlette.exceptions import HTTPException

from dtdr.run import CallLike
from dtdr.server import schemas
from dtdr.server.endpoints import Call
from dtdr.server.served_session import ServedSession
from dtdr.server.service import call_record, names_of
from dtdr.server.step_routes import read_step

_NO_SELECTION = schemas.Selection()
_NO_BOUNDS = schemas.CallBounds()
_NO_PLAN_BOUNDS = schemas.PlanBounds()

_ID_LENGTH = 64
_ATTEMPTS = 8
"""To tell a session of calls, where others tell it at the same moment."""


async def create_session(call: Call, body: schemas.SessionRequest) -> schemas.SessionResponse:
    """Open a session."""
    model, history, run = await read_step(call, body)
    calls: Sequence[CallLike] = history if run is None else run.calls
    before = () if run is None else run.before
    session = await call.service.sessions.open(model, body.query, calls, call.owner, before)
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
        run = await call.service.read_run(
            session.query, body.tools, taken=session.ids, first=session.next_number
        )
        calls: Sequence[CallLike] = names_of(body.tools) if run is None else run.calls
        if await call.service.sessions.call(session, calls, key, version):
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
    return await _rank_session(call, await _session(call), body)


async def delete_session(call: Call) -> None:
    """Close a session."""
    await call.service.sessions.close(await _session(call))


async def search_session(call: Call, body: schemas.SearchBounds) -> schemas.SearchResponse:
    """Answer an agent's search for tools in a session."""
    session = await _session(call)
    call.service.check_query(body.text)
    return await call.service.search(
        session.model,
        session.history,
        lambda: session.search(body.text, body.top_k, body.among),
    )


async def judge_in_session(call: Call, body: schemas.SurpriseBounds) -> schemas.SurpriseResponse:
    """Say how odd a call is at this step of a session."""
    session = await _session(call)
    judged = call_record(body.call)
    return await call.service.judge(session.model, lambda: session.surprise(judged))


async def predict_session(
    call: Call, body: schemas.CallBounds = _NO_BOUNDS
) -> schemas.CallsResponse:
    """Predict the next calls of a session with their arguments."""
    session = await _session(call)
    return await call.service.predict(
        session.model,
        session.history,
        body,
        lambda: session.predict(body.top_k, body.tool),
    )


async def plan_session(
    call: Call, body: schemas.PlanBounds = _NO_PLAN_BOUNDS
) -> schemas.PlansResponse:
    """Predict what is left to do in a session."""
    session = await _session(call)
    return await call.service.predict_plans(
        session.model, session.history, lambda: session.predict_plans(body.top_k)
    )


async def _session(call: Call, *, may_lack_calls: bool = False) -> ServedSession:
    identifier = call.parameters["session"]
    if len(identifier) > _ID_LENGTH:
        raise HTTPException(422, f"session: expected at most {_ID_LENGTH} characters")
    session = await call.service.sessions.find(
        identifier, call.owner, may_lack_calls=may_lack_calls
    )
    call.log(session.model.name)
    return session


async def _rank_session(
    call: Call, session: ServedSession, selection: schemas.Selection
) -> schemas.RankResponse:
    return await call.service.rank(
        session.model, session.query, session.history, selection, session.rank()
    )


async def _session_response(
    call: Call, session: ServedSession, selection: schemas.Selection | None
) -> schemas.SessionResponse:
    return schemas.SessionResponse(
        session=session.id,
        model=session.model.name,
        history=session.history,
        expires_in=call.service.settings.limits.session_seconds,
        ranking=None if selection is None else await _rank_session(call, session, selection),
    )
