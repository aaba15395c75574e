"""``/v1/models``: what is served, reloaded and saved."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from dtdr.server import schemas
from dtdr.server.models import ServedModel
from dtdr.server.reloading import reload_model, save_model
from dtdr.server.state import require_admin, state_of

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("")
async def list_models(request: Request) -> schemas.ModelsResponse:
    """Every served model."""
    shelf = state_of(request).shelf
    return schemas.ModelsResponse(
        models=[schemas.ModelResponse(**_describe(model)) for model in shelf.values()]
    )


@router.get("/{model}")
async def show(request: Request, model: str) -> schemas.ModelDetail:
    """One model and its tool vocabulary."""
    found = state_of(request).shelf.find(model)
    return schemas.ModelDetail(
        **_describe(found), vocabulary=list(found.current.retriever.vocabulary)
    )


@router.post("/{model}/reload")
async def reload(request: Request, model: str) -> schemas.ModelResponse:
    """Load a model's folder again; what was learned and not saved is dropped. Role: admin."""
    require_admin(request)
    state = state_of(request)
    found = state.shelf.find(model)
    await reload_model(state, found)
    return schemas.ModelResponse(**_describe(found))


@router.post("/{model}/save")
async def save(request: Request, model: str) -> schemas.ModelResponse:
    """Write what feedback taught a model to its folder. Role: admin."""
    require_admin(request)
    state = state_of(request)
    found = state.shelf.find(model)
    await save_model(state, found)
    return schemas.ModelResponse(**_describe(found))


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
