"""Who may ask a server that asks for no key: programs of this machine, and no web page."""

from __future__ import annotations

from collections.abc import Mapping

from dtdr.net.limits import is_loopback


def refuse_page(headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Status and reason where a request comes from a web page, or would let one in.

    A web page may point its own name at 127.0.0.1 and let a browser send requests there (DNS
    rebinding), or have the browser post to 127.0.0.1, which says so in ``Origin``. Nothing but a
    browser sends an origin, so only pages of this very server may.

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
