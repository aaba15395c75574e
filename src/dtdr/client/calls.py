"""What both clients send, and how they read what comes back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlsplit

from dtdr.client.answers import InvalidRequestError, ServerError
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError, MissingExtraError

KEY_VARIABLE = "DTDR_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8756"

AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which the same question may get an answer."""

PAUSE = 0.1
"""Seconds before the second try, doubled each time."""

PATIENCE = 120.0
"""Seconds for learning, loading and saving."""

LONGEST_PAUSE = 5.0
"""Seconds; a server that asks for a longer pause is not waited for."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        repeatable: whether asking twice does no more than asking once.
        seconds: for an answer, where that takes longer than a ranking.
    """

    method: str
    path: str
    body: dict[str, Any] | None = None
    repeatable: bool = True
    seconds: float | None = None


def http_library() -> ModuleType:
    """The package that speaks HTTP.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import httpx2
    except ImportError as error:
        raise MissingExtraError("the client", "client", "httpx2") from error
    return httpx2


def headers(key: str | None) -> dict[str, str]:
    """Headers of every request; the key is ``$DTDR_API_KEY`` where none is given."""
    key = key if key is not None else os.environ.get(KEY_VARIABLE)
    found = {"accept": "application/json"}
    if key:
        if not key.isascii() or not key.isprintable():
            raise InputError("the key holds characters that no key has; copy it again")
        found["authorization"] = f"Bearer {key}"
    return found


def checked_url(url: str) -> str:
    """The server's address without a slash at its end.

    Raises:
        InputError: it is no http or https address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is no server's address; write it as {DEFAULT_URL}")
    return url.rstrip("/")


def selection(
    top_k: int | None,
    threshold: float | None,
    coverage: float | None,
    token_budget: int | None,
) -> dict[str, Any]:
    """The part of a request that says which tools to send."""
    given = {
        "top_k": top_k,
        "threshold": threshold,
        "coverage": coverage,
        "token_budget": token_budget,
    }
    return {name: value for name, value in given.items() if value is not None}


def rank_call(
    query: str, history: Sequence[str], model: str | None, chosen: Mapping[str, Any]
) -> Call:
    """``/v1/rank``."""
    return Call("POST", "/v1/rank", _step(query, history) | named(model) | dict(chosen))


def batch_call(
    queries: Sequence[str],
    histories: Sequence[Sequence[str]],
    model: str | None,
    chosen: Mapping[str, Any],
) -> Call:
    """``/v1/rank/batch``.

    Raises:
        InputError: the two differ in length.
    """
    if len(queries) != len(histories):
        raise InputError(f"{len(queries)} queries but {len(histories)} histories were given")
    steps = [_step(*pair) for pair in zip(queries, histories, strict=True)]
    return Call("POST", "/v1/rank/batch", {"steps": steps} | named(model) | dict(chosen))


def session_call(query: str, history: Sequence[str], model: str | None) -> Call:
    """``/v1/sessions``; not repeated, since a lost answer leaves a session open."""
    return Call("POST", "/v1/sessions", _step(query, history) | named(model), repeatable=False)


def feedback_call(
    demonstrations: Iterable[Demonstration | Mapping[str, Any]], model: str | None
) -> Call:
    """``/v1/feedback``; not repeated, since learning twice is not learning once."""
    records = [_lesson(item) for item in demonstrations]
    body = {"demonstrations": records} | named(model)
    return Call("POST", "/v1/feedback", body, repeatable=False, seconds=PATIENCE)


def mask_call(
    provider: str,
    request: Mapping[str, Any],
    form: str | None,
    policy: Mapping[str, Any] | None,
    model: str | None,
) -> Call:
    """``/v1/mask/openai`` or ``/v1/mask/anthropic``."""
    body: dict[str, Any] = {"request": dict(request)} | named(model)
    if form is not None:
        body["form"] = form
    if policy is not None:
        body["policy"] = dict(policy)
    return Call("POST", f"/v1/mask/{provider}", body)


def model_call(action: str, model: str) -> Call:
    """``/v1/models/{model}/reload`` and ``/save``."""
    return Call("POST", f"/v1/models/{quote(model, safe='')}/{action}", seconds=PATIENCE)


def named(model: str | None) -> dict[str, Any]:
    """The field that names a model; without one the server's only model is meant."""
    return {} if model is None else {"model": model}


def read(status: int, content: bytes) -> Any:
    """The JSON of a response, None where there is none.

    Raises:
        ServerError: the response is no success, or no JSON.
    """
    parsed: Any = None
    if content:
        try:
            parsed = json.loads(content)
        except ValueError:
            if 200 <= status < 300:
                status = 0
    if not 200 <= status < 300:
        raise _error_of(status, content, parsed)
    return parsed


def not_reached(url: str, error: Exception) -> ServerError:
    """The error of a request without a response."""
    reason = str(error) or type(error).__name__
    if isinstance(error, http_library().ConnectError | http_library().ConnectTimeout):
        return ServerError(f"{url} was not reached ({reason}); start it with: dtdr serve")
    return ServerError(f"{url} did not answer ({reason}); try again, or give more time")


def _error_of(status: int, content: bytes, parsed: Any) -> ServerError:
    error = parsed.get("error") if isinstance(parsed, Mapping) else None
    if not isinstance(error, Mapping):
        shown = content[:80].decode("utf-8", "replace")
        return ServerError(
            f"this is no answer of a dtdr server (status {status}): {shown!r}", status=status
        )
    kind = InvalidRequestError if status in (400, 413, 422) else ServerError
    return kind(
        f"the server refused: {error.get('message', 'without a reason')}",
        status=status,
        kind=str(error.get("type", "")),
        request_id=str(error.get("request_id", "")),
    )


def pause_before(attempt: int, retry_after: str | None) -> float:
    """Seconds to wait before a try, counted from 1."""
    asked = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    return max(PAUSE * 2.0 ** (attempt - 1), asked)


def _step(query: str, history: Sequence[str]) -> dict[str, Any]:
    if isinstance(history, str):
        raise InputError(f"a history must be a list of tool names, not {history!r}")
    return {"query": query, "history": list(history)}


def _lesson(item: Demonstration | Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(item, Demonstration):
        return dict(item)
    record = item.to_dict()
    return {name: record[name] for name in record if name not in ("source", "group")}
