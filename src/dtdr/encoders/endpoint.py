"""``endpoint``: any OpenAI-compatible embeddings URL."""

from __future__ import annotations

import base64
import binascii
import email.utils
import http.client
import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Self, get_args
from urllib.parse import parse_qsl, urlunsplit

import numpy as np

from dtdr.encoders.base import Encoder, Floats32, encodable, length_one, with_progress
from dtdr.errors import EncoderError, InputError
from dtdr.http_requests import NoRedirect, address, json_headers

Encoding = Literal["float", "base64"]

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

_LONGEST_WAIT = 120.0  # seconds; a server that asks for more is reported instead
_SECRETS = frozenset({"key", "api_key", "api-key", "apikey", "token", "access_token", "sig"})


class EndpointEncoder(Encoder):
    """Vectors from a server that speaks OpenAI's embeddings protocol, normalised.

    Blank texts are not sent, and get rows of zeros. Redirects are not followed, so that the key
    goes to no other server.

    Args:
        url: such as ``"http://localhost:8080/v1"``; ``/embeddings`` is added when it is missing.
        model: the name that the server knows the model by.
        key_variable: environment variable that holds the key; no key is sent when it is unset.
            The key itself is never stored or shown.
        dimension: of the vectors; None asks the server for one vector to find out.
        shorten: ask the server for vectors of ``dimension`` (some models can shorten theirs).
        batch_size: texts in one request.
        encoding: how vectors travel; ``"base64"`` is about a quarter of the size of ``"float"``,
            but not every server knows it.
        timeout: seconds to wait for the server at each step of a request.
        retries: how often a request is sent again after a passing failure.
        backoff: seconds before the first retry; doubled each time, with jitter of up to a half,
            never less than the server's ``Retry-After``.
        seed: of the jitter.

    Raises:
        InputError: an option is out of range, or the URL is none or holds a secret.
    """

    name = "endpoint"

    def __init__(
        self,
        *,
        url: str,
        model: str,
        key_variable: str = "OPENAI_API_KEY",
        dimension: int | None = None,
        shorten: bool = False,
        batch_size: int = 64,
        encoding: Encoding = "float",
        timeout: float = 60.0,
        retries: int = 5,
        backoff: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.url = _checked_url(url)
        if encoding not in get_args(Encoding):
            raise InputError(f"encoding is {encoding!r}; it must be 'float' or 'base64'")
        if batch_size < 1 or (dimension is not None and dimension < 1):
            raise InputError(
                f"batch_size is {batch_size} and dimension {dimension}; they must be at least 1"
            )
        if timeout <= 0 or retries < 0 or backoff < 0:
            raise InputError(
                f"timeout is {timeout}, retries {retries} and backoff {backoff}; the first must "
                "be above 0 and the others at least 0"
            )
        if shorten and dimension is None:
            raise InputError("shorten=True needs the dimension to shorten to")
        self.model = model
        self.key_variable = key_variable
        self.shorten = shorten
        self.batch_size = batch_size
        self.encoding: Encoding = encoding
        self.timeout = timeout
        self.retries = retries
        self.backoff = backoff
        self._dimension = dimension
        self._random = random.Random(seed)
        self._opener = urllib.request.build_opener(NoRedirect)

    @property
    def dimension(self) -> int:
        """As given, or as the server's first answer shows.

        Raises:
            EncoderError: it was not given and the server does not answer.
        """
        if self._dimension is None:
            self._dimension = self._request(["dimension"]).shape[1]
        return self._dimension

    def _encode(self, texts: Sequence[str]) -> Floats32:
        positions = [index for index, text in enumerate(texts) if text.strip()]
        starts = range(0, len(positions), self.batch_size)
        parts: list[tuple[list[int], Floats32]] = []
        for start in with_progress(starts, len(positions), self.name, len(starts)):
            batch = positions[start : start + self.batch_size]
            parts.append((batch, self._request([encodable(texts[index]) for index in batch])))
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for batch, found in parts:
            vectors[batch] = found
        return vectors

    def _request(self, texts: Sequence[str]) -> Floats32:
        body: dict[str, Any] = {
            "model": self.model,
            "input": list(texts),
            "encoding_format": self.encoding,
        }
        if self.shorten:
            body["dimensions"] = self._dimension
        vectors = self._vectors(self._post(json.dumps(body).encode()), len(texts))
        if self._dimension is None:
            self._dimension = vectors.shape[1]
        if vectors.shape[1] != self._dimension:
            raise EncoderError(
                f"{self.url} gave vectors of {vectors.shape[1]} dimensions, expected "
                f"{self._dimension}; check the model {self.model!r} and the dimension"
            )
        return length_one(vectors)

    def _post(self, body: bytes) -> bytes:
        key = os.environ.get(self.key_variable, "").strip()
        headers = json_headers(key, self.key_variable)
        request = urllib.request.Request(self.url, body, headers)
        for attempt in range(self.retries + 1):
            asked = 0.0
            try:
                with self._opener.open(request, timeout=self.timeout) as response:
                    answer: bytes = response.read()
                    return answer
            except urllib.error.HTTPError as error:
                with error:
                    problem = f"{self.url} answered {error.code}{_reason(error, key)}"
                    if error.code not in _PASSING:
                        raise EncoderError(problem + self._remedy(error.code, key)) from None
                    asked = _retry_after(error.headers.get("Retry-After"))
            except (OSError, http.client.HTTPException) as error:
                problem = f"{self.url} cannot be reached: {_cause(error)}"
            if asked > _LONGEST_WAIT:
                raise EncoderError(f"{problem}; it asks to wait {asked:.0f} seconds, try later")
            if attempt < self.retries:
                wait = min(self.backoff * 2**attempt, _LONGEST_WAIT)
                time.sleep(max(asked, wait * self._random.uniform(1, 1.5)))
        raise EncoderError(
            f"{problem} (tried {self.retries + 1} times); check the server and the URL"
        )

    def _remedy(self, status: int, key: str) -> str:
        if status in (401, 403):
            return f"; check the key in {self.key_variable}" + ("" if key else ", which is not set")
        if 300 <= status < 400:
            return "; redirects are not followed, give the final URL"
        return f"; check the URL and the model {self.model!r}"

    def _vectors(self, answer: bytes, count: int) -> Floats32:
        try:
            data = json.loads(answer)["data"]
            if len(data) != count:
                raise EncoderError(
                    f"{self.url} gave {len(data)} vectors for {count} texts; it is no "
                    "OpenAI-compatible embeddings URL"
                )
            rows = _ordered(data)
            with np.errstate(over="ignore"):  # infinite values are reported by encode
                vectors = np.asarray(rows, np.float32)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise EncoderError(
                f"{self.url} gave an answer that cannot be read ({type(error).__name__}: "
                f"{str(error)[:100]}); it is no OpenAI-compatible embeddings URL"
            ) from error
        if vectors.ndim != 2 or vectors.shape[1] == 0:
            raise EncoderError(f"{self.url} gave vectors of different or no length")
        return vectors

    def fingerprint(self) -> str:
        """URL, model and shortened dimension: what is behind them is taken not to change."""
        size = self._dimension if self.shorten else None
        return f"endpoint {self.url} {self.model} {size} {self.encoding}"

    def config(self) -> dict[str, Any]:
        """The options; of the key, only the variable's name."""
        return {
            "name": self.name,
            "url": self.url,
            "model": self.model,
            "key_variable": self.key_variable,
            "dimension": self._dimension,
            "shorten": self.shorten,
            "batch_size": self.batch_size,
            "encoding": self.encoding,
            "timeout": self.timeout,
            "retries": self.retries,
            "backoff": self.backoff,
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The encoder that asks the same server for the same model."""
        return cls(**{key: value for key, value in config.items() if key != "name"})


def _checked_url(url: str) -> str:
    parts = address(url)
    if parts is None:
        raise InputError("url must be one such as 'http://localhost:8080/v1'")
    named = {name.lower() for name, _ in parse_qsl(parts.query)}
    if parts.username or parts.password or named & _SECRETS:
        raise InputError(
            f"the url of {parts.hostname} holds a password or key; put the key into an environment "
            "variable and name that in key_variable"
        )
    path = parts.path.rstrip("/")
    if not path.endswith("/embeddings"):
        path += "/embeddings"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _ordered(data: Sequence[Mapping[str, Any]]) -> list[Any]:
    rows: list[Any] = [None] * len(data)
    for place, item in enumerate(data):
        index = item.get("index", place)
        if not 0 <= index < len(rows) or rows[index] is not None:
            raise ValueError(f"index {index} is given twice or out of range")
        rows[index] = _numbers(item["embedding"])
    return rows


def _numbers(embedding: Any) -> Any:
    if not isinstance(embedding, str):
        return embedding
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    except binascii.Error as error:
        raise ValueError(f"an embedding is not base64: {error}") from error


def _reason(error: urllib.error.HTTPError, key: str) -> str:
    """What the server says about it, on one line and without the key, should it repeat that."""
    try:
        text = error.read(10_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""
    try:
        value = json.loads(text)
        for name in ("error", "message", "detail"):
            if isinstance(value, dict) and name in value:
                value = value[name]
        text = value if isinstance(value, str) else json.dumps(value)
    except (ValueError, RecursionError):
        pass
    if key:
        text = text.replace(key, "***")
    text = " ".join(text.split())[:200]
    return f" ({text})" if text else ""


def _retry_after(value: str | None) -> float:
    """Seconds to wait, from a ``Retry-After`` header in seconds or as a date; 0 without one."""
    if not value:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        until = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _cause(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    return (getattr(reason, "strerror", None) or str(reason) or type(reason).__name__).lower()
