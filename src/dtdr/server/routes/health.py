"""``/healthz``, ``/readyz``, ``/metrics`` and ``/docs``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

import dtdr
from dtdr.server import schemas
from dtdr.server.metrics import CONTENT_TYPE
from dtdr.server.page import render
from dtdr.server.state import state_of

router = APIRouter(tags=["operation"])


@router.get("/healthz")
async def healthy() -> schemas.Health:
    """Whether the process answers. Needs no key."""
    return schemas.Health(status="ok", version=dtdr.__version__)


@router.get("/readyz", responses={503: {"model": schemas.Health}})
async def ready(request: Request) -> JSONResponse:
    """Whether models are loaded and the server is not stopping. Needs no key."""
    state = state_of(request)
    health = schemas.Health(status="stopping" if state.stopping else "ok", version=dtdr.__version__)
    return JSONResponse(health.model_dump(), status_code=503 if state.stopping else 200)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Metrics, as Prometheus reads them."""
    return Response(state_of(request).metrics.text(), media_type=CONTENT_TYPE)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """The description of every endpoint as a page that loads nothing from elsewhere."""
    return HTMLResponse(
        render(request.app.openapi()),
        headers={"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )
