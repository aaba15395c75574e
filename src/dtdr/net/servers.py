"""Common parts of servers: limits, the address, who may ask, settings of the process."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from dtdr.errors import InputError


@dataclass(frozen=True)
class Limits:
    """Limits of requests and connections.

    Attributes:
        connections: open at a time; the one that has waited longest for a request makes room.
        head_bytes: of a request: its line and headers.
        head_seconds: for a request's head to arrive, from its first byte or the connection's begin.
        idle_seconds: of an unused connection; longer than clients and proxies keep it (5 to 60 s),
            so that none of them sends into one that is being closed.
        body_bytes: of a request. 2,000 tools of 500 bytes are 1 MB.
        body_seconds: for a request's body to arrive.
        tools: in one request to a mask endpoint, and of a model that learns from feedback.
        history: calls of one history.
        query_characters: of one query; encoders read no more than 32,768.
        batch: steps in one request to ``/v1/rank/batch``.
        demonstrations: in one request to ``/v1/feedback``.
        hourly_demonstrations: of feedback that one key may send in an hour.
        ranking_seconds: for a ranking in a thread, such as one that asks a server.
        threads: of one model; further rankings wait for one.
    """

    connections: int = 1_000
    head_bytes: int = 32_768
    head_seconds: float = 10.0
    idle_seconds: float = 65.0
    body_bytes: int = 1_000_000
    body_seconds: float = 30.0
    tools: int = 2_000
    history: int = 1_000
    query_characters: int = 32_768
    batch: int = 256
    demonstrations: int = 256
    hourly_demonstrations: int = 1_000
    ranking_seconds: float = 10.0
    threads: int = 8

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:  # nor NaN
                raise InputError(f"the limit {name} is {value}; it must be more than 0")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; the only name is localhost."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_page(headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Status and reason to refuse a request of a web page, or None.

    Without keys, a server answers programs of this machine, and no web page. A page may point its
    own name at 127.0.0.1 (DNS rebinding), or let the browser post to 127.0.0.1, which then sends
    ``Origin``. Only browsers send it, and only this server's own pages may.

    Args:
        headers: by lower-case name.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if name and not is_loopback(name):
        return 421, "this server answers to localhost only"
    origin = headers.get(b"origin")
    if origin is not None and (not host or origin.decode("latin-1") != f"http://{host}"):
        return 403, "this server answers no web pages"
    return None


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections; InputError if the address cannot be used."""
    bare = host.strip("[]")
    try:
        family = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)[0][0]
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        listener = socket.create_server(
            (bare, port), family=family, backlog=2048, dualstack_ipv6=dual
        )
    except OSError as error:
        # Python's text repeats the address; numbers of failed look-ups are negative.
        code = error.errno or 0
        reason = os.strerror(code) if code > 0 else error.strerror or error
        raise InputError(
            f"cannot listen on {host} port {port}: {str(reason).lower()}; choose another address "
            "or port"
        ) from error
    # Connections inherit it. Without it, the second part of an answer waits 40 ms for the client.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def tune_process() -> None:
    """Keep pauses short, and let many connections be open.

    The garbage collector takes 30 ms for all that is loaded (77,000 objects), so it skips these and
    runs rarely: models, runs and requests have no reference cycles. A thread gives the
    interpreter back ten times sooner than usual. A connection is an open file; without a free one,
    the server neither accepts nor refuses a connection.

    Called once, when everything is loaded and before threads are started.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
    sys.setswitchinterval(0.0005)
    with contextlib.suppress(ImportError):  # on Windows
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            most = 8_192 if hard == resource.RLIM_INFINITY else min(8_192, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
