"""``/v1/rank`` and ``/v1/rank/batch``."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request, Response

from dtdr.server import schemas
from dtdr.server.answers import RefusedError
from dtdr.server.state import reply, state_of

router = APIRouter(prefix="/v1", tags=["ranking"])

CHUNK = 8
"""Steps of a batch that are ranked at once; other requests wait for no more than these, 2 ms."""


@router.post("/rank", response_model=schemas.RankResponse)
async def rank(request: Request, given: schemas.RankRequest) -> Response:
    """Rank the tools for the next step of a query."""
    state = state_of(request)
    model = state.shelf.find(given.model)
    state.check_query(given.query)
    state.check_history(given.history)
    state.log_fields(request, model, given.query, calls=len(given.history))
    return reply(await state.rank(model, given.query, given.history, given))


@router.post("/rank/batch", response_model=schemas.BatchResponse)
async def rank_batch(request: Request, given: schemas.BatchRequest) -> Response:
    """Rank many steps with one model; a query that occurs often is encoded once for a few."""
    state = state_of(request)
    model = state.shelf.find(given.model)
    limit = state.settings.limits.batch
    if len(given.steps) > limit:
        raise RefusedError(422, f"the batch holds {len(given.steps)} steps; the limit is {limit}")
    for step in given.steps:
        state.check_query(step.query)
        state.check_history(step.history)
    state.log_fields(request, model, steps=len(given.steps))
    snapshot = model.current
    found: list[dict[str, Any]] = []
    for start in range(0, len(given.steps), CHUNK):
        steps = given.steps[start : start + CHUNK]
        started = time.perf_counter()
        rankings = await snapshot.run(
            snapshot.retriever.rank_batch,
            [step.query for step in steps],
            [step.history for step in steps],
        )
        seconds = (time.perf_counter() - started) / len(steps)
        for step, ranking in zip(steps, rankings, strict=True):
            state.count(model, ranking, seconds)
            found.append(state.response(model, snapshot, step.history, ranking, given))
        await asyncio.sleep(0)
    return reply({"rankings": found})
