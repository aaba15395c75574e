"""Endpoints that show and change models."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from anyio import to_thread
from starlette.exceptions import HTTPException

from dtdr.data.demonstrations import Demonstration, as_demonstrations
from dtdr.data.outputs import bound_output, parse_output
from dtdr.data.tools import unique_tools
from dtdr.serve.server import schemas
from dtdr.serve.server.learning import ModelChange
from dtdr.serve.server.logs import log
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.runs import record_of
from dtdr.serve.server.service import RequestContext, Service


async def list_models(context: RequestContext) -> schemas.ModelsResponse:
    """Every served model."""
    return schemas.ModelsResponse(models=list(map(_describe, context.service.models.values())))


async def show_model(context: RequestContext) -> schemas.ModelDetail:
    """One model and its tool vocabulary."""
    model = context.service.models.find(context.parameters["model"])
    described = msgspec.structs.asdict(_describe(model))
    return schemas.ModelDetail(**described, vocabulary=list(model.current.model.vocabulary))


async def reload_model(context: RequestContext) -> schemas.ModelResponse:
    """Load a model's folder again, without unsaved updates. Role: admin."""
    model = context.service.models.find(context.parameters["model"])
    await context.service.reload(model)
    return _describe(model)


async def save_model(context: RequestContext) -> schemas.ModelResponse:
    """Save the updates of a model to its folder. Role: admin."""
    model = context.service.models.find(context.parameters["model"])
    with context.service.showing_failure(f"save {model.name}"):
        saved = await model.save()
    log("saved", model=model.name, demonstrations=saved)
    return _describe(model)


def _describe(model: ServedModel) -> schemas.ModelResponse:
    current, queue = model.current, model.learning
    return schemas.ModelResponse(
        name=model.name,
        ranker=current.model.name,
        retriever=current.model.name,
        generation=current.generation,
        tools=len(current.model.vocabulary),
        demonstrations=current.model.training_.demonstrations,
        can_learn=current.model.can_update,
        unsaved=model.unsaved,
        reload_error=model.reload_error,
        learning=None if queue.current is None else queue.current.describe(),
        learning_since=None if queue.since is None else queue.since.isoformat(timespec="seconds"),
        waiting=queue.waiting.describe(),
        learning_error=queue.error,
    )


async def change_tools(
    context: RequestContext, body: schemas.ToolChangeRequest
) -> schemas.ToolChangeResponse:
    """Add tools to a model, and remove some; returns before the model ranks them. Role: admin."""
    service, model = context.service, context.service.models.find(context.parameters["model"])
    added = tuple(unique_tools(body.add).values())
    _check_tools(service, model, [tool.name for tool in added])
    model.change(ModelChange(added=added, removed=tuple(dict.fromkeys(body.remove))))
    context.log(model.name, added=len(added), removed=len(body.remove))
    return schemas.ToolChangeResponse(
        model=model.name,
        waiting=model.learning.waiting.describe(),
        generation=model.current.generation,
    )


async def feedback(
    context: RequestContext, body: schemas.FeedbackRequest
) -> schemas.FeedbackResponse:
    """Learn from demonstrations aside, or log them for ``dtdr learn``. Role: admin."""
    service = context.service
    model = service.models.find(body.model)
    limit = service.settings.limits.demonstrations
    if len(body.demonstrations) > limit:
        raise HTTPException(
            422, f"{len(body.demonstrations)} demonstrations were sent; the limit is {limit}"
        )
    for item in body.demonstrations:
        service.check_step(item.query, item.calls, item.before)
    demonstrations = await model.current.run(_read, body)
    called = dict.fromkeys(name for item in demonstrations for name in item.plan.tools)
    _check_tools(service, model, called)
    context.log(model.name, demonstrations=len(demonstrations))
    service.count_feedback(context.key, len(demonstrations))
    feedback_log = service.feedback_logs.get(model.name)
    if feedback_log is not None:
        with service.showing_failure(f"feedback of {model.name}"):
            await to_thread.run_sync(feedback_log.append, demonstrations, context.owner)
        service.metrics.logged.labels(model.name).inc(len(demonstrations))
    else:
        model.change(ModelChange(tuple(demonstrations)))
    index = model.current.model.index
    return schemas.FeedbackResponse(
        model=model.name,
        demonstrations=len(demonstrations),
        new_tools=[name for name in called if index(name) < 0],
        logged=feedback_log is not None,
        waiting=model.learning.waiting.describe(),
        generation=model.current.generation,
    )


def _check_tools(service: Service, model: ServedModel, names: Iterable[str]) -> None:
    """Check how many tools a model would have; its memory grows with their square.

    Raises:
        HTTPException: they are too many.
    """
    ahead = model.learning.after_current
    called = (name for item in ahead.demonstrations for name in item.plan.tools)
    added = (tool.name for tool in ahead.added)
    count = len({*names, *called, *added, *model.current.model.vocabulary})
    if count > (limit := service.settings.limits.tools):
        raise HTTPException(422, f"the model would have {count} tools; the limit is {limit}")


def _read(body: schemas.FeedbackRequest) -> list[Demonstration]:
    """The demonstrations that a client sent.

    Raises:
        InputError: a plan is not a DAG over earlier calls, or a parent or time is wrong.
    """
    return list(as_demonstrations(map(_record, body.demonstrations)))


def _record(item: schemas.FeedbackDemonstration) -> dict[str, Any]:
    """A demonstration as the library takes it, with an id and a time."""
    record = msgspec.structs.asdict(item)
    record["id"] = item.id or secrets.token_hex(8)
    record["time"] = datetime.now(UTC) if item.time is None else item.time
    record["before"] = list(map(_bound_record, item.before))
    record["calls"] = [
        call if isinstance(call, str) else _bound_record(record_of(call)) for call in item.calls
    ]
    if item.parent is None:
        del record["parent"]
    return record


def _bound_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a call with its output cut; a message as it is."""
    output = record.get("output")
    if output is None:
        return record
    output, length = bound_output(parse_output(output))
    return {**record, "output": output, "output_length": length or record.get("output_length")}
