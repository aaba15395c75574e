"""The page of the studio, from files of the package."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources

from starlette.responses import RedirectResponse, Response

from dtdr.serve.server.endpoints import Endpoint
from dtdr.serve.server.service import RequestContext

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)
"""Nothing from other hosts, no inline script or style, and no other page around it."""

_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",  # names have no hash, and 80 kB from this machine take no time
}
_FILES = {
    "/studio": ("index.html", "text/html"),
    "/studio/studio.js": ("studio.js", "text/javascript"),
    "/studio/studio.css": ("studio.css", "text/css"),
    "/studio/icon.svg": ("icon.svg", "image/svg+xml"),
}


def pages() -> list[Endpoint]:
    """One endpoint for each file; they need no key."""
    return [
        Endpoint("GET", path, _send(name, kind), is_described=False, role=None)
        for path, (name, kind) in _FILES.items()
    ]


async def lead_to_studio(context: RequestContext) -> RedirectResponse:
    """Open the studio at the server's address."""
    return RedirectResponse("/studio")


def _send(name: str, kind: str) -> Callable[[RequestContext], Awaitable[Response]]:
    content = resources.files("dtdr.serve.studio").joinpath("static", name).read_bytes()

    async def send(context: RequestContext) -> Response:
        """A file of the page."""
        return Response(content, 200, _HEADERS, kind)

    return send
