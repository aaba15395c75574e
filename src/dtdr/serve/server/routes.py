"""All endpoints, and those of the server itself: its health, metrics and description."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from dtdr._version import VERSION
from dtdr.serve.server import actions, masks, model_routes, openapi, schemas
from dtdr.serve.server.endpoints import Endpoint, encode
from dtdr.serve.server.service import RequestContext


async def show_health(context: RequestContext) -> schemas.Health:
    """Whether the process answers. Needs no key."""
    return schemas.Health(version=VERSION)


async def show_readiness(context: RequestContext) -> schemas.Health:
    """Whether models are loaded and the server is not stopping (503). Needs no key."""
    if context.service.is_stopping:
        raise HTTPException(503, "the server is stopping")
    return schemas.Health(version=VERSION, failing=len(context.service.failures))


async def show_metrics(context: RequestContext) -> PlainTextResponse:
    """Metrics, as Prometheus reads them."""
    metrics = context.service.metrics
    return PlainTextResponse(metrics.text(), media_type=metrics.content_type)


async def show_document(context: RequestContext) -> Response:
    """Every endpoint, for programs."""
    return Response(encode(context.service.document), media_type="application/json")


async def show_page(context: RequestContext) -> HTMLResponse:
    """Every endpoint, as a page that loads nothing from elsewhere."""
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse(openapi.page(context.service.document), headers=headers)


ENDPOINTS = (
    # The router looks from the top: first the requests of every step.
    Endpoint("POST", "/v1/rank", actions.rank),
    Endpoint("POST", "/v1/search", actions.search, needs_query=False),
    Endpoint("POST", "/v1/calls", actions.predict_calls),
    Endpoint("POST", "/v1/plans", actions.predict_plans),
    Endpoint("POST", "/v1/mask/openai", masks.mask_openai),
    Endpoint("POST", "/v1/mask/anthropic", masks.mask_anthropic),
    Endpoint("POST", "/v1/rank/batch", actions.rank_batch),
    Endpoint("POST", "/v1/explain", actions.explain),
    Endpoint("POST", "/v1/feedback", model_routes.feedback, status=202, role="admin"),
    Endpoint("GET", "/v1/models", model_routes.list_models),
    Endpoint("GET", "/v1/models/{model}", model_routes.show_model),
    Endpoint("POST", "/v1/models/{model}/reload", model_routes.reload_model, role="admin"),
    Endpoint(
        "POST", "/v1/models/{model}/tools", model_routes.change_tools, status=202, role="admin"
    ),
    Endpoint("POST", "/v1/models/{model}/save", model_routes.save_model, role="admin"),
    Endpoint("GET", "/healthz", show_health, role=None),
    Endpoint("GET", "/readyz", show_readiness, role=None),
    Endpoint("GET", "/metrics", show_metrics),
    Endpoint("GET", "/openapi.json", show_document, is_described=False, role=None),
    Endpoint("GET", "/docs", show_page, is_described=False, role=None),
)
