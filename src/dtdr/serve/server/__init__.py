"""Ranking over HTTP: ``dtdr serve MODEL…``, or ``create_app(settings)`` under any ASGI server.

Everything beside the ranking is done by well-kept libraries: Starlette for routes, msgspec
for validation and JSON, uvicorn for HTTP, prometheus_client for metrics.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dtdr.errors import MissingExtraError
from dtdr.net.limits import Limits
from dtdr.serve.server.settings import Settings

if TYPE_CHECKING:
    from starlette.applications import Starlette

_NEEDED = ("starlette", "msgspec", "uvicorn", "prometheus_client")


def require_server() -> None:
    """Check that the packages of the extra are there.

    Raises:
        MissingExtraError: one is missing.
    """
    for package in _NEEDED:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise MissingExtraError("the HTTP server", "server", package) from error


def create_app(settings: Settings, **given: Any) -> Starlette:
    """The application, with its models loaded; see ``dtdr.serve.server.app.create_app``.

    Raises:
        InputError: the settings contradict themselves.
        ModelError: a model folder cannot be used.
        MissingExtraError: the extra ``server`` is not installed.
    """
    require_server()
    from dtdr.serve.server.app import create_app as create

    return create(settings, **given)


def serve(settings: Settings, **given: Any) -> None:
    """Serve until SIGINT or SIGTERM; see ``dtdr.serve.server.launch.serve``."""
    require_server()
    from dtdr.serve.server.launch import serve as run

    run(settings, **given)


__all__ = ["Limits", "Settings", "create_app", "require_server", "serve"]
