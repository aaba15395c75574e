"""Endpoints that are told a step as a whole: query and history."""

from __future__ import annotations

import time

from starlette.exceptions import HTTPException

from dtdr.rankers.ranking import Ranking
from dtdr.serve.server import schemas
from dtdr.serve.server.asked import AskedStep, names_of, read_run
from dtdr.serve.server.endpoints import Call
from dtdr.serve.server.schemas import StepRequest
from dtdr.serve.server.service import rank_response
from dtdr.serve.server.snapshots import Snapshot

_StepRequest = (
    StepRequest
    | schemas.RankRequest
    | schemas.SurpriseRequest
    | schemas.CallsRequest
    | schemas.PlansRequest
    | schemas.SearchRequest
)
"""What names a model, and a step that it is asked about."""


def read_step(call: Call, body: _StepRequest, query: str | None = None) -> AskedStep:
    """The step that a request tells, and the model that it asks.

    Args:
        call: the request.
        body: of it.
        query: in the place of the one that the body lacks.

    Raises:
        HTTPException: there is no such model, or the step is too long.
    """
    service = call.service
    model = service.models.find(body.model)
    query = body.query or query or ""
    service.check_step(query, body.history, body.before)
    call.log(model.name, query, calls=len(body.history))
    return AskedStep(model, query, body.history, body.before)


async def rank(call: Call, body: schemas.RankRequest) -> schemas.RankResponse:
    """Rank the tools for the next step of a query."""
    return await call.service.rank(read_step(call, body), body)


async def rank_batch(call: Call, body: schemas.BatchRequest) -> schemas.BatchResponse:
    """Rank many steps with one model; a query that occurs often is encoded once."""
    service = call.service
    model = service.models.find(body.model)
    limit = service.settings.limits.batch
    if len(body.steps) > limit:
        raise HTTPException(422, f"the batch holds {len(body.steps)} steps; the limit is {limit}")
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


async def explain(call: Call, body: schemas.ExplainRequest) -> schemas.ExplainResponse:
    """Say why a tool has its probability: what sets it apart from the next best."""
    step = read_step(call, body)

    def answer(snapshot: Snapshot, ranking: Ranking) -> schemas.ExplainResponse:
        return schemas.ExplainResponse(
            model=step.model.name,
            generation=snapshot.generation,
            explanation=ranking.explain(body.tool, against=body.against),
        )

    return await step.rank(answer)


async def search(call: Call, body: schemas.SearchRequest) -> schemas.SearchResponse:
    """Answer an agent's search for tools: by its words, and by what comes next in its run."""
    service = call.service
    service.check_step(body.text, ())
    in_run = body.query is not None
    if not in_run and (body.history or body.before):
        raise HTTPException(422, "query: is missing; history and before are those of a query")
    step = read_step(call, body, body.text)
    return await service.search(step, body, in_run=in_run)


async def judge_call(call: Call, body: schemas.SurpriseRequest) -> schemas.SurpriseResponse:
    """Say how odd a call is after a run: its tool, and where its arguments come from."""
    return await call.service.judge(read_step(call, body), body.call)


async def predict_calls(call: Call, body: schemas.CallsRequest) -> schemas.CallsResponse:
    """Predict the next calls with their arguments, and where each argument comes from."""
    return await call.service.predict(read_step(call, body), body)


async def predict_plans(call: Call, body: schemas.PlansRequest) -> schemas.PlansResponse:
    """Predict whole plans, or what is left to do after the calls of the history."""
    return await call.service.predict_plans(read_step(call, body), body)
