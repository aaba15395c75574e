"""Without keys, a server answers programs of this machine, and no web page."""

from __future__ import annotations

from collections.abc import Mapping

from dtdr.net.limits import is_loopback


def refuse_page(headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Status and reason to refuse a request of a web page, or None.

    A page may point its own name at 127.0.0.1 (DNS rebinding), or let the browser post to
    127.0.0.1, which then sends ``Origin``. Only browsers send it, and only this server's own pages
    may.

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
