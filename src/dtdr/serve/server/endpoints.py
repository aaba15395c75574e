"""From a request's body to an endpoint's argument, and from its result to a response."""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Awaitable, Callable
from inspect import signature
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dtdr.net.bodies import read_body
from dtdr.serve.server.keys import Role
from dtdr.serve.server.models import AskedStep
from dtdr.serve.server.schemas import SearchBounds, with_step
from dtdr.serve.server.service import RequestContext

REFUSALS = {
    400: ("bad_request", "The body cannot be read."),
    401: ("unauthorized", "No valid key."),
    403: ("forbidden", "The key may not do this."),
    404: ("not_found", "There is no such model or tool."),
    405: ("method_not_allowed", ""),
    408: ("timeout", "The body took too long."),
    409: ("conflict", "The model cannot do this as it is."),
    413: ("too_large", "The body is too large."),
    415: ("unsupported_media_type", ""),
    421: ("misdirected", "The host is not this machine's."),
    422: ("invalid_request", "The request is not valid."),
    429: ("too_many", "Too much feedback was sent, or waits."),
    431: ("too_large", ""),
    500: ("internal_error", ""),
    502: ("encoder_failed", "The model's encoder failed."),
    503: ("unavailable", "The model folder cannot be used."),
    507: ("disk_full", "The disk of the server is full."),
}
"""By status: the type in an error's body, and the OpenAPI document's sentence; none if left out."""

_NO_OBJECT = "the body must be a JSON object, sent with Content-Type: application/json"
_JSON = re.compile(rb"application/(?:[^;\s]+\+)?json\s*(?:;|$)", re.IGNORECASE)
_ENCODE = msgspec.json.Encoder().encode


class Endpoint:
    """An ASGI application around one function.

    The function takes the context, and by parameter name the ``step`` that a model is asked about
    and the decoded ``body``. A request may leave out a body whose
    fields all have defaults. The function returns what is encoded as JSON, a response, or None.

    Args:
        method: of HTTP.
        path: with parameters in braces.
        function: a coroutine function; its docstring describes the endpoint.
        needs_query: whether the step of a request has a query.
        status: of a success.
        role: the key that a request needs; None for answers without models, queries and keys.
        is_described: whether the OpenAPI document has it.
    """

    def __init__(
        self,
        method: str,
        path: str,
        function: Callable[..., Awaitable[Any]],
        *,
        needs_query: bool = True,
        status: int = 200,
        role: Role | None = "rank",
        is_described: bool = True,
    ) -> None:
        self.method, self.path, self.function = method, path, function
        self.status = status
        self.role = role
        self.is_described = is_described
        described = signature(function, eval_str=True)
        types = {name: item.annotation for name, item in described.parameters.items()}
        self._is_asked = "step" in types
        self.name = function.__name__
        self.result = described.return_annotation
        self.body = types.get("body")
        if self._is_asked:
            name = path.rsplit("/", 1)[1].capitalize()
            self.body = with_step(f"{name}Request", types["body"], needs_query=needs_query)
        self.needs_body = self.body is not None and any(
            item.required for item in msgspec.structs.fields(self.body)
        )
        # Not strict: numbers may come as text, as from a form or a shell.
        self._decode = msgspec.json.Decoder(self.body, strict=False).decode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        context: RequestContext = scope["dtdr.context"]
        context.path, context.parameters = self.path, scope["path_params"]
        body: Any = None
        if self.body is not None:
            limits = context.service.settings.limits
            content = await read_body(receive, limits)
            context.started, context.size = time.perf_counter(), len(content)
            body = self._read(context, content.removeprefix(codecs.BOM_UTF8))
        if self.role == "admin":
            context.require_admin()
        arguments: list[Any] = [_read_step(context, body)] if self._is_asked else []
        if body is not None:
            arguments.append(body)
        result = await self.function(context, *arguments)
        if isinstance(result, Response):
            response = result
        elif result is None:
            response = Response(status_code=self.status)
        else:
            response = Response(encode(result), self.status, media_type="application/json")
        await response(scope, receive, send)

    def _read(self, context: RequestContext, content: bytes) -> Any:
        """The decoded body.

        Raises:
            HTTPException: it is not what the function takes.
        """
        if not content and not self.needs_body:
            return self._decode(b"{}")
        if not content or not _JSON.match(context.headers.get(b"content-type", b"")):
            raise HTTPException(422, _NO_OBJECT)
        try:
            return self._decode(content)
        except msgspec.ValidationError as error:
            raise HTTPException(422, validation_message(str(error))) from error
        except msgspec.DecodeError as error:
            raise HTTPException(400, f"the body is not JSON ({error})") from error
        except UnicodeError as error:  # or half a surrogate pair
            raise HTTPException(400, "the body is not UTF-8") from error


def _read_step(context: RequestContext, body: Any) -> AskedStep:
    """The step of a request; that of a search may be its text alone.

    Raises:
        HTTPException: there is no such model, or the step is too long.
    """
    service = context.service
    model, query = service.models.find(body.model), body.query
    if query is None:
        if body.history or body.before:
            raise HTTPException(422, "query: is missing; history and before are those of a query")
        query = ""
    else:
        service.check_step(query, body.history, body.before)
    context.log(model.name, query or body.text, calls=len(body.history))
    # The text of a search is not what the agent wrote before a call.
    text = None if isinstance(body, SearchBounds) else body.text
    return AskedStep(model, query, body.history, body.before, context.owner, text)


def encode(body: Any) -> bytes:
    """JSON of structs and plain values."""
    try:
        return _ENCODE(body)
    except UnicodeEncodeError:
        # Half a surrogate pair, in the name of a tool say, needs an escape.
        return json.dumps(msgspec.to_builtins(body), separators=(",", ":")).encode("ascii")


def error_body(status: int, message: str, request_id: str) -> bytes:
    """The JSON of an ``ErrorResponse``."""
    kind = REFUSALS[status][0] if status in REFUSALS else "error"
    return encode({"error": {"type": kind, "message": message, "request_id": request_id}})


def validation_message(text: str) -> str:
    """One sentence from msgspec's, which repeats no value that was sent."""
    reason, _, path = text.partition(" - at `$")
    where = re.sub(r"\[(\d+|\.\.\.)]", r".\1", path.rstrip("`")).strip(".")[:300]
    if not where and reason.startswith("Expected `object`"):
        return _NO_OBJECT
    if reason.startswith("Invalid enum value"):
        reason = "not one of the values that /openapi.json lists"
    reason = reason[:1].lower() + reason[1:300]
    return f"{where or 'the body'}: {reason}"
