"""Endpoints that ask a model at a step of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import isfinite
from typing import Any

from starlette.exceptions import HTTPException

from dtdr.errors import ModelError
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import Selection
from dtdr.serve.server import schemas
from dtdr.serve.server.models import (
    AskedStep,
    ServedModel,
    unknown_names,
)
from dtdr.serve.server.runs import names_of, read_run
from dtdr.serve.server.service import RequestContext
from dtdr.serve.server.snapshots import Snapshot
from dtdr.serve.server.tracing import note_ranking, ranking_span

_TOP_K = 10
"""Tools in a response without bounds; dtdr-l has a recall@10 of .995 on TinyAgent."""


async def rank(
    context: RequestContext, step: AskedStep, body: schemas.SelectionBody
) -> schemas.RankResponse:
    """Rank the tools for the next step."""
    service, model = context.service, step.model
    query = step.query if service.settings.log_queries else None

    def answer(snapshot: Snapshot) -> schemas.RankResponse:
        return rank_response(snapshot, step.history, step.rank(snapshot), body)

    with ranking_span(context.headers, model.name, model.current.model.name) as span:
        response = await step.ask(answer, ranks=True)
        service.metrics.count_ranking(model.name, familiar=response.familiar)
        note_ranking(span, query, len(step.history), response)
    return response


async def rank_batch(context: RequestContext, body: schemas.BatchRequest) -> schemas.BatchResponse:
    """Rank many steps with one model; a query that occurs often is encoded once."""
    service = context.service
    model = service.models.find(body.model)
    limit = service.settings.limits.batch
    if len(body.steps) > limit:
        raise HTTPException(422, f"the batch has {len(body.steps)} steps; the limit is {limit}")
    for step in body.steps:
        service.check_step(step.query, step.history, step.before)
    context.log(model.name, steps=len(body.steps))
    snapshot = model.current

    def answer() -> list[schemas.RankResponse]:
        runs = [read_run(step.query, step.history, step.before, step.text) for step in body.steps]
        rankings = snapshot.model.rank_batch(runs)
        return [
            rank_response(snapshot, names_of(step.history), ranking, body)
            for step, ranking in zip(body.steps, rankings, strict=True)
        ]

    responses = await snapshot.run(answer)
    for response in responses:
        service.metrics.count_ranking(model.name, familiar=response.familiar)
    return schemas.BatchResponse(rankings=responses)


async def explain(
    context: RequestContext, step: AskedStep, body: schemas.ExplainBounds
) -> schemas.ExplainResponse:
    """Explain the probability of a tool: what sets it apart from the next best."""

    def answer(snapshot: Snapshot) -> schemas.ExplainResponse:
        explanation = step.rank(snapshot).explain(body.tool, against=body.against)
        return schemas.ExplainResponse(explanation=explanation, **snapshot.identity)

    return await step.ask(answer)


async def search(
    context: RequestContext, step: AskedStep, body: schemas.SearchBounds
) -> schemas.SearchResponse:
    """Search tools by an agent's words, and by what comes next in its run."""
    context.service.check_step(body.text)

    def answer(snapshot: Snapshot) -> schemas.SearchResponse:
        offered = body.among if body.offered is None else body.offered
        if step.query:
            with step.open(snapshot) as session:
                tools = session.search(body.text, body.top_k, offered=offered)
        else:
            tools = snapshot.model.search(body.text, None, body.top_k, offered=offered)
        return schemas.SearchResponse(
            tools=[schemas.FoundTool(tool=tool, score=round(score, 6)) for tool, score in tools],
            unknown_tools=unknown_names(snapshot, step.history),
            **snapshot.identity,
        )

    return await step.ask(answer)


async def predict_calls(
    context: RequestContext, step: AskedStep, body: schemas.CallBounds
) -> schemas.CallsResponse:
    """Predict the next calls with their arguments, and where each argument comes from."""
    model, tool = step.model, body.tool
    _require(model, model.current.model.arguments_, "arguments")
    if tool is not None and model.current.model.index(tool) < 0:
        raise HTTPException(
            422, f"tool: is not known to model {model.name!r}; see /v1/models/{model.name}"
        )

    def answer(snapshot: Snapshot) -> schemas.CallsResponse:
        with step.open(snapshot) as session:
            predicted = [session.fill(tool)] if tool else session.next_calls(body.top_k)
        calls: list[Any] = [item.to_dict() for item in predicted]
        unknown = unknown_names(snapshot, step.history)
        return schemas.CallsResponse(calls=calls, unknown_tools=unknown, **snapshot.identity)

    return await step.ask(answer)


async def predict_plans(
    context: RequestContext, step: AskedStep, body: schemas.PlanBounds
) -> schemas.PlansResponse:
    """Predict whole plans, or what is left to do after the calls of the history."""
    _require(step.model, step.model.current.model.plans_, "plans")

    def answer(snapshot: Snapshot) -> schemas.PlansResponse:
        # Written in this thread: a plan fills its arguments when it is written.
        with step.open(snapshot) as session:
            plans: list[Any] = [plan.to_dict() for plan in session.plans(top_k=body.top_k)]
        unknown = unknown_names(snapshot, step.history)
        return schemas.PlansResponse(plans=plans, unknown_tools=unknown, **snapshot.identity)

    return await step.ask(answer)


def _require(model: ServedModel, learned: object | None, what: str) -> None:
    """Check that a model was fitted with something.

    Raises:
        HTTPException: it was not.
    """
    if learned is None:
        raise HTTPException(
            409,
            f"model {model.name!r} was fitted without {what}; fit it again with dtdr fit, without "
            f"--no-{what}, and reload it",
        )


def rank_response(
    snapshot: Snapshot, history: Sequence[str], ranking: Ranking, selection: schemas.SelectionBody
) -> schemas.RankResponse:
    """A ranking as it is sent; probabilities are over all tools that can be called.

    Raises:
        ModelError: the model gives no probabilities.
        InputError: the model is not calibrated for the selection.
    """
    offered = selection.offered
    ranking = ranking.restrict(None if offered is None else frozenset(offered))
    bounds = Selection(**{item.name: getattr(selection, item.name) for item in fields(Selection)})
    positions = ranking.positions(bounds if bounds.bounds else Selection(top_k=_TOP_K))
    confidence = ranking.confidence
    if not isfinite(confidence):
        raise ModelError(f"model {snapshot.name!r} gives probabilities that are not numbers")
    return schemas.RankResponse(
        tools=[
            schemas.RankedTool(tool=tool, probability=round(float(probability), 6))
            for tool, probability in ranking.pairs(positions)
        ],
        confidence=round(confidence, 6),
        familiar=bool(ranking.is_familiar),
        none_of_these=bool(ranking.is_none_of_these),
        unknown_tools=unknown_names(snapshot, history),
        **snapshot.identity,
    )
