"""Refusals: every response that is no success has one shape and a one-sentence reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dtdr.errors import DtdrError, EncoderError, InputError, ModelError

KINDS = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    422: "invalid_request",
    429: "too_many",
    500: "internal_error",
    502: "encoder_failed",
    503: "unavailable",
}


class RefusedError(Exception):
    """A request that is answered with a reason instead of a result."""

    def __init__(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def refusal_of(error: DtdrError) -> RefusedError:
    """The refusal that an error of the library means."""
    if isinstance(error, InputError):
        return RefusedError(422, str(error))
    if isinstance(error, EncoderError):
        return RefusedError(502, str(error))
    if isinstance(error, ModelError):
        return RefusedError(503, str(error))
    return RefusedError(500, str(error))


def error_body(status: int, message: str, request_id: str) -> bytes:
    """The JSON of an ``ErrorResponse``; ASCII, so that no text can be unfit for UTF-8."""
    kind = KINDS.get(status, "error")
    body = {"error": {"type": kind, "message": message, "request_id": request_id}}
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def validation_message(errors: Sequence[Mapping[str, Any]]) -> str:
    """One sentence about the first thing that is wrong with a request, and how many more are.

    What was sent is not repeated: it may be anything, and of any size.
    """
    if not errors:
        return "the request does not fit the description in /openapi.json"
    first = errors[0]
    where = ".".join(str(part)[:64] for part in first.get("loc", ()) if part != "body")
    reason = str(first.get("msg", "is not valid"))
    reason = reason[:1].lower() + reason[1:300]
    if first.get("type") == "json_invalid":
        return f"the body is not JSON ({first.get('ctx', {}).get('error', 'cannot be read')})"
    if first.get("type") in ("missing", "model_attributes_type") and not where:
        return "the body must be a JSON object, sent with Content-Type: application/json"
    if first.get("type") == "extra_forbidden":
        reason = "is no field of this request"
    sentence = f"{where}: {reason}" if where else f"the body is not valid: {reason}"
    more = len(errors) - 1
    return sentence + (f" (and {more} more)" if more else "")
