"""Listening: uvicorn, one process."""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence

import uvicorn
from starlette.applications import Starlette

from dtdr.errors import InputError
from dtdr.net import server_logs
from dtdr.net.connections import Connections
from dtdr.serve.server.app import create_app
from dtdr.serve.server.endpoints import Endpoint, error_body
from dtdr.serve.server.process import tune_process
from dtdr.serve.server.service import Service
from dtdr.serve.server.settings import Settings

_STOP_SECONDS = 20
"""Requests under way may take so long to end when the server is told to stop."""


def serve(
    settings: Settings,
    *,
    more: Sequence[Endpoint] = (),
    on_listening: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: see there.
        more: further endpoints.
        on_listening: called with the address once connections are accepted.

    Raises:
        InputError: the address cannot be listened on, or the settings contradict themselves.
        ModelError: a model folder cannot be used.
    """
    server_logs.configure()
    app = create_app(settings, more=more)
    listener = listen(settings)
    host, port = listener.getsockname()[:2]
    on_listening(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    if threading.current_thread() is threading.main_thread():
        # uvicorn ends gracefully and then raises the signal again; having ended as told is no
        # failure.
        signal.signal(signal.SIGTERM, lambda *_: None)
    tune_process(settings.limits.connections)
    with listener:
        server(app).run(sockets=[listener])


def server(app: Starlette) -> uvicorn.Server:
    """A server of one process; its settings are all here."""
    service: Service = app.state.service
    limits = service.settings.limits
    connections = Connections(
        limits,
        lambda status, reason: error_body(status, reason, ""),
        lambda reason: service.metrics.refused_connections.labels(reason).inc(),
    )
    config = uvicorn.Config(
        app,
        http=connections.protocol,
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
    """Has what waits for other servers end at once when it is told to stop."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        await super().shutdown(sockets)


def listen(settings: Settings) -> socket.socket:
    """A socket that accepts connections.

    Raises:
        InputError: the address cannot be listened on.
    """
    host = settings.host.strip("[]")
    try:
        family = socket.getaddrinfo(host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server(
            (host, settings.port),
            family=family,
            backlog=2048,
            dualstack_ipv6=family == socket.AF_INET6 and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        # What Python says of a port has the address in it once more.
        is_of_system = isinstance(error.errno, int) and error.errno > 0
        reason = os.strerror(error.errno or 0) if is_of_system else error.strerror or str(error)
        raise InputError(
            f"cannot listen on {settings.host} port {settings.port}: {reason.lower()}; choose "
            "another --host or --port, or port 0 for a free one"
        ) from error
