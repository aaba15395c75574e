"""What every request passes: its id, host and key before it is answered; metrics and log after."""

from __future__ import annotations

import logging
import random
import re
import time
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dtdr.errors import DtdrError, EncoderError, InputError, ModelError, UnavailableError
from dtdr.feedback import DuplicateError
from dtdr.server.endpoints import Call, error_body
from dtdr.server.keys import ApiKey
from dtdr.server.logs import Tally, log, log_failure
from dtdr.server.origins import refuse_page
from dtdr.server.service import Service

_NUMBERS = random.Random()
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMiddleware:
    """Checks requests, answers errors, and counts and logs what was answered."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._refused = Tally("requests without a valid key")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        call = scope["dtdr.call"] = Call(self._service, _request_id(headers), headers)
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", call.id.encode("ascii")))
            await send(message)

        with self._service.tracing.request(scope, headers) as span:
            try:
                self._check_head(scope)
                self._check_host(headers)
                call.key = self._check_key(scope, headers)
                await self._app(scope, receive, send_with_id)
            except Exception as error:  # noqa: BLE001  # whatever it is, the client gets an answer
                if not status:
                    await refuse(Request(scope), error)(scope, receive, send_with_id)
                else:
                    log_failure(call.id)
            finally:
                span.record(call.path, status)
                self._note(scope, call, status)

    # -- before --------------------------------------------------------------------------------

    def _check_head(self, scope: Scope) -> None:
        limit = self._service.settings.limits.head_bytes
        size = len(scope.get("raw_path", b"")) + len(scope["query_string"])
        if size + sum(len(name) + len(value) for name, value in scope["headers"]) > limit:
            raise HTTPException(
                431, f"the head is larger than {limit} bytes, the limit", {"connection": "close"}
            )

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Without keys, refuse names that are not this machine's, and requests of web pages."""
        if self._service.keys is None and (refusal := refuse_page(headers)):
            status, reason = refusal
            raise HTTPException(status, f"{reason}; start it with keys to use it from elsewhere")

    def _check_key(self, scope: Scope, headers: dict[bytes, bytes]) -> ApiKey | None:
        """The key of a request; one and the same answer for every way in which it can be wrong."""
        keys = self._service.keys
        if keys is None or scope["path"] in self._service.open_paths:
            return None
        presented = headers.get(b"x-api-key", b"")
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            presented = token.strip()
        key = keys.find(presented.decode("latin-1"))
        if key is None:
            # Keys are too long to be guessed, so no client is locked out.
            self._service.metrics.refused_keys.inc()
            self._refused.add("count")
            raise HTTPException(
                401,
                "send a valid key as: Authorization: Bearer KEY",
                {"www-authenticate": "Bearer"},
            )
        return key

    # -- after ---------------------------------------------------------------------------------

    def _note(self, scope: Scope, call: Call, status: int) -> None:
        seconds = time.perf_counter() - call.started
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._service.metrics.count_request(call.path, method, status, seconds)
        if not self._service.settings.log_requests and status < 500:
            return
        log(
            "request",
            level=logging.ERROR if status >= 500 else logging.INFO,
            id=call.id,
            method=method,
            route=call.path,
            status=status,
            ms=round(seconds * 1e3, 3),
            **({} if call.key is None else {"key": call.key.id}),
            **call.log_fields,
        )


def refuse(request: Request, error: Exception) -> Response:
    """The response to a request that raised an error."""
    call: Call = request.scope["dtdr.call"]
    headers = dict(getattr(error, "headers", None) or {})
    match error:
        case HTTPException():
            status, message = error.status_code, _reason(request.method, error)
        case DuplicateError():
            status, message = 409, str(error)
        case InputError():
            status, message = 422, str(error)
        case UnavailableError():
            status, message = 503, str(error)
            headers["retry-after"] = "1"
        case EncoderError():
            status, message = 502, str(error)
        case ModelError():
            status, message = 503, str(error)
        case DtdrError():
            status, message = 500, str(error)
        case RecursionError():
            status, message = 422, "the request is nested too deeply"
        case _:
            log_failure(call.id)
            status, message = 500, "the server failed; its log has the reason"
    body = error_body(status, message, call.id)
    return Response(body, status, headers, "application/json")


def _reason(method: str, error: HTTPException) -> str:
    """What the error says; where the router raised it, what would work."""
    if error.detail != HTTPStatus(error.status_code).phrase:
        return error.detail
    if error.status_code == 404:
        return "there is nothing at this path; see /docs"
    allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
    return f"{method[:16]} does not work here; use {' or '.join(allowed)}"


def _request_id(headers: dict[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if _REQUEST_ID.fullmatch(given) else _NUMBERS.randbytes(8).hex()
