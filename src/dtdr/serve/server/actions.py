"""What a model is asked at a step, told by a request as a whole or by a session; sessions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import fields
from math import isfinite
from typing import Any

from starlette.exceptions import HTTPException

from dtdr.errors import ModelError
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import Selection
from dtdr.serve.server import schemas
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.service import Call
from dtdr.serve.server.sessions import Session, find_session
from dtdr.serve.server.snapshots import Snapshot
from dtdr.serve.server.steps import Step, add_calls, are_names, names_of, read_run, unknown_names

_ATTEMPTS = 8
"""To add calls to a session, where others add some at the same moment."""


async def rank(call: Call, step: Step, body: schemas.Selection) -> schemas.RankResponse:
    """Rank the tools for the next step."""
    service, model = call.service, step.model

    def answer(snapshot: Snapshot) -> schemas.RankResponse:
        return rank_response(snapshot, step.history, step.rank(snapshot), body)

    with service.tracing.ranking(model.name, model.current.retriever.name) as span:
        started = time.perf_counter()
        response = await step.ask(answer, ranks=True)
        seconds = time.perf_counter() - started
        service.metrics.count_ranking(model.name, seconds, familiar=response.familiar)
        service.tracing.note_ranking(span, step.query, len(step.history), response)
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
            rank_response(snapshot, names_of(step.history), ranking, body)
            for step, ranking in zip(body.steps, rankings, strict=True)
        ]

    started = time.perf_counter()
    responses = await snapshot.run(answer)
    seconds = (time.perf_counter() - started) / len(responses)
    for response in responses:
        service.metrics.count_ranking(model.name, seconds, familiar=response.familiar)
    return schemas.BatchResponse(rankings=responses)


async def explain(call: Call, step: Step, body: schemas.ExplainRequest) -> schemas.ExplainResponse:
    """Say why a tool has its probability: what sets it apart from the next best."""

    def answer(snapshot: Snapshot) -> schemas.ExplainResponse:
        return schemas.ExplainResponse(
            model=snapshot.name,
            generation=snapshot.generation,
            explanation=step.rank(snapshot).explain(body.tool, against=body.against),
        )

    return await step.ask(answer)


async def search(call: Call, step: Step, body: schemas.SearchBounds) -> schemas.SearchResponse:
    """Answer an agent's search for tools: by its words, and by what comes next in its run."""
    call.service.check_step(body.text, ())
    has_run = not isinstance(body, schemas.SearchRequest) or body.query is not None

    def answer(snapshot: Snapshot) -> schemas.SearchResponse:
        run = step.read() if has_run else None
        tools = snapshot.retriever.search(body.text, run, body.top_k, among=body.among)
        return schemas.SearchResponse(
            model=snapshot.name,
            generation=snapshot.generation,
            tools=[schemas.FoundTool(tool=tool, score=round(score, 6)) for tool, score in tools],
            unknown_tools=unknown_names(snapshot, step.history),
        )

    with call.service.metrics.search_seconds.labels(step.model.name).time():
        return await step.ask(answer)


async def predict_calls(call: Call, step: Step, body: schemas.CallBounds) -> schemas.CallsResponse:
    """Predict the next calls with their arguments, and where each argument comes from."""
    model, tool = step.model, body.tool
    retriever = model.current.retriever
    _require(model, retriever.arguments_, "knows no arguments", "arguments")
    if tool is not None and retriever.index(tool) < 0:
        raise HTTPException(
            422, f"tool: is not known to model {model.name!r}; see /v1/models/{model.name}"
        )

    def answer(snapshot: Snapshot) -> schemas.CallsResponse:
        retriever, run = snapshot.retriever, step.read()
        found = (
            retriever.next_calls(run, body.top_k) if tool is None else [retriever.fill(tool, run)]
        )
        calls: list[Any] = [item.to_dict() for item in found]
        return schemas.CallsResponse(
            model=snapshot.name,
            generation=snapshot.generation,
            calls=calls,
            unknown_tools=unknown_names(snapshot, step.history),
        )

    metrics = call.service.metrics
    with metrics.call_seconds.labels(model.name).time():
        response = await step.ask(answer)
    written: list[Any] = response.calls
    for item in written:
        metrics.calls.labels(model.name, "no" if item["unknown"] else "yes").inc()
    return response


async def predict_plans(call: Call, step: Step, body: schemas.PlanBounds) -> schemas.PlansResponse:
    """Predict whole plans, or what is left to do after the calls of the history."""
    model = step.model
    _require(model, model.current.retriever.plans_, "knows no whole plans", "plans")

    def answer(snapshot: Snapshot) -> schemas.PlansResponse:
        # Written here: a plan fills its arguments when they are looked at first.
        plans: list[Any] = [
            plan.to_dict() for plan in snapshot.retriever.plans(step.read(), k=body.top_k)
        ]
        return schemas.PlansResponse(
            model=snapshot.name,
            generation=snapshot.generation,
            plans=plans,
            unknown_tools=unknown_names(snapshot, step.history),
        )

    with call.service.metrics.plan_seconds.labels(model.name).time():
        return await step.ask(answer)


async def create_session(
    call: Call, step: Step, body: schemas.SessionRequest
) -> schemas.SessionResponse:
    """Open a session."""

    def begin() -> Session:
        return Session.of(step.model, step.read(), call.owner)

    session = await step.model.current.run(begin) if step.has_details else begin()
    await call.service.sessions.open(session)
    return await _session_response(call, session, body.rank)


async def show_session(call: Call, session: Session) -> schemas.SessionResponse:
    """What a session knows."""
    return await _session_response(call, session, None)


async def call_in_session(
    call: Call, session: Session, body: schemas.CallRequest
) -> schemas.SessionResponse:
    """Tell a session that tools were called."""
    key = body.idempotency_key or secrets.token_hex(8)
    limit = call.service.settings.limits.history

    def tell(session: Session) -> Session:
        return session.with_run(add_calls(session.run, body.tools), key)

    for _ in range(_ATTEMPTS):
        if key in session.keys:
            break  # an earlier attempt was made, and its answer was lost
        if len(session.run.calls) + len(body.tools) > limit:
            raise HTTPException(422, f"the history would have more than {limit} calls")
        if are_names(body.tools):
            told = tell(session)
        else:
            told = await session.model.current.run(tell, session)
        if await call.service.sessions.add(session, told):
            session = told
            break
        session = await find_session(call)
    else:
        raise HTTPException(
            503,
            "others tell this session of calls at the same time; try again",
            {"retry-after": "1"},
        )
    return await _session_response(call, session, body.rank)


async def delete_session(call: Call, session: Session) -> None:
    """Close a session."""
    await call.service.sessions.close(session)


async def _session_response(
    call: Call, session: Session, selection: schemas.Selection | None
) -> schemas.SessionResponse:
    return schemas.SessionResponse(
        session=session.id,
        model=session.model.name,
        history=list(session.run.history),
        expires_in=call.service.settings.limits.session_seconds,
        ranking=None if selection is None else await rank(call, session.step, selection),
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


def rank_response(
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
        raise ModelError(f"model {snapshot.name!r} gives probabilities that are not numbers")
    return schemas.RankResponse(
        model=snapshot.name,
        generation=snapshot.generation,
        tools=[
            schemas.RankedTool(tool=tool, probability=round(float(probability), 6))
            for tool, probability in ranking.top(_size(ranking, selection))
        ],
        confidence=round(confidence, 6),
        familiar=bool(ranking.is_familiar),
        none_of_these=bool(ranking.is_none_of_these),
        unknown_tools=unknown_names(snapshot, history),
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
