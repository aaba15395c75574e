"""What every request to a server of the user's needs: its address, its key, and no detours."""

from __future__ import annotations

import urllib.request
from typing import Any
from urllib.parse import SplitResult, urlsplit

from dtdr.errors import InputError


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the key to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing."""


def address(url: str) -> SplitResult | None:
    """The parts of an http or https URL that can be sent to; None for any other text."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        usable = parts.port != 0 and parts.path.isascii() and parts.path.isprintable()
    except ValueError:  # a broken port, bracket, or label of the host name
        return None
    if not host or not usable or " " in url or parts.scheme not in ("http", "https"):
        return None
    return parts


def json_headers(key: str | None, variable: str) -> dict[str, str]:
    """Headers of a JSON request, with the key as a bearer token where there is one.

    Args:
        key: may end with the line break of the file that it was read from.
        variable: the environment variable that it comes from, for the error.

    Raises:
        InputError: the key holds characters that no header may hold; it is not shown.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    key = (key or "").strip()
    if not key.isascii() or not key.isprintable():
        raise InputError(
            f"the key in the environment variable {variable} holds a character that no key has; "
            "set it again"
        )
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return headers
