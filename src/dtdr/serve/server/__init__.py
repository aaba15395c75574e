"""Ranking over HTTP: ``dtdr serve MODEL…``, or ``create_app(settings)`` under any ASGI server.

Starlette has the routes, msgspec validation and JSON, uvicorn HTTP, prometheus_client metrics.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dtdr.errors import MissingExtraError
from dtdr.net.servers import Limits
from dtdr.serve.server.settings import Settings

if TYPE_CHECKING:
    from starlette.applications import Starlette


def require_server() -> None:
    """Check that the packages of the extra are there.

    Raises:
        MissingExtraError: one is missing.
    """
    for package in ("starlette", "uvicorn", "prometheus_client"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise MissingExtraError("the HTTP server", "server", package) from error


def create_app(settings: Settings, **options: Any) -> Starlette:
    """The application, with its models loaded; see ``dtdr.serve.server.app.create_app``."""
    require_server()
    from dtdr.serve.server import app

    return app.create_app(settings, **options)


def serve(settings: Settings, **options: Any) -> None:
    """Serve until SIGINT or SIGTERM; see ``dtdr.serve.server.launch.serve``."""
    require_server()
    from dtdr.serve.server import launch

    launch.serve(settings, **options)


__all__ = ["Limits", "Settings", "create_app", "require_server", "serve"]
