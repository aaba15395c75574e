"""Runs the application with uvicorn, in one process."""

from __future__ import annotations

import math
import signal
import socket
import threading
from collections.abc import Callable, Sequence

import uvicorn
from starlette.applications import Starlette

from dtdr.net.connections import limit_connections
from dtdr.net.servers import listen, tune_process
from dtdr.serve.server import logs
from dtdr.serve.server.app import create_app
from dtdr.serve.server.endpoints import Endpoint, error_body
from dtdr.serve.server.service import Service
from dtdr.serve.server.settings import Settings

_STOP_SECONDS = 20
"""For requests to end after the signal to stop."""


def serve(
    settings: Settings,
    *,
    more: Sequence[Endpoint] = (),
    on_listening: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: of the server.
        more: further endpoints.
        on_listening: called with the address once connections are accepted.

    Raises:
        InputError: the server cannot listen on the address.
        ModelError: a model folder cannot be used.
    """
    logs.configure()
    app = create_app(settings, more=more)
    listener = listen(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    on_listening(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    if threading.current_thread() is threading.main_thread():
        # uvicorn ends gracefully and raises the signal again, which is no failure.
        signal.signal(signal.SIGTERM, lambda *_: None)
    tune_process()
    with listener:
        server(app).run(sockets=[listener])


def server(app: Starlette) -> uvicorn.Server:
    """The server with all its settings."""
    service: Service = app.state.service
    limits = service.settings.limits
    protocol = limit_connections(
        limits,
        lambda status, reason: error_body(status, reason, ""),
        lambda reason: service.metrics.refused_connections.labels(reason).inc(),
    )
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=math.ceil(limits.idle_seconds),
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    return _Server(config, service)


class _Server(uvicorn.Server):
    """Gives up long work when it stops."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        await super().shutdown(sockets)
