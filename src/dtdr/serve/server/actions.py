"""What a model is asked at a step, told by the request as a whole or by a session; sessions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from math import isfinite

import msgspec
from starlette.exceptions import HTTPException

from dtdr.errors import ModelError
from dtdr.predict.session import Session
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import Selection
from dtdr.serve.server import schemas
from dtdr.serve.server.asked import (
    Asked,
    AskedStep,
    find_session,
    has_details,
    names_of,
    read_run,
)
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.schemas import CallMade
from dtdr.serve.server.served_session import ServedSession, Told
from dtdr.serve.server.service import Call
from dtdr.serve.server.snapshots import Snapshot

_ATTEMPTS = 8
"""To tell a session of calls, where others tell it at the same moment."""


async def rank(call: Call, asked: Asked, body: schemas.Selection) -> schemas.RankResponse:
    """Rank the tools for the next step."""
    service, model, history = call.service, asked.model, asked.history

    def answer(snapshot: Snapshot, ranking: Ranking) -> schemas.RankResponse:
        return rank_response(model, snapshot, history, ranking, body)

    with service.tracing.ranking(model.name, model.current.retriever.name) as span:
        started = time.perf_counter()
        response = await asked.rank(answer)
        seconds = time.perf_counter() - started
        service.metrics.count_ranking(model.name, seconds, familiar=response.familiar)
        service.tracing.note_ranking(span, asked.query, len(history), response)
    return response


async def rank_batch(call: Call, body: schemas.BatchRequest) -> schemas.BatchResponse:
    """Rank many steps with one model; a query that occurs often is encoded once."""
    service = call.service
    model = service.models.find(body.model)
    limit = service.settings.limits.batch
    if len(body.steps) > limit:
        raise HTTPException(422, f"the batch has {len(body.steps)} steps; the limit is {limit}")
    for step in body.steps:
        service.check_step(step.query, step.history, step.before)
    call.log(model.name, steps=len(body.steps))
    snapshot = model.current

    def answer() -> list[schemas.RankResponse]:
        rankings = snapshot.retriever.rank_batch(
            [read_run(step.query, step.history, step.before) for step in body.steps]
        )
        return [
            rank_response(model, snapshot, names_of(step.history), ranking, body)
            for step, ranking in zip(body.steps, rankings, strict=True)
        ]

    started = time.perf_counter()
    responses = await snapshot.run(answer)
    seconds = (time.perf_counter() - started) / len(responses)
    for response in responses:
        service.metrics.count_ranking(model.name, seconds, familiar=response.familiar)
    return schemas.BatchResponse(rankings=responses)


async def explain(
    call: Call, asked: AskedStep, body: schemas.ExplainRequest
) -> schemas.ExplainResponse:
    """Say why a tool has its probability: what sets it apart from the next best."""

    def answer(snapshot: Snapshot, session: Session) -> schemas.ExplainResponse:
        return schemas.ExplainResponse(
            model=asked.model.name,
            generation=snapshot.generation,
            explanation=session.rank().explain(body.tool, against=body.against),
        )

    return await asked.ask(answer)


async def search(call: Call, asked: Asked, body: schemas.SearchBounds) -> schemas.SearchResponse:
    """Answer an agent's search for tools: by its words, and by what comes next in its run."""
    call.service.check_step(body.text, ())
    model, history = asked.model, asked.history

    def answer(snapshot: Snapshot, session: Session | None = None) -> schemas.SearchResponse:
        find = snapshot.retriever.search if session is None else session.search
        tools = find(body.text, k=body.top_k, among=body.among)
        return schemas.SearchResponse(
            model=model.name,
            generation=snapshot.generation,
            tools=[schemas.FoundTool(tool=tool, score=round(score, 6)) for tool, score in tools],
            unknown_tools=_unknown(snapshot, history),
        )

    with call.service.metrics.search_seconds.labels(model.name).time():
        if isinstance(body, schemas.SearchRequest) and body.query is None:
            return await model.current.run(answer, model.current)
        return await asked.ask(answer)


async def predict_calls(
    call: Call, asked: Asked, body: schemas.CallBounds
) -> schemas.CallsResponse:
    """Predict the next calls with their arguments, and where each argument comes from."""
    model, history, tool = asked.model, asked.history, body.tool
    retriever = model.current.retriever
    _require(model, retriever.arguments_, "knows no arguments", "arguments")
    if tool is not None and retriever.index(tool) < 0:
        raise HTTPException(
            422, f"tool: is not known to model {model.name!r}; see /v1/models/{model.name}"
        )

    def answer(snapshot: Snapshot, session: Session) -> schemas.CallsResponse:
        calls = session.next_calls(body.top_k) if tool is None else [session.fill(tool)]
        return schemas.CallsResponse(
            model=model.name,
            generation=snapshot.generation,
            calls=[msgspec.convert(item.to_dict(), schemas.PredictedCall) for item in calls],
            unknown_tools=_unknown(snapshot, history),
        )

    metrics = call.service.metrics
    with metrics.call_seconds.labels(model.name).time():
        response = await asked.ask(answer)
    for item in response.calls:
        metrics.calls.labels(model.name, "no" if item.unknown else "yes").inc()
    return response


async def predict_plans(
    call: Call, asked: Asked, body: schemas.PlanBounds
) -> schemas.PlansResponse:
    """Predict whole plans, or what is left to do after the calls of the history."""
    model, history = asked.model, asked.history
    _require(model, model.current.retriever.plans_, "knows no whole plans", "plans")

    def answer(snapshot: Snapshot, session: Session) -> schemas.PlansResponse:
        # Written here: a plan fills its arguments when they are looked at first.
        plans = [plan.to_dict() for plan in session.plans(body.top_k)]
        return schemas.PlansResponse(
            model=model.name,
            generation=snapshot.generation,
            plans=[msgspec.convert(plan, schemas.PredictedPlan) for plan in plans],
            unknown_tools=_unknown(snapshot, history),
        )

    with call.service.metrics.plan_seconds.labels(model.name).time():
        return await asked.ask(answer)


async def create_session(
    call: Call, asked: AskedStep, body: schemas.SessionRequest
) -> schemas.SessionResponse:
    """Open a session."""
    start = partial(ServedSession, asked.model, asked.query, owner=call.owner)

    def read() -> ServedSession:
        run = asked.read()
        return start(run.calls, before=run.before)

    if has_details(asked.calls, asked.before):
        session = await asked.model.current.run(read)
    else:
        session = start(asked.history)
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
        if has_details(body.tools):
            told = await session.model.current.run(_read_calls, session, body.tools, key)
        else:
            told = Told.of(names_of(body.tools), key)
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


def _read_calls(session: ServedSession, tools: Sequence[CallMade | str], key: str) -> Told:
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


def _require(model: ServedModel, learned: object | None, lack: str, option: str) -> None:
    """Refuse what a model was not fitted for.

    Raises:
        HTTPException: nothing was learned.
    """
    if learned is None:
        raise HTTPException(
            409,
            f"model {model.name!r} {lack}; fit it again with dtdr fit, without --no-{option}, and "
            "reload it",
        )


def _unknown(snapshot: Snapshot, history: Sequence[str]) -> list[str]:
    """Names in a history that the model never saw, each once."""
    index = snapshot.retriever.index
    return list(dict.fromkeys(name for name in history if index(name) < 0))


def rank_response(
    model: ServedModel,
    snapshot: Snapshot,
    history: Sequence[str],
    ranking: Ranking,
    selection: schemas.Selection,
) -> schemas.RankResponse:
    """A ranking as it is sent; probabilities are those over all tools that can be called.

    Raises:
        ModelError: the model gives no probabilities.
        InputError: the model is not calibrated for what was selected.
    """
    offered = selection.offered
    ranking = ranking.among(None if offered is None else frozenset(offered))
    confidence = ranking.confidence
    if not isfinite(confidence):
        raise ModelError(f"model {model.name!r} gives probabilities that are not numbers")
    return schemas.RankResponse(
        model=model.name,
        generation=snapshot.generation,
        tools=[
            schemas.RankedTool(tool=tool, probability=round(float(probability), 6))
            for tool, probability in ranking.top(_size(ranking, selection))
        ],
        confidence=round(confidence, 6),
        familiar=bool(ranking.is_familiar),
        none_of_these=bool(ranking.is_none_of_these),
        unknown_tools=_unknown(snapshot, history),
    )


def _size(ranking: Ranking, selection: schemas.Selection) -> int:
    """How many of the best tools a selection keeps, at least one.

    Raises:
        InputError: the model is not calibrated for what was asked.
    """
    names = (field.name for field in fields(Selection))
    bounds = {name: getattr(selection, name) for name in names}
    if bounds["threshold"] is bounds["coverage"] is bounds["token_budget"] is None:
        return selection.top_k or schemas.DEFAULT_TOP_K
    return len(Selection(**bounds).positions(ranking))
