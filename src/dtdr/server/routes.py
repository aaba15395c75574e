"""The endpoints."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

import dtdr
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.outputs import bound_output, parse_output
from dtdr.run import CallLike, Run, as_run
from dtdr.server import openapi, schemas
from dtdr.server.endpoints import Call, Endpoint, encode
from dtdr.server.masks import mask_anthropic, mask_openai
from dtdr.server.models import ServedModel
from dtdr.server.served_session import ServedSession
from dtdr.server.service import call_record, names_of

CHUNK = 8
"""Steps of a batch that are ranked at once; other requests wait for no more than these, 2 ms."""

NO_SELECTION = schemas.Selection()
NO_BOUNDS = schemas.CallBounds()
NO_PLAN_BOUNDS = schemas.PlanBounds()

_ID_LENGTH = 64
_ATTEMPTS = 8
"""To tell a session of calls, where others tell it at the same moment."""


_StepRequest = (
    schemas.RankRequest
    | schemas.ExplainRequest
    | schemas.SurpriseRequest
    | schemas.CallsRequest
    | schemas.PlansRequest
    | schemas.SessionRequest
)
"""What names a model, and a step that it is asked about."""


async def _read_step(call: Call, body: _StepRequest) -> tuple[ServedModel, list[str], Run | None]:
    """The model, the names of the calls so far, and the run where more than names is known."""
    service = call.service
    model = service.models.find(body.model)
    run = await service.read_run(body.query, body.history, body.before)
    history = names_of(body.history)
    call.log(model.name, body.query, calls=len(history))
    return model, history, run


async def _read_run(call: Call, body: _StepRequest) -> tuple[ServedModel, list[str], Run]:
    """The model, the names of the calls so far, and the run, of names alone if need be."""
    model, history, run = await _read_step(call, body)
    return model, history, as_run(body.query, history) if run is None else run


# -- ranking -----------------------------------------------------------------------------------


async def rank(call: Call, body: schemas.RankRequest) -> schemas.RankResponse:
    """Rank the tools for the next step of a query."""
    model, history, run = await _read_step(call, body)
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
    for start in range(0, len(body.steps), CHUNK):
        steps = body.steps[start : start + CHUNK]
        started = time.perf_counter()
        some = runs[start : start + CHUNK]
        rankings = await snapshot.run(
            snapshot.retriever.rank_batch,
            [step.query for step in steps],
            [
                history if run is None else run.calls
                for history, run in zip(names[start : start + CHUNK], some, strict=True)
            ],
            [run.before if run is not None else () for run in some] if any(some) else None,
        )
        seconds = (time.perf_counter() - started) / len(steps)
        for history, ranking in zip(names[start : start + CHUNK], rankings, strict=True):
            service.count(model, ranking, seconds)
            responses.append(service.response(model, snapshot, history, ranking, body))
        await asyncio.sleep(0)
    return schemas.BatchResponse(rankings=responses)


async def explain(call: Call, body: schemas.ExplainRequest) -> schemas.ExplainResponse:
    """Say why a tool has its probability: what speaks for it, against the next best."""
    model, history, run = await _read_step(call, body)
    snapshot, ranking = await model.rank(body.query, history, run)
    # It ranks again without each block.
    explanation = await snapshot.run_in_thread(
        lambda: ranking.explain(body.tool, against=body.against)
    )
    return schemas.ExplainResponse(
        model=model.name, generation=snapshot.generation, explanation=explanation
    )


# -- search ------------------------------------------------------------------------------------


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


async def search_session(call: Call, body: schemas.SearchBounds) -> schemas.SearchResponse:
    """Answer an agent's search for tools in a session."""
    session = await _session(call)
    call.service.check_query(body.text)
    return await call.service.search(
        session.model,
        session.history,
        lambda: session.search(body.text, body.top_k, body.among),
    )


# -- odd calls ---------------------------------------------------------------------------------


async def judge_call(call: Call, body: schemas.SurpriseRequest) -> schemas.SurpriseResponse:
    """Say how odd a call is after a run: its tool, and where its arguments come from."""
    model, _, run = await _read_run(call, body)
    judged = call_record(body.call)
    return await call.service.judge(model, lambda: model.surprise(judged, run))


async def judge_in_session(call: Call, body: schemas.SurpriseBounds) -> schemas.SurpriseResponse:
    """Say how odd a call is at this step of a session."""
    session = await _session(call)
    judged = call_record(body.call)
    return await call.service.judge(session.model, lambda: session.surprise(judged))


# -- whole calls -------------------------------------------------------------------------------


async def predict_calls(call: Call, body: schemas.CallsRequest) -> schemas.CallsResponse:
    """Predict the next calls with their arguments, and where each argument comes from."""
    model, history, run = await _read_run(call, body)
    return await call.service.predict(
        model, history, body, lambda: model.predict(run, body.top_k, body.tool)
    )


async def predict_session(
    call: Call, body: schemas.CallBounds = NO_BOUNDS
) -> schemas.CallsResponse:
    """Predict the next calls of a session with their arguments."""
    session = await _session(call)
    return await call.service.predict(
        session.model,
        session.history,
        body,
        lambda: session.predict(body.top_k, body.tool),
    )


# -- whole plans -------------------------------------------------------------------------------


async def predict_plans(call: Call, body: schemas.PlansRequest) -> schemas.PlansResponse:
    """Predict whole plans, or what is left to do after the calls of the history."""
    model, history, run = await _read_run(call, body)
    return await call.service.predict_plans(
        model, history, lambda: model.predict_plans(run, body.top_k)
    )


async def plan_session(
    call: Call, body: schemas.PlanBounds = NO_PLAN_BOUNDS
) -> schemas.PlansResponse:
    """Predict what is left to do in a session."""
    session = await _session(call)
    return await call.service.predict_plans(
        session.model, session.history, lambda: session.predict_plans(body.top_k)
    )


# -- sessions ----------------------------------------------------------------------------------


async def create_session(call: Call, body: schemas.SessionRequest) -> schemas.SessionResponse:
    """Open a session."""
    model, history, run = await _read_step(call, body)
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


async def rank_session(call: Call, body: schemas.Selection = NO_SELECTION) -> schemas.RankResponse:
    """Rank the tools for the next step of a session."""
    return await _rank_session(call, await _session(call), body)


async def delete_session(call: Call) -> None:
    """Close a session."""
    await call.service.sessions.close(await _session(call))


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


# -- feedback ----------------------------------------------------------------------------------


async def feedback(call: Call, body: schemas.FeedbackRequest) -> schemas.FeedbackResponse:
    """Learn from demonstrations, at once or, where feedback is logged, later. Role: admin."""
    call.require_admin()
    service = call.service
    model = service.models.find(body.model)
    limit = service.settings.limits.demonstrations
    if len(body.demonstrations) > limit:
        raise HTTPException(
            422, f"{len(body.demonstrations)} demonstrations were sent; the limit is {limit}"
        )
    demonstrations: list[Demonstration] = []
    for number, item in enumerate(body.demonstrations):
        service.check_query(item.query)
        service.check_history(item.calls)
        try:
            demonstrations.append(_demonstration(item))
        except InputError as error:
            raise HTTPException(422, f"demonstrations.{number}: {error}") from error
        except RecursionError as error:
            raise HTTPException(422, f"demonstrations.{number}: nested too deeply") from error
    call.log(model.name, demonstrations=len(demonstrations))
    feedback_log = service.feedback_logs.get(model.name)
    learned = logged = 0
    if feedback_log is not None:
        await to_thread.run_sync(feedback_log.append, demonstrations)
        logged = len(demonstrations)
        service.metrics.logged.labels(model.name).inc(logged)
    else:
        learned = await model.learn(demonstrations)
        service.metrics.learned.labels(model.name).inc(learned)
        service.show_generation(model)
    return schemas.FeedbackResponse(
        model=model.name,
        learned=learned,
        logged=logged,
        generation=model.current.generation,
        unsaved=model.unsaved,
    )


def _demonstration(item: schemas.FeedbackDemonstration) -> Demonstration:
    """The demonstration that a client sent.

    Raises:
        InputError: its plan is not a DAG over earlier calls.
    """
    calls = [
        call if isinstance(call, str) else _bound_record(msgspec.structs.asdict(call))
        for call in item.calls
    ]
    record = {
        "id": item.id or secrets.token_hex(8),
        "query": item.query,
        "calls": calls,
        "links": item.links,
        "before": list(map(_bound_record, item.before)),
        "source": "feedback",
        "outcome": item.outcome,
        "time": datetime.now(UTC),
    }
    return Demonstration.from_dict(record)


def _bound_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a call with its output cut to what is kept of one; a message as it is."""
    output = record.get("output")
    if output is None:
        return record
    output, length = bound_output(parse_output(output))
    return {**record, "output": output, "output_length": length or record.get("output_length")}


# -- models ------------------------------------------------------------------------------------


async def list_models(call: Call) -> schemas.ModelsResponse:
    """Every served model."""
    models = call.service.models.values()
    return schemas.ModelsResponse(
        models=[schemas.ModelResponse(**_describe(model)) for model in models]
    )


async def show_model(call: Call) -> schemas.ModelDetail:
    """One model and its tool vocabulary."""
    model = call.service.models.find(call.parameters["model"])
    vocabulary = list(model.current.retriever.vocabulary)
    return schemas.ModelDetail(**_describe(model), vocabulary=vocabulary)


async def reload_model(call: Call) -> schemas.ModelResponse:
    """Load a model's folder again; what was learned and not saved is dropped. Role: admin."""
    call.require_admin()
    model = call.service.models.find(call.parameters["model"])
    await call.service.reload(model)
    return schemas.ModelResponse(**_describe(model))


async def save_model(call: Call) -> schemas.ModelResponse:
    """Save the updates of a model to its folder. Role: admin."""
    call.require_admin()
    model = call.service.models.find(call.parameters["model"])
    await call.service.save(model)
    return schemas.ModelResponse(**_describe(model))


def _describe(model: ServedModel) -> dict[str, Any]:
    current = model.current
    return {
        "name": model.name,
        "retriever": current.retriever.name,
        "generation": current.generation,
        "tools": len(current.retriever.vocabulary),
        "demonstrations": current.retriever.training_.demonstrations,
        "can_learn": model.can_learn,
        "unsaved": model.unsaved,
        "loaded_at": current.loaded_at,
        "reload_error": model.reload_error,
    }


# -- operation ---------------------------------------------------------------------------------


async def show_health(call: Call) -> schemas.Health:
    """Whether the process answers. Needs no key."""
    return schemas.Health(status="ok", version=dtdr.__version__)


async def show_readiness(call: Call) -> schemas.Health:
    """Whether models are loaded and the server is not stopping. Needs no key."""
    is_stopping = call.service.is_stopping
    if is_stopping:
        call.status = 503
    return schemas.Health(
        status="stopping" if is_stopping else "ok",
        version=dtdr.__version__,
        failing=len(call.service.failures),
    )


async def show_metrics(call: Call) -> PlainTextResponse:
    """Metrics, as Prometheus reads them."""
    metrics = call.service.metrics
    return PlainTextResponse(metrics.text(), media_type=metrics.content_type)


async def show_document(call: Call) -> Response:
    """The description of every endpoint for programs."""
    return Response(encode(call.service.document), media_type="application/json")


async def show_page(call: Call) -> HTMLResponse:
    """The description of every endpoint as a page that loads nothing from elsewhere."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return HTMLResponse(
        openapi.page(call.service.document), headers={"content-security-policy": policy}
    )


async def lead_to_page(call: Call) -> RedirectResponse:
    """Who opens the server in a browser gets its page."""
    return RedirectResponse("/docs")


ENDPOINTS = (
    # A router looks from the top: first what agents ask at every step.
    Endpoint("POST", "/v1/rank", rank),
    Endpoint("POST", "/v1/sessions/{session}/call", call_in_session),
    Endpoint("POST", "/v1/sessions/{session}/rank", rank_session),
    Endpoint("POST", "/v1/search", search),
    Endpoint("POST", "/v1/surprise", judge_call),
    Endpoint("POST", "/v1/sessions/{session}/surprise", judge_in_session),
    Endpoint("POST", "/v1/sessions/{session}/search", search_session),
    Endpoint("POST", "/v1/calls", predict_calls),
    Endpoint("POST", "/v1/sessions/{session}/calls", predict_session),
    Endpoint("POST", "/v1/plans", predict_plans),
    Endpoint("POST", "/v1/sessions/{session}/plans", plan_session),
    Endpoint("POST", "/v1/sessions", create_session, status=201),
    Endpoint("POST", "/v1/mask/openai", mask_openai, takes_any_text=True),
    Endpoint("POST", "/v1/mask/anthropic", mask_anthropic, takes_any_text=True),
    Endpoint("POST", "/v1/rank/batch", rank_batch),
    Endpoint("POST", "/v1/explain", explain),
    Endpoint("GET", "/v1/sessions/{session}", show_session),
    Endpoint("DELETE", "/v1/sessions/{session}", delete_session, status=204),
    Endpoint("POST", "/v1/feedback", feedback),
    Endpoint("GET", "/v1/models", list_models),
    Endpoint("GET", "/v1/models/{model}", show_model),
    Endpoint("POST", "/v1/models/{model}/reload", reload_model),
    Endpoint("POST", "/v1/models/{model}/save", save_model),
    Endpoint("GET", "/healthz", show_health, needs_key=False),
    Endpoint("GET", "/readyz", show_readiness, others={503: schemas.Health}, needs_key=False),
    Endpoint("GET", "/metrics", show_metrics),
    Endpoint("GET", "/openapi.json", show_document, is_described=False, needs_key=False),
    Endpoint("GET", "/docs", show_page, is_described=False, needs_key=False),
    Endpoint("GET", "/", lead_to_page, is_described=False, needs_key=False),
)
