"""Endpoints that are told a step as a whole: query and history."""

from __future__ import annotations

import asyncio
import time

from starlette.exceptions import HTTPException

from dtdr.run import Run, as_run
from dtdr.server import schemas
from dtdr.server.endpoints import Call
from dtdr.server.models import ServedModel
from dtdr.server.service import call_record, names_of

_CHUNK = 8
"""Steps of a batch that are ranked at once; other requests wait for no more than these, 2 ms."""

_StepRequest = (
    schemas.RankRequest
    | schemas.ExplainRequest
    | schemas.SurpriseRequest
    | schemas.CallsRequest
    | schemas.PlansRequest
    | schemas.SessionRequest
)
"""What names a model, and a step that it is asked about."""


async def read_step(call: Call, body: _StepRequest) -> tuple[ServedModel, list[str], Run | None]:
    """The model, the names of the calls so far, and the run where more than names is known."""
    service = call.service
    model = service.models.find(body.model)
    run = await service.read_run(body.query, body.history, body.before)
    history = names_of(body.history)
    call.log(model.name, body.query, calls=len(history))
    return model, history, run


async def _read_run(call: Call, body: _StepRequest) -> tuple[ServedModel, list[str], Run]:
    """The model, the names of the calls so far, and the run, of names alone if need be."""
    model, history, run = await read_step(call, body)
    return model, history, as_run(body.query, history) if run is None else run


async def rank(call: Call, body: schemas.RankRequest) -> schemas.RankResponse:
    """Rank the tools for the next step of a query."""
    model, history, run = await read_step(call, body)
    ranking = model.rank(body.query, history, run)
    return await call.service.rank(model, body.query, history, body, ranking)


async def rank_batch(call: Call, body: schemas.BatchRequest) -> schemas.BatchResponse:
    """Rank many steps with one model; a query that occurs often is encoded once for a few."""
    service = call.service
    model = service.models.find(body.model)
    limit = service.settings.limits.batch
    if len(body.steps) > limit:
        raise HTTPException(422, f"the batch holds {len(body.steps)} steps; the limit is {limit}")
    runs = [await service.read_run(step.query, step.history, step.before) for step in body.steps]
    names = [names_of(step.history) for step in body.steps]
    call.log(model.name, steps=len(body.steps))
    snapshot = model.current
    responses: list[schemas.RankResponse] = []
    for start in range(0, len(body.steps), _CHUNK):
        steps = body.steps[start : start + _CHUNK]
        started = time.perf_counter()
        some = runs[start : start + _CHUNK]
        rankings = await snapshot.run(
            snapshot.retriever.rank_batch,
            [step.query for step in steps],
            [
                history if run is None else run.calls
                for history, run in zip(names[start : start + _CHUNK], some, strict=True)
            ],
            [run.before if run is not None else () for run in some] if any(some) else None,
        )
        seconds = (time.perf_counter() - started) / len(steps)
        for history, ranking in zip(names[start : start + _CHUNK], rankings, strict=True):
            service.count(model, ranking, seconds)
            responses.append(service.response(model, snapshot, history, ranking, body))
        await asyncio.sleep(0)
    return schemas.BatchResponse(rankings=responses)


async def explain(call: Call, body: schemas.ExplainRequest) -> schemas.ExplainResponse:
    """Say why a tool has its probability: what sets it apart from the next best."""
    model, history, run = await read_step(call, body)
    snapshot, ranking = await model.rank(body.query, history, run)
    # It ranks again without each block.
    explanation = await snapshot.run_in_thread(
        lambda: ranking.explain(body.tool, against=body.against)
    )
    return schemas.ExplainResponse(
        model=model.name, generation=snapshot.generation, explanation=explanation
    )


async def search(call: Call, body: schemas.SearchRequest) -> schemas.SearchResponse:
    """Answer an agent's search for tools: by its words, and by what comes next in its run."""
    service = call.service
    model = service.models.find(body.model)
    service.check_query(body.text)
    if body.query is None and (body.history or body.before):
        raise HTTPException(422, "query: is missing; history and before are those of a query")
    asked = body.text if body.query is None else body.query
    run = await service.read_run(asked, body.history, body.before)
    history = names_of(body.history)
    call.log(model.name, asked, calls=len(history))
    told = None if body.query is None else run or as_run(asked, history)
    return await service.search(
        model, history, lambda: model.search(body.text, told, body.top_k, body.among)
    )


async def judge_call(call: Call, body: schemas.SurpriseRequest) -> schemas.SurpriseResponse:
    """Say how odd a call is after a run: its tool, and where its arguments come from."""
    model, _, run = await _read_run(call, body)
    judged = call_record(body.call)
    return await call.service.judge(model, lambda: model.surprise(judged, run))


async def predict_calls(call: Call, body: schemas.CallsRequest) -> schemas.CallsResponse:
    """Predict the next calls with their arguments, and where each argument comes from."""
    model, history, run = await _read_run(call, body)
    return await call.service.predict(
        model, history, body, lambda: model.predict(run, body.top_k, body.tool)
    )


async def predict_plans(call: Call, body: schemas.PlansRequest) -> schemas.PlansResponse:
    """Predict whole plans, or what is left to do after the calls of the history."""
    model, history, run = await _read_run(call, body)
    return await call.service.predict_plans(
        model, history, lambda: model.predict_plans(run, body.top_k)
    )
