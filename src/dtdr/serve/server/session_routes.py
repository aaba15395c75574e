"""Endpoints of sessions, which know the step that they are at."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from starlette.exceptions import HTTPException

from dtdr.data.run import CallLike
from dtdr.serve.server import schemas
from dtdr.serve.server.actions import rank
from dtdr.serve.server.asked import AskedStep, find_session, has_details, names_of, read_run
from dtdr.serve.server.endpoints import Call
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.schemas import CallMade
from dtdr.serve.server.served_session import ServedSession, Told

Result = TypeVar("Result")

_ATTEMPTS = 8
"""To tell a session of calls, where others tell it at the same moment."""


async def create_session(
    call: Call, asked: AskedStep, body: schemas.SessionRequest
) -> schemas.SessionResponse:
    """Open a session."""

    def read() -> ServedSession:
        run = asked.read() if has_details(asked.calls, asked.before) else None
        calls: Sequence[CallLike] = asked.history if run is None else run.calls
        before = () if run is None else run.before
        return ServedSession(asked.model, asked.query, calls, call.owner, before)

    session = await _read(call, asked.model, read)
    await call.service.sessions.open(session)
    return await _session_response(call, session, body.rank)


async def show_session(call: Call, asked: ServedSession) -> schemas.SessionResponse:
    """What a session knows."""
    return await _session_response(call, asked, None)


async def call_in_session(call: Call, body: schemas.CallRequest) -> schemas.SessionResponse:
    """Tell a session that tools were called."""
    key = body.idempotency_key or secrets.token_hex(8)
    for attempt in range(_ATTEMPTS):
        session = await find_session(call, may_lack_calls=not attempt)
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


async def delete_session(call: Call, asked: ServedSession) -> None:
    """Close a session."""
    await call.service.sessions.close(asked)


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
        ranking=None if selection is None else await rank(call, session, selection),
    )
