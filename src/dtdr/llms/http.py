"""JSON over HTTP with time-outs, retries and back-off; keys never appear in an error."""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from typing import Any

from dtdr.errors import InputError
from dtdr.http_requests import NoRedirect, address, json_headers
from dtdr.llms.base import LLMError, PromptTooLongError

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

BUSY = frozenset({429, 502, 503, 504})
"""Of these, what a server says that is busy or still starting, whatever it is asked."""

LONGEST_WAIT = 60.0
"""Seconds; a server that asks for a longer pause is given up."""

_LARGEST_ANSWER = 64 << 20
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class GaveUpError(LLMError):
    """No try of a request brought a usable answer.

    Attributes:
        passing: whether the server could not be reached, or is busy: it may answer later.
    """

    def __init__(self, reason: str, passing: bool) -> None:
        super().__init__(reason)
        self.passing = passing


class RefusedError(LLMError):
    """The server refused a request, and would again; ``status`` is the HTTP status."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class JsonClient:
    """Posts JSON to one server.

    Args:
        url: the server's address, without a trailing slash.
        key: sent as a bearer token; kept out of every message.
        timeout: seconds for one try, from connecting to the last byte.
        tries: how often one request is sent at most.
        pause: seconds before the second try; doubled each time, with jitter.

    Raises:
        InputError: the address is no http or https URL, or holds a user name; or the key holds
            characters that no header may hold.
    """

    def __init__(
        self, url: str, *, key: str | None, timeout: float, tries: int, pause: float
    ) -> None:
        parts = address(url)
        if parts is None:
            raise InputError(f"{url!r} is no server address; write for example http://host:8080/v1")
        if parts.username or parts.password:
            raise InputError(
                "the server's address holds a user name or password; give a key in the "
                "environment variable DTDR_LLM_API_KEY instead"
            )
        self.url = url.rstrip("/")
        self.host = parts.hostname or ""
        self._headers = json_headers(key, "DTDR_LLM_API_KEY")
        self._timeout, self._tries, self._pause = timeout, tries, pause
        handlers: list[urllib.request.BaseHandler] = [NoRedirect()]
        if parts.hostname in _LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def post(self, address: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON object that answers a request to an address of the server.

        Raises:
            PromptTooLongError: the server says that the prompt exceeds its context.
            LLMError: no usable answer after all tries, or one that no other try can change.
        """
        return self._request(address, json.dumps(body).encode("utf-8", "replace"))

    def get(self, address: str, *, tries: int | None = None) -> dict[str, Any]:
        """The JSON object at an address of the server; raises as ``post`` does."""
        return self._request(address, None, tries=tries)

    def _request(
        self, address: str, body: bytes | None, *, tries: int | None = None
    ) -> dict[str, Any]:
        reason, passing = "", False
        allowed = self._tries if tries is None else tries
        for attempt in range(allowed):
            wait = self._pause * 2**attempt * random.uniform(0.75, 1.25)
            try:
                return self._once(address, body)
            except _TryAgainError as error:
                reason, passing = str(error), error.passing
                if error.wait is not None:
                    wait = max(wait, error.wait)
            if wait > LONGEST_WAIT:
                reason += f", and asks to wait {wait:.0f} seconds"
                break
            if attempt + 1 < allowed:
                time.sleep(wait)
        times = "once" if attempt == 0 else f"{attempt + 1} times"
        raise GaveUpError(f"the LLM server at {self.host} {reason}; tried {times}", passing)

    def _once(self, address: str, body: bytes | None) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout
        request = urllib.request.Request(address, data=body, headers=self._headers)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                content = _read(response, deadline)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error) from None
        except TimeoutError:
            raise _TryAgainError(
                f"did not answer in {self._timeout:g} seconds", passing=True
            ) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            cause = getattr(error, "reason", error)
            if isinstance(cause, TimeoutError):
                raise _TryAgainError(
                    f"did not answer in {self._timeout:g} seconds", passing=True
                ) from None
            said = str(cause) or type(cause).__name__
            raise _TryAgainError(f"cannot be reached ({said})", passing=True) from None
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            raise _TryAgainError("answered with something that is not JSON") from None
        if not isinstance(found, dict):
            raise _TryAgainError("answered with JSON that is no object")
        return found

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        said, kind = _message(error)
        if error.code in RETRIED:
            return _TryAgainError(
                f"answered with status {error.code}",
                _retry_after(error),
                passing=error.code in BUSY,
            )
        text = f"{kind} {said}".lower()
        if any(word in text for word in ("exceed_context", "context size", "context length",
                                         "context_length")):  # fmt: skip
            return PromptTooLongError(f"prompt too long: {said}")
        if error.code in (401, 403):
            return RefusedError(
                f"the LLM server at {self.host} refused the key (status {error.code}); set it in "
                "the environment variable DTDR_LLM_API_KEY",
                error.code,
            )
        if 300 <= error.code < 400:
            return RefusedError(
                f"the LLM server at {self.host} redirects elsewhere; give the final address",
                error.code,
            )
        return RefusedError(
            f"the LLM server at {self.host} answered with status {error.code}: {said}", error.code
        )


class _TryAgainError(Exception):
    def __init__(self, reason: str, wait: float | None = None, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.wait = wait
        self.passing = passing


def _read(response: Any, deadline: float) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read1(1 << 16):
        chunks.append(chunk)
        size += len(chunk)
        if time.monotonic() > deadline:
            raise TimeoutError
        if size > _LARGEST_ANSWER:
            raise _TryAgainError(f"sent more than {_LARGEST_ANSWER >> 20} MB")
    promised = response.headers.get("Content-Length")
    if promised is not None and promised.isdigit() and size < int(promised):
        raise _TryAgainError("closed the connection in the middle of an answer")
    return b"".join(chunks)


def _message(error: urllib.error.HTTPError) -> tuple[str, str]:
    """What a server says of a refusal, and of which kind it is.

    OpenAI's form is ``{"error": {"message": …}}``; older vLLM has the inner object alone, and
    FastAPI says ``{"detail": …}``.
    """
    try:
        found = json.loads(error.read(1 << 16))
    except (ValueError, RecursionError, OSError, http.client.HTTPException):
        return "no reason given", ""
    if isinstance(found, dict):
        found = found.get("error") or found.get("detail") or found
    if isinstance(found, dict):
        said = found.get("message") or "no reason given"
        return str(said)[:300], f"{found.get('type', '')} {found.get('code', '')}"
    return str(found or "no reason given")[:300], ""


def _retry_after(error: urllib.error.HTTPError) -> float | None:
    try:
        return max(0.0, float(error.headers.get("Retry-After", "")))
    except ValueError:
        return None
