"""``endpoint``: any OpenAI-compatible embeddings URL."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import parse_qsl, urlunsplit

import numpy as np

from dtdr.errors import EncoderError, InputError
from dtdr.net.http_requests import (
    LARGEST_ANSWER,
    PASSING,
    Request,
    Transport,
    json_headers,
    parse_address,
    wait_for,
)
from dtdr.text.encoders.base import Encoder, Floats32, encodable, length_one, with_progress

KEY_VARIABLE = "DTDR_ENCODER_API_KEY"
OPENAI_VARIABLE = "OPENAI_API_KEY"
ALLOW_VARIABLE = "DTDR_ALLOW_ENDPOINT"

_OPTIONS = ("url", "model", "batch_size", "timeout", "retries", "backoff")
_SECRETS = frozenset({"key", "api_key", "api-key", "apikey", "token", "access_token", "sig"})


class EndpointEncoder(Encoder):
    """Vectors from a server with OpenAI's embeddings API, normalised.

    Blank texts get rows of zeros and are not sent. Redirects are not followed, so that the key
    goes to no other server. The key is in the environment variable ``DTDR_ENCODER_API_KEY``, or
    ``OPENAI_API_KEY`` for https://api.openai.com. It is never stored.

    Args:
        url: such as ``"http://localhost:8080/v1"``; ``/embeddings`` is added if it is missing.
        model: its name on the server.
        dimension: of the vectors; None asks the server for one vector to find out.
        batch_size: texts per request.
        timeout: seconds for one try of a request, from connecting to the last byte.
        retries: limit of further tries after a passing failure.
        backoff: seconds before the first retry; see ``dtdr.net.http_requests.Transport``.

    Raises:
        InputError: an option is out of range, or the URL is not valid or contains a secret.
        MissingExtraError: httpx2 or tenacity is not installed.
    """

    name = "endpoint"

    def __init__(
        self,
        *,
        url: str,
        model: str,
        dimension: int | None = None,
        batch_size: int = 64,
        timeout: float = 60.0,
        retries: int = 5,
        backoff: float = 0.5,
    ) -> None:
        self.url = _check_url(url)
        if batch_size < 1 or (dimension is not None and dimension < 1):
            raise InputError(
                f"batch_size is {batch_size} and dimension {dimension}; they must be at least 1"
            )
        if timeout <= 0 or retries < 0 or backoff < 0:
            raise InputError(
                f"timeout is {timeout}, retries {retries} and backoff {backoff}; the first must "
                "be above 0 and the others at least 0"
            )
        self.model = model
        self.batch_size = batch_size
        self.timeout = timeout
        self.retries = retries
        self.backoff = backoff
        self._dimension = dimension
        self._transport = Transport("encoder 'endpoint'", self.url, retries + 1, backoff)

    @property
    def dimension(self) -> int:
        """The given dimension, or that of the server's first answer.

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
        for batch, rows in parts:
            vectors[batch] = rows
        return vectors

    def _request(self, texts: Sequence[str]) -> Floats32:
        body = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        vectors = self._vectors(self._post(body), len(texts))
        if self._dimension is None:
            self._dimension = vectors.shape[1]
        if vectors.shape[1] != self._dimension:
            raise EncoderError(
                f"{self.url} gave vectors of {vectors.shape[1]} dimensions, expected "
                f"{self._dimension}; check the model {self.model!r} and the dimension"
            )
        return length_one(vectors)

    def _post(self, body: dict[str, Any]) -> bytes:
        variable, key = self.find_key()
        headers = json_headers(key, f"the environment variable {variable}")
        largest = max(LARGEST_ANSWER, len(body["input"]) << 20)  # a MB a text
        request = Request("POST", self.url, body, headers, self.timeout, largest=largest)
        answer = wait_for(self._transport.send(request))
        if answer.is_success:
            return answer.content
        remedy = "check the server and the URL"
        if not answer.problem and answer.status not in PASSING:
            remedy = self._remedy(answer.status, variable, key)
        reason = self._transport.describe_failure(answer, key.strip())
        raise EncoderError(f"{self.url} {reason}; {remedy}")

    def find_key(self) -> tuple[str, str]:
        """The environment variable of the key, and the key; empty if none is set."""
        is_openai = self.url.startswith("https://api.openai.com/")
        names = (KEY_VARIABLE, OPENAI_VARIABLE) if is_openai else (KEY_VARIABLE,)
        for name in names:
            if key := os.environ.get(name, ""):
                return name, key
        return names[-1], ""

    def _remedy(self, status: int, variable: str, key: str) -> str:
        if status in (401, 403):
            return f"check the key in {variable}" + ("" if key else ", which is not set")
        if 300 <= status < 400:
            return "redirects are not followed, give the final URL"
        return f"check the URL and the model {self.model!r}"

    def _vectors(self, answer: bytes, count: int) -> Floats32:
        try:
            data = json.loads(answer)["data"]
            if len(data) != count:
                raise EncoderError(
                    f"{self.url} gave {len(data)} vectors for {count} texts; it is not an "
                    "OpenAI-compatible embeddings URL"
                )
            rows = _sort_by_index(data)
            with np.errstate(over="ignore"):  # infinite values are reported by encode
                vectors = np.asarray(rows, np.float32)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise EncoderError(
                f"{self.url} gave an answer that cannot be read ({type(error).__name__}: "
                f"{str(error)[:100]}); it is not an OpenAI-compatible embeddings URL"
            ) from error
        if vectors.ndim != 2 or vectors.shape[1] == 0:
            raise EncoderError(f"{self.url} gave vectors of different or no length")
        return vectors

    def fingerprint(self) -> str:
        """URL and model; the model on the server is assumed not to change."""
        return f"endpoint {self.url} {self.model}"

    def config(self) -> dict[str, Any]:
        """The options, without the key."""
        options = {option: getattr(self, option) for option in _OPTIONS}
        return {"name": self.name, **options, "dimension": self._dimension}

    @classmethod
    def restore(
        cls,
        config: Mapping[str, Any],
        arrays: Mapping[str, Any],
        *,
        allow_endpoint: str | Iterable[str] = (),
    ) -> Self:
        """The same encoder, if the user allows its host.

        The author of a model folder must not choose where queries and secrets go.

        Args:
            config: from ``config``.
            arrays: not used.
            allow_endpoint: allowed hosts, such as ``"localhost"`` or ``"localhost:8080"``, in
                addition to those in ``DTDR_ALLOW_ENDPOINT``.

        Raises:
            InputError: the host is not allowed.
        """
        _check_allowed(config["url"], allow_endpoint)
        options = {option: config[option] for option in (*_OPTIONS, "dimension")}
        return cls(**options)


def _check_allowed(url: object, allowed: str | Iterable[str]) -> None:
    parts = parse_address(url)
    if parts is None:
        raise InputError(
            f"the model's encoder has {url!r} for the address of a server; fit it again"
        )
    hosts = [allowed] if isinstance(allowed, str) else [*allowed]
    hosts += os.environ.get(ALLOW_VARIABLE, "").split(",")
    host = parts.hostname or ""
    if not {host, parts.netloc.lower()} & {item.strip().lower() for item in hosts}:
        raise InputError(
            f"this model sends its queries to the server {host}; if you trust that, allow it with "
            f"the environment variable {ALLOW_VARIABLE}={host} or with "
            f"load(folder, allow_endpoint={host!r})"
        )


def _check_url(url: str) -> str:
    parts = parse_address(url)
    if parts is None:
        raise InputError("url must be one such as 'http://localhost:8080/v1'")
    named = {name.lower() for name, _ in parse_qsl(parts.query)}
    if parts.username or parts.password or named & _SECRETS:
        raise InputError(
            f"the url of {parts.hostname} has a password or key; put the key into the environment "
            f"variable {KEY_VARIABLE}"
        )
    path = parts.path.rstrip("/")
    if not path.endswith("/embeddings"):
        path += "/embeddings"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _sort_by_index(data: Sequence[Mapping[str, Any]]) -> list[Any]:
    rows: list[Any] = [None] * len(data)
    for position, item in enumerate(data):
        index = item.get("index", position)
        if not 0 <= index < len(rows) or rows[index] is not None:
            raise ValueError(f"index {index} is given twice or out of range")
        rows[index] = item["embedding"]
    return rows
