"""The application: service, endpoints and middleware."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from dtdr.errors import InputError
from dtdr.serve.feedback import FileLog, open_log
from dtdr.serve.server.endpoints import Endpoint
from dtdr.serve.server.keys import read_keys
from dtdr.serve.server.logs import log
from dtdr.serve.server.middleware import RequestMiddleware, refuse
from dtdr.serve.server.models import ModelRegistry, ServedModel
from dtdr.serve.server.openapi import document
from dtdr.serve.server.routes import ENDPOINTS
from dtdr.serve.server.server_metrics import Metrics
from dtdr.serve.server.service import Service
from dtdr.serve.server.settings import Settings


def create_app(settings: Settings, *, more: Sequence[Endpoint] = ()) -> Starlette:
    """The application, with its models loaded.

    Args:
        settings: of the server.
        more: further endpoints; they replace the server's with the same method and path.

    Raises:
        InputError: there is no model, or no key in the file.
        ModelError: a model folder cannot be used.
        OutputError: the log of feedback cannot be written.
    """
    if not settings.models and not more:
        raise InputError("there is no model to serve; name at least one model folder")
    service = _service(settings)
    replaced = {(item.method, item.path) for item in more}
    kept = (item for item in ENDPOINTS if (item.method, item.path) not in replaced)
    endpoints = (*kept, *more)
    service.open_paths = frozenset(item.path for item in endpoints if item.role is None)
    service.document = document([item for item in endpoints if item.is_described])

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        log("ready", models=list(service.models), keys=len(service.keys or ()))
        try:
            yield
        finally:
            service.stop()
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            for feedback in service.feedback_logs.values():
                feedback.close()
            log("stopped")

    app = Starlette(
        routes=[
            Route(endpoint.path, endpoint, methods=[endpoint.method]) for endpoint in endpoints
        ],
        middleware=[Middleware(RequestMiddleware, service)],
        exception_handlers={HTTPException: refuse},
        lifespan=lifespan,
    )
    app.state.service = service
    return app


def _service(settings: Settings) -> Service:
    keys = None if settings.keys is None else read_keys(settings.keys)
    if keys == ():
        raise InputError(
            f"{settings.keys} has no key; make one with: dtdr keys create {settings.keys}"
        )
    limits = settings.limits
    models = ModelRegistry(
        {name: ServedModel(name, folder, limits) for name, folder in settings.models.items()}
    )
    service = Service(settings, models, Metrics(), keys)
    if settings.feedback_log is not None:
        for name in models:
            feedback = open_log(
                settings.feedback_log, name, several=len(models) > 1, redact=settings.redact
            )
            if isinstance(feedback, FileLog):
                feedback.prepare()  # fails now if it cannot be written
            service.feedback_logs[name] = feedback
    for model in models.values():
        service.metrics.show_model(model)
    return service
