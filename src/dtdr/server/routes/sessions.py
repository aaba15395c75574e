"""``/v1/sessions``: one query, encoded once, and the calls made for it."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Request, Response

from dtdr.server import schemas
from dtdr.server.sessions import ServedSession
from dtdr.server.state import State, owner_of, reply, state_of

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])

Identifier = Annotated[str, Path(min_length=1, max_length=64)]


@router.post("", status_code=201, response_model=schemas.SessionResponse)
async def create(request: Request, given: schemas.SessionRequest) -> Response:
    """Open a session."""
    state = state_of(request)
    model = state.shelf.find(given.model)
    state.check_query(given.query)
    state.check_history(given.history)
    state.log_fields(request, model, given.query, calls=len(given.history))
    session = state.sessions.open(model, given.query, given.history, owner_of(request))
    return await _response(state, session, given.rank, status=201)


@router.get("/{session}", response_model=schemas.SessionResponse)
async def show(request: Request, session: Identifier) -> Response:
    """What a session knows."""
    state = state_of(request)
    return await _response(state, state.sessions.find(session, owner_of(request)), None)


@router.post("/{session}/call", response_model=schemas.SessionResponse)
async def call(request: Request, session: Identifier, given: schemas.CallRequest) -> Response:
    """Tell a session that tools were called."""
    state = state_of(request)
    found = state.sessions.find(session, owner_of(request))
    state.sessions.call(found, given.tools)
    return await _response(state, found, given.rank)


@router.post("/{session}/rank", response_model=schemas.RankResponse)
async def rank(
    request: Request,
    session: Identifier,
    given: Annotated[schemas.Selection | None, Body()] = None,
) -> Response:
    """Rank the tools for the next step of a session."""
    state = state_of(request)
    found = state.sessions.find(session, owner_of(request))
    return reply(await _rank(state, found, given or schemas.Selection()))


@router.delete("/{session}", status_code=204)
async def delete(request: Request, session: Identifier) -> None:
    """Close a session."""
    state_of(request).sessions.close(session, owner_of(request))


async def _rank(
    state: State, session: ServedSession, selection: schemas.Selection
) -> dict[str, Any]:
    model = session.model
    with state.spans.ranking(model.name, model.current.retriever.name) as span:
        started = time.perf_counter()
        snapshot, ranking = await session.rank()
        state.count(model, ranking, time.perf_counter() - started)
        response = state.response(model, snapshot, session.history, ranking, selection)
        span.done(session.query, len(session.history), ranking, response["tools"])
    return response


async def _response(
    state: State,
    session: ServedSession,
    selection: schemas.Selection | None,
    *,
    status: int = 200,
) -> Response:
    body = {
        "session": session.id,
        "model": session.model.name,
        "history": session.history,
        "expires_in": state.settings.limits.session_seconds,
        "ranking": None if selection is None else await _rank(state, session, selection),
    }
    return reply(body, status)
