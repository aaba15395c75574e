"""``/v1/feedback``: demonstrations that a served model learns from."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request

from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError, OutputError
from dtdr.server import schemas
from dtdr.server.answers import RefusedError
from dtdr.server.reloading import note_generation
from dtdr.server.state import require_admin, state_of

router = APIRouter(prefix="/v1", tags=["feedback"])


@router.post("/feedback")
async def feedback(request: Request, given: schemas.FeedbackRequest) -> schemas.FeedbackResponse:
    """Learn from demonstrations; the next request is ranked with what was learned. Role: admin."""
    require_admin(request)
    state = state_of(request)
    model = state.shelf.find(given.model)
    limits = state.settings.limits
    if len(given.demonstrations) > limits.demonstrations:
        raise RefusedError(
            422,
            f"{len(given.demonstrations)} demonstrations were sent; the limit is "
            f"{limits.demonstrations}",
        )
    found: list[Demonstration] = []
    for number, item in enumerate(given.demonstrations):
        state.check_query(item.query)
        state.check_history(item.calls)  # type: ignore[arg-type]  # only their number counts
        try:
            found.append(demonstration(item))
        except InputError as error:
            raise RefusedError(422, f"demonstrations.{number}: {error}") from error
        except RecursionError as error:
            raise RefusedError(422, f"demonstrations.{number}: nested too deeply") from error
    state.log_fields(request, model, demonstrations=len(found))
    text = lines(found) if state.settings.feedback_log else ""
    learned = await model.learn(found)
    state.metrics.learned.labels(model.name).inc(learned)
    note_generation(state, model)
    if state.settings.feedback_log:
        try:
            async with state.feedback_lock:
                await to_thread.run_sync(append, state.settings.feedback_log, text)
        except OutputError as error:
            raise RefusedError(500, f"{error}; the model learned all the same") from error
    return schemas.FeedbackResponse(
        model=model.name,
        learned=learned,
        generation=model.current.generation,
        unsaved=model.unsaved,
    )


def demonstration(item: schemas.FeedbackDemonstration) -> Demonstration:
    """The demonstration that a client sent.

    Raises:
        InputError: its plan is no DAG over earlier calls.
    """
    calls: list[dict[str, Any]] = [
        {"id": str(number), "tool": call} if isinstance(call, str) else call.model_dump()
        for number, call in enumerate(item.calls, start=1)
    ]
    record = {
        "id": item.id or secrets.token_hex(8),
        "query": item.query,
        "calls": calls,
        "links": item.links,
        "source": "feedback",
        "outcome": item.outcome,
    }
    return Demonstration.from_dict(record)


def lines(demonstrations: Sequence[Demonstration]) -> str:
    """Demonstrations as lines of the file that ``dtdr fit`` reads."""
    return "".join(
        json.dumps(item.to_dict(), separators=(",", ":")) + "\n" for item in demonstrations
    )


def append(path: Path, text: str) -> None:
    """Add lines to a file.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"cannot write {path}: {reason}") from error
