"""Ports for servers that tests start in processes of their own."""

import itertools
import os
import socket

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
# Below the ports that the system gives to whoever asks for any, and for each worker its own.
_FIRST, _PORTS_PER_WORKER = 20_000, 1_500
_ports = itertools.cycle(
    range(_FIRST + _WORKER * _PORTS_PER_WORKER, _FIRST + (_WORKER + 1) * _PORTS_PER_WORKER)
)


def free_port() -> int:
    """A port on which nothing listens, and which no other worker of the tests is given."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("every port is taken")
