"""Around every request: its id, host and key before the answer; metrics and log after it."""

from __future__ import annotations

import errno
import logging
import re
import secrets
import time
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dtdr.errors import (
    DtdrError,
    EncoderError,
    InputError,
    ModelError,
    OutputError,
    UnavailableError,
)
from dtdr.net.servers import refuse_page
from dtdr.serve.feedback import DuplicateError
from dtdr.serve.server.endpoints import error_body
from dtdr.serve.server.keys import ApiKey, find_key
from dtdr.serve.server.logs import log, logger
from dtdr.serve.server.service import RequestContext, Service

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_STATUSES: dict[type[DtdrError], int] = {
    DuplicateError: 409,
    InputError: 422,
    UnavailableError: 503,
    EncoderError: 502,
    ModelError: 503,
    DtdrError: 500,
}
"""By kind of error; the first that matches counts."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMiddleware:
    """Checks requests, answers errors, and counts and logs what was answered."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        name = headers.get(b"x-request-id", b"").decode("latin-1")
        name = name if _REQUEST_ID.fullmatch(name) else secrets.token_hex(8)
        context = scope["dtdr.context"] = RequestContext(self._service, name, headers)
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [
                    (b"x-request-id", context.id.encode("ascii")),
                    (b"x-content-type-options", b"nosniff"),
                ]
            await send(message)

        try:
            self._check_host(headers)
            context.key = self._check_key(scope, headers)
            await self._app(scope, receive, send_with_id)
        except Exception as error:  # noqa: BLE001  # the client always gets an answer
            if not status:
                await refuse(Request(scope), error)(scope, receive, send_with_id)
            else:
                logger.error("request failed", exc_info=True, extra={"fields": {"id": context.id}})
        finally:
            self._note(scope, context, status)

    # -- before --------------------------------------------------------------------------------

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Without keys, refuse other names than this machine's, and requests of web pages."""
        if self._service.keys is None and (refusal := refuse_page(headers)):
            status, reason = refusal
            raise HTTPException(status, f"{reason}; start it with keys to use it from elsewhere")

    def _check_key(self, scope: Scope, headers: dict[bytes, bytes]) -> ApiKey | None:
        """The key of a request; every wrong one gets the same answer."""
        keys = self._service.keys
        if keys is None or scope["path"] in self._service.open_paths:
            return None
        presented = headers.get(b"x-api-key", b"")
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            presented = token.strip()
        key = find_key(keys, presented.decode("latin-1"))
        if key is None:
            # A key cannot be guessed, so no client is locked out.
            self._service.metrics.refused_keys.inc()
            reason = "send a valid key as: Authorization: Bearer KEY"
            raise HTTPException(401, reason, {"www-authenticate": "Bearer"})
        return key

    # -- after ---------------------------------------------------------------------------------

    def _note(self, scope: Scope, context: RequestContext, status: int) -> None:
        seconds = time.perf_counter() - context.started
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._service.metrics.requests.labels(context.path, method, status).inc()
        self._service.metrics.seconds.labels(context.path).observe(seconds)
        if not self._service.settings.log_requests and status < 500:
            return
        log(
            "request",
            level=logging.ERROR if status >= 500 else logging.INFO,
            id=context.id,
            method=method,
            route=context.path,
            status=status,
            ms=round(seconds * 1e3, 3),
            **({} if context.key is None else {"key": context.key.id}),
            **context.log_fields,
        )


def refuse(request: Request, error: Exception) -> Response:
    """The response to a request that raised an error."""
    context: RequestContext = request.scope["dtdr.context"]
    headers = dict(getattr(error, "headers", None) or {})
    if isinstance(error, HTTPException):
        status, message = error.status_code, _reason(request.method, error)
    elif isinstance(error, OutputError):
        status, message = _explain_output(error)
    elif isinstance(error, DtdrError):
        status = next(status for kind, status in _STATUSES.items() if isinstance(error, kind))
        message = str(error)
    elif isinstance(error, RecursionError):
        status, message = 422, "the request is nested too deeply"
    else:
        logger.error("request failed", exc_info=True, extra={"fields": {"id": context.id}})
        status, message = 500, "the server failed; its log has the reason"
    if isinstance(error, UnavailableError):
        headers["retry-after"] = "1"
    body = error_body(status, message, context.id)
    return Response(body, status, headers, "application/json")


def _explain_output(error: OutputError) -> tuple[int, str]:
    """Status and reason of a failed write, without its path."""
    if getattr(error.__cause__, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return 507, "the disk of the server is full; nothing was kept, try again later"
    return 503, "the server cannot write its files, and its log says why; nothing was kept"


def _reason(method: str, error: HTTPException) -> str:
    """The error's sentence; for one of the router's, what would work."""
    if error.detail != HTTPStatus(error.status_code).phrase:
        return error.detail
    if error.status_code == 404:
        return "there is nothing at this path; see /docs"
    allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
    return f"{method[:16]} does not work here; use {' or '.join(allowed)}"
