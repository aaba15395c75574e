"""What every request passes before FastAPI sees it: host, key, size; and after: metrics, log."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from dtdr.errors import DtdrError
from dtdr.server.answers import RefusedError, error_body, refusal_of
from dtdr.server.direct import Direct
from dtdr.server.keys import ApiKey
from dtdr.server.logs import log
from dtdr.server.settings import is_loopback
from dtdr.server.state import State

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs"})
"""Need no key: they say nothing about models, queries or keys."""

_NUMBERS = random.Random()
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DRAIN_BYTES = 64_000_000
"""So much of a body that is too large is read and dropped, so that its sender reads the reason."""

_LOG_REFUSED_SECONDS = 10.0
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Gate:
    """ASGI middleware around the whole application.

    Args:
        app: what answers.
        state: of the server.
        direct: the short way to some endpoints; None sends every request through ``app``.
    """

    def __init__(self, app: App, state: State, direct: Direct | None = None) -> None:
        self._app = app
        self._direct = direct
        self._state = state
        self._limits = state.settings.limits
        self._refused = 0
        self._refused_logged = -_LOG_REFUSED_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = _request_id(headers)
        scope["dtdr.request_id"] = request_id
        answer = _Answer(send, request_id)
        started = time.perf_counter()
        try:
            self._check_host(scope, headers)
            scope["dtdr.key"] = self._check_key(scope, headers)
            body = await self._read(headers, receive)
            started = time.perf_counter()
            direct = None if self._direct is None else self._direct.find(scope, headers, body)
            if direct is None:
                await self._app(scope, _replay(body, receive), answer)
            else:
                scope["route"], respond = direct
                await answer.respond(await respond(Request(scope)))
        except RefusedError as error:
            await answer.refuse(error.status, error.message, error.headers)
        except DtdrError as error:
            refusal = refusal_of(error)
            await answer.refuse(refusal.status, refusal.message, refusal.headers)
        except RecursionError:
            await answer.refuse(422, "the request is nested too deeply", {})
        except Exception:  # noqa: BLE001  # whatever it is, the client gets an answer
            log_failure(request_id)
            if not answer.status:
                await answer.refuse(500, "the server failed; its log has the reason", {})
        finally:
            self._note(scope, answer.status, time.perf_counter() - started)

    # -- before --------------------------------------------------------------------------------

    def _check_host(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Without keys, refuse names that are not this machine's.

        A web page may point its own name at 127.0.0.1 and let a browser send requests there (DNS
        rebinding).
        """
        if self._state.keys is not None:
            return
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name and not is_loopback(name):
            raise RefusedError(
                421, "this server answers to localhost only; start it with keys to use other names"
            )

    def _check_key(self, scope: Scope, headers: dict[bytes, bytes]) -> ApiKey | None:
        """The key of a request; one and the same answer for every way in which it can be wrong."""
        keys = self._state.keys
        if keys is None or scope["path"] in OPEN_PATHS:
            return None
        given = headers.get(b"x-api-key", b"")
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            given = token.strip()
        found = keys.find(given.decode("latin-1"))
        if found is None:
            self._count_refused()
            raise RefusedError(
                401,
                "send a valid key as: Authorization: Bearer KEY",
                headers={"www-authenticate": "Bearer"},
            )
        return found

    def _count_refused(self) -> None:
        """Keys are too long to be guessed, so nobody is locked out; but a flood fills no log."""
        self._state.metrics.refused_keys.inc()
        self._refused += 1
        now = time.monotonic()
        if now - self._refused_logged >= _LOG_REFUSED_SECONDS:
            log("requests without a valid key", level=logging.WARNING, count=self._refused)
            self._refused, self._refused_logged = 0, now

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        limit = self._limits.body_bytes
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the connection was closed within the body")
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size <= limit:
                        chunks.append(chunk)
                    elif size > _DRAIN_BYTES:
                        break
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise RefusedError(
                408,
                f"the body did not arrive within {self._limits.body_seconds:g} s",
                headers={"connection": "close"},
            ) from None
        if size > limit:
            raise RefusedError(
                413,
                f"the body is larger than {limit} bytes, which is the limit",
                headers={"connection": "close"},
            )
        return b"".join(chunks)

    # -- after ---------------------------------------------------------------------------------

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "unmatched"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._state.metrics.count_request(route, method, status, seconds)
        if not self._state.settings.log_requests and status < 500:
            return
        key: ApiKey | None = scope.get("dtdr.key")
        log(
            "request",
            level=logging.ERROR if status >= 500 else logging.INFO,
            id=scope["dtdr.request_id"],
            method=method,
            route=route,
            status=status,
            ms=round(seconds * 1e3, 3),
            **({} if key is None else {"key": key.id}),
            **scope.get("dtdr.log", {}),
        )


class _Answer:
    """Sends a response with the request's id, and remembers its status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ())]
            headers.append((b"x-request-id", self._request_id.encode("ascii")))
            message = {**message, "headers": headers}
        await self._send(message)

    async def respond(self, response: Response) -> None:
        await self(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": response.raw_headers,
            }
        )
        await self({"type": "http.response.body", "body": response.body})

    async def refuse(self, status: int, message: str, headers: dict[str, str]) -> None:
        body = error_body(status, message, self._request_id)
        pairs = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode("ascii")),
            *((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()),
        ]
        await self({"type": "http.response.start", "status": status, "headers": pairs})
        await self({"type": "http.response.body", "body": body})


def log_failure(request_id: str) -> None:
    """Log the exception that is being handled, without its text."""
    logging.getLogger("dtdr.server").error(
        "request failed", exc_info=True, extra={"fields": {"id": request_id}}
    )


def _request_id(headers: dict[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if _REQUEST_ID.fullmatch(given) else _NUMBERS.randbytes(8).hex()


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, as one message; then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return cast(Receive, replay)
