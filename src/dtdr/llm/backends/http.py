"""JSON over HTTP to an LLM server; errors do not contain the key."""

from __future__ import annotations

import json
import os
from typing import Any

from dtdr.errors import InputError
from dtdr.llm.backends.backend import LLMError, PromptTooLongError
from dtdr.net.http_requests import (
    BUSY,
    PASSING,
    Request,
    Transport,
    json_headers,
    parse_address,
    read_refusal,
    wait_for,
)

KEY_VARIABLE = "DTDR_LLM_API_KEY"
OPENAI_HOST = "api.openai.com"

_TOO_LONG = ("exceed_context", "context size", "context length", "context_length")


class GaveUpError(LLMError):
    """No try of a request brought a usable answer.

    Attributes:
        is_passing: whether the server could not be reached, or is busy: it may answer later.
    """

    def __init__(self, reason: str, is_passing: bool) -> None:
        super().__init__(reason)
        self.is_passing = is_passing


class RefusedError(LLMError):
    """The server refused a request, and would again; ``status`` is the HTTP status."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class JsonClient:
    """Sends JSON to one server. Thread-safe.

    Args:
        url: the server's address.
        key: sent as a bearer token; kept out of every message. Default: the environment variable
            ``DTDR_LLM_API_KEY``, or ``OPENAI_API_KEY`` for api.openai.com.
        timeout: seconds for one try, from connecting to the last byte.
        tries: limit of tries per request.
        pause: seconds before the second try; see ``Transport``.

    Raises:
        InputError: the address is not an http or https URL, or contains a user name; or the key
            contains characters that no header can have.
        MissingExtraError: httpx2 or tenacity is not installed.
    """

    def __init__(
        self, url: str, *, key: str | None, timeout: float, tries: int, pause: float
    ) -> None:
        parts = parse_address(url)
        if parts is None:
            raise InputError(
                f"{url!r} is not a server address; write for example http://host:8080/v1"
            )
        if parts.username or parts.password:
            raise InputError(
                "the server's address has a user name or password; give a key in the "
                f"environment variable {KEY_VARIABLE} instead"
            )
        self.url = url.rstrip("/")
        self.host = parts.hostname or ""
        if key is None:
            key = os.environ.get(KEY_VARIABLE)
        if key is None and self.host == OPENAI_HOST:
            key = os.environ.get("OPENAI_API_KEY")
        self._key = (key or "").strip()
        self._headers = json_headers(key, f"the environment variable {KEY_VARIABLE}")
        self._timeout = timeout
        self._transport = Transport("an openai: or gguf: model", url, tries, pause)

    def close(self) -> None:
        """Close the connections."""
        wait_for(self._transport.close())

    def ask(self, address: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object that an address of the server answers, to a POST if there is a body.

        Raises:
            PromptTooLongError: the server says that the prompt exceeds its context.
            LLMError: no usable answer after all tries, or one that no other try can change.
        """
        method = "GET" if body is None else "POST"
        request = Request(
            method, address, body, self._headers, self._timeout, problem=_problem_of_object
        )
        answer = wait_for(self._transport.send(request))
        if answer.is_success:
            value: dict[str, Any] = json.loads(answer.content)
            return value
        if answer.problem or answer.status in PASSING:
            reason = self._transport.describe_failure(answer, self._key)
            is_passing = answer.status in {0, *BUSY}
            raise GaveUpError(f"the LLM server at {self.host} {reason}", is_passing)
        raise self._refusal(answer.status, *read_refusal(answer.content, self._key))

    def _refusal(self, status: int, reason: str, kind: str) -> LLMError:
        reason = reason or "no reason given"
        if any(words in f"{kind} {reason}".lower() for words in _TOO_LONG):
            return PromptTooLongError(f"prompt too long: {reason}")
        if status in (401, 403):
            said = f"refused the key (status {status}); set it in the environment variable "
            said += KEY_VARIABLE
        elif 300 <= status < 400:
            said = "redirects elsewhere; give the final address"
        else:
            said = f"answered with status {status}: {reason}"
        return RefusedError(f"the LLM server at {self.host} {said}", status)


def _problem_of_object(content: bytes) -> str:
    """Why a content is not a JSON object; an empty text where it is one."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return "answered with something that is not JSON"
    return "" if isinstance(value, dict) else "answered with JSON that is not an object"
