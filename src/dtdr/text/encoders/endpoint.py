"""``endpoint``: any OpenAI-compatible embeddings URL."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self, get_args
from urllib.parse import parse_qsl, urlunsplit

import numpy as np

from dtdr.errors import EncoderError, InputError
from dtdr.net.http_requests import (
    LARGEST_ANSWER,
    Answer,
    NoAnswerError,
    Request,
    RetryPolicy,
    describe_failure,
    json_headers,
    parse_address,
    require_http,
)
from dtdr.text.encoders.base import Encoder, Floats32, encodable, length_one, with_progress

Encoding = Literal["float", "base64"]

KEY_VARIABLE = "DTDR_ENCODER_API_KEY"
OPENAI_VARIABLE = "OPENAI_API_KEY"
ALLOW_VARIABLE = "DTDR_ALLOW_ENDPOINT"

_SECRETS = frozenset({"key", "api_key", "api-key", "apikey", "token", "access_token", "sig"})


class EndpointEncoder(Encoder):
    """Vectors from a server with OpenAI's embeddings API, normalised.

    Blank texts are not sent, and get rows of zeros. Redirects are not followed, so that the key
    goes to no other server.

    Args:
        url: such as ``"http://localhost:8080/v1"``; ``/embeddings`` is added when it is missing.
        model: the name that the server knows the model by.
        key_variable: environment variable that holds the key; no key is sent when it is unset.
            Neither the key nor this name is stored, so that a loaded model takes the default:
            ``DTDR_ENCODER_API_KEY``, or ``OPENAI_API_KEY`` for https://api.openai.com.
        dimension: of the vectors; None asks the server for one vector to find out.
        shorten: ask the server for vectors of ``dimension`` (some models can shorten theirs).
        batch_size: texts in one request.
        encoding: how vectors travel; ``"base64"`` is about a quarter of the size of ``"float"``,
            but not every server knows it.
        timeout: seconds for one try of a request, from connecting to the last byte.
        retries: how often a request is sent again after a passing failure.
        backoff: seconds before the first retry; see ``RetryPolicy``.

    Raises:
        InputError: an option is out of range, or the URL is none or holds a secret.
        MissingExtraError: httpx2 or tenacity is not installed.
    """

    name = "endpoint"

    def __init__(
        self,
        *,
        url: str,
        model: str,
        key_variable: str | None = None,
        dimension: int | None = None,
        shorten: bool = False,
        batch_size: int = 64,
        encoding: Encoding = "float",
        timeout: float = 60.0,
        retries: int = 5,
        backoff: float = 0.5,
    ) -> None:
        self.url = _check_url(url)
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
        self._policy = RetryPolicy(retries + 1, backoff)
        require_http("encoder 'endpoint'")
        from dtdr.net.http_transport import Transport

        self._transport = Transport(self.url, self._policy)

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
        for batch, rows in parts:
            vectors[batch] = rows
        return vectors

    def _request(self, texts: Sequence[str]) -> Floats32:
        body: dict[str, Any] = {
            "model": self.model,
            "input": list(texts),
            "encoding_format": self.encoding,
        }
        if self.shorten:
            body["dimensions"] = self._dimension
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
        result: Answer | NoAnswerError
        try:
            result = self._transport.send(request)
            if result.is_success:
                return result.content
        except NoAnswerError as error:
            result = error
        remedy = "check the server and the URL"
        if isinstance(result, Answer) and result.status not in self._policy.statuses:
            remedy = self._remedy(result.status, variable, key)
        reason = describe_failure(result, self._policy, key.strip())
        raise EncoderError(f"{self.url} {reason}; {remedy}")

    def find_key(self) -> tuple[str, str]:
        """The environment variable of the key, and the key; an empty one where none is set."""
        names = (self.key_variable,) if self.key_variable else _default_variables(self.url)
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
        """URL, model and shortened dimension: what is behind them is taken not to change."""
        size = self._dimension if self.shorten else None
        return f"endpoint {self.url} {self.model} {size} {self.encoding}"

    def config(self) -> dict[str, Any]:
        """The options; nothing of the key, which a model folder does not choose."""
        return {
            "name": self.name,
            "url": self.url,
            "model": self.model,
            "dimension": self._dimension,
            "shorten": self.shorten,
            "batch_size": self.batch_size,
            "encoding": self.encoding,
            "timeout": self.timeout,
            "retries": self.retries,
            "backoff": self.backoff,
        }

    @classmethod
    def restore(
        cls,
        config: Mapping[str, Any],
        arrays: Mapping[str, Any],
        *,
        allow_endpoint: str | Iterable[str] = (),
    ) -> Self:
        """The encoder that asks the same server for the same model, where the user allows it.

        Whoever wrote a model folder must not choose where queries and secrets go.

        Args:
            config: what ``config`` gave.
            arrays: not used.
            allow_endpoint: hosts that may be asked, such as ``"localhost"`` or
                ``"localhost:8080"``; those that ``DTDR_ALLOW_ENDPOINT`` lists may be, too.

        Raises:
            InputError: the host is not allowed.
        """
        # A variable that the folder names could hold any secret: the key is that of the default.
        options = {key: config[key] for key in config if key not in ("name", "key_variable")}
        _check_allowed(config["url"], allow_endpoint)
        return cls(**options)


def _check_allowed(url: object, allowed: str | Iterable[str]) -> None:
    parts = parse_address(url)
    if parts is None:
        raise InputError(f"the model's encoder names no server's address but {url!r}; fit it again")
    given = [allowed] if isinstance(allowed, str) else [*allowed]
    given += os.environ.get(ALLOW_VARIABLE, "").split(",")
    host = parts.hostname or ""
    if not {host, parts.netloc.lower()} & {item.strip().lower() for item in given}:
        raise InputError(
            f"this model sends its queries to the server {host}; if you trust that, allow it with "
            f"the environment variable {ALLOW_VARIABLE}={host} or with "
            f"load(folder, allow_endpoint={host!r})"
        )


def _default_variables(url: str) -> tuple[str, ...]:
    is_openai = url.startswith("https://api.openai.com/")
    return (KEY_VARIABLE, OPENAI_VARIABLE) if is_openai else (KEY_VARIABLE,)


def _check_url(url: str) -> str:
    parts = parse_address(url)
    if parts is None:
        raise InputError("url must be one such as 'http://localhost:8080/v1'")
    named = {name.lower() for name, _ in parse_qsl(parts.query)}
    if parts.username or parts.password or named & _SECRETS:
        raise InputError(
            f"the url of {parts.hostname} has a password or key; put the key into an environment "
            "variable and name that in key_variable"
        )
    path = parts.path.rstrip("/")
    if not path.endswith("/embeddings"):
        path += "/embeddings"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _sort_by_index(data: Sequence[Mapping[str, Any]]) -> list[Any]:
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
