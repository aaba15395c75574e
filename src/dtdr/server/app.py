"""The application: models, routes and the gate put together."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import dtdr
from dtdr.errors import DtdrError, InputError
from dtdr.server import schemas
from dtdr.server.answers import RefusedError, error_body, refusal_of, validation_message
from dtdr.server.direct import Direct
from dtdr.server.gate import Gate
from dtdr.server.keys import KeyFile
from dtdr.server.logs import log
from dtdr.server.metrics import Metrics
from dtdr.server.models import Shelf
from dtdr.server.reloading import note_generation, reload_all, save_all, watch
from dtdr.server.routes import feedback, health, masks, models, ranking, sessions
from dtdr.server.sessions import SessionStore
from dtdr.server.settings import Settings
from dtdr.server.spans import Spans
from dtdr.server.state import State

_DESCRIPTION = (
    "Ranks which tools an agent needs next, from the query and the calls made so far. "
    "Keys are sent as 'Authorization: Bearer KEY' where the server was started with keys."
)
_REFUSALS = {
    400: "The body cannot be read.",
    401: "No valid key.",
    403: "The key may not do this.",
    404: "There is no such model or session.",
    408: "The body took too long.",
    409: "The model cannot do this as it is.",
    413: "The body is too large.",
    421: "The host is not this machine's.",
    422: "The request is not valid.",
    429: "Too many sessions are open.",
    502: "The model's encoder failed.",
    503: "The model folder cannot be used.",
}


def create_app(settings: Settings, *, tracer_provider: Any = None) -> FastAPI:
    """The application, with its models loaded; the models are read before this returns.

    Args:
        settings: see there.
        tracer_provider: of OpenTelemetry, for spans; None: see ``dtdr.server.spans``.

    Raises:
        InputError: the settings contradict themselves, or the file of keys holds none.
        ModelError: a model folder cannot be used.
        OutputError: the log of feedback cannot be written.
    """
    if settings.feedback_log is not None:
        feedback.append(settings.feedback_log, "")  # told now, not after a model has learned
    keys = None if settings.keys is None else KeyFile(settings.keys)
    if keys is not None and not keys.keys:
        raise InputError(
            f"{settings.keys} holds no key; make one with: dtdr keys create {settings.keys}"
        )
    shelf = Shelf(settings.models)
    spans = Spans(tracer_provider, log_queries=settings.log_queries)
    state = State(settings, shelf, SessionStore(settings.limits), Metrics(), spans, keys)
    state.metrics.count_sessions(lambda: len(state.sessions))
    for model in shelf.values():
        model.on_replace = state.sessions.forget
        note_generation(state, model)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with _reload_on_hangup(state):
            watching = asyncio.create_task(watch(state))
            log("ready", models=list(shelf), keys=0 if keys is None else len(keys.keys))
            try:
                yield
            finally:
                state.stopping = True
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
                if settings.save_seconds:
                    await save_all(state)
                log("stopped")

    app = FastAPI(
        title="dtdr",
        version=dtdr.__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses={
            status: {"model": schemas.ErrorResponse, "description": text}
            for status, text in _REFUSALS.items()
        },
        telemetry=spans.telemetry,
    )
    app.state.dtdr = state
    for module in (ranking, sessions, masks, feedback, models, health):
        app.include_router(module.router)
    _answer_errors(app)
    # FastAPI has to see a request to span it.
    short = (ranking.router, sessions.router, masks.router)
    app.add_middleware(Gate, state=state, direct=None if spans.active else Direct(short))
    return app


def _answer_errors(app: FastAPI) -> None:
    def answer(request: Request, error: RefusedError) -> Response:
        body = error_body(error.status, error.message, str(request.scope.get("dtdr.request_id")))
        return Response(body, error.status, error.headers, "application/json")

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return answer(request, error)

    @app.exception_handler(DtdrError)
    async def known(request: Request, error: DtdrError) -> Response:
        return answer(request, refusal_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        errors = error.errors()
        status = 400 if errors and errors[0].get("type") == "json_invalid" else 422
        return answer(request, RefusedError(status, validation_message(errors)))

    @app.exception_handler(RecursionError)
    async def deep(request: Request, error: RecursionError) -> Response:
        return answer(request, RefusedError(422, "the request is nested too deeply"))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return answer(
            request,
            RefusedError(error.status_code, _reason(error, request), headers=error.headers),
        )


def _reason(error: HTTPException, request: Request) -> str:
    if isinstance(error.__cause__, RecursionError):
        return "the body is nested too deeply"
    if isinstance(error.__cause__, UnicodeDecodeError):
        return "the body is not UTF-8"
    if error.status_code == 404:
        return "there is nothing at this path; see /docs"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        return f"{request.method[:16]} does not work here; use {allowed}"
    if error.status_code == 400:
        return "the body is not JSON that can be read"
    return str(error.detail)


@contextlib.contextmanager
def _reload_on_hangup(state: State) -> Iterator[None]:
    """Reload all models on SIGHUP, where there is such a signal and this is the main thread."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(reload_all(state))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(hangup, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(hangup)
