"""The one way out: HTTP with reused connections, one retry policy, a deadline and a size limit.

``Transport`` and ``AsyncTransport`` send the same ``Request`` by the same rules; each is only the
loop that differs. Redirects are not followed, since they would take a key to another host.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import httpcore2
import httpx2
import tenacity

from dtdr.http_requests import (
    Answer,
    NoAnswerError,
    Request,
    RetryPolicy,
    is_loopback,
    parse_address,
    read_retry_after,
    remaining_seconds,
)

_deadline: ContextVar[float] = ContextVar("deadline")
"""On ``time.monotonic``'s clock, for the try that runs in this thread."""


class _Sender:
    """What both transports share.

    Args:
        url: of the server; loopback addresses are asked without a proxy.
        policy: when a request is sent again.
        options: of ``httpx2.Client`` or ``httpx2.AsyncClient``, such as ``verify``.
    """

    def __init__(self, url: str, policy: RetryPolicy, **options: Any) -> None:
        parts = parse_address(url)
        # Servers such as uvicorn and llama.cpp drop a connection that was idle for 5 seconds.
        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=20, keepalive_expiry=3.0
        )
        self._policy = policy
        self._options = {
            "trust_env": not is_loopback(parts and parts.hostname),
            "limits": limits,
            **options,
        }
        self._process = -1
        self._lock = threading.Lock()

    def _settings(self, request: Request) -> dict[str, Any]:
        """The retry policy for one request, as tenacity's keywords."""
        policy = self._policy
        backoff = tenacity.wait_exponential(policy.pause, policy.longest_pause)
        jitter = tenacity.wait_random(0, policy.pause / 2)

        def is_worth_another(state: tenacity.RetryCallState) -> bool:
            outcome = cast(tenacity.Future, state.outcome)
            result: Any = outcome.exception() or outcome.result()
            if isinstance(result, Answer):
                result.tries = state.attempt_number
                passing = request.is_repeatable and result.status in policy.statuses
                return passing and result.retry_after <= policy.longest_pause
            if isinstance(result, NoAnswerError):
                result.tries = state.attempt_number
                return request.is_repeatable or not result.is_sent
            return False

        def pause(state: tenacity.RetryCallState) -> float:
            outcome = cast(tenacity.Future, state.outcome)
            asked = 0.0 if outcome.failed else outcome.result().retry_after
            return max(backoff(state) + jitter(state), asked)

        return {
            "stop": tenacity.stop_any(
                tenacity.stop_after_attempt(policy.tries),
                tenacity.stop_before_delay(remaining_seconds()),
            ),
            "wait": pause,
            "retry": is_worth_another,
            "retry_error_callback": lambda state: state.outcome.result(),
        }


class Transport(_Sender):
    """Sends requests and waits for their answers. Thread-safe, also after a fork."""

    _client: httpx2.Client

    def send(self, request: Request) -> Answer:
        """The answer to a request, whatever its status.

        Raises:
            NoAnswerError: there was none, after all tries.
        """
        retrying = tenacity.Retrying(**self._settings(request))
        return retrying(self._try, request)

    def _try(self, request: Request) -> Answer:
        content = _Content(request)
        with (
            _errors(content),
            _set_deadline(content.deadline),
            self._open().stream(**_keywords(request, content.seconds)) as response,
        ):
            if not content.begin(response):
                for chunk in response.iter_raw():
                    content.add(chunk)
        return content.answer(response)

    def _open(self) -> httpx2.Client:
        with self._lock:
            if self._process != os.getpid():  # a forked child must not share its parent's sockets
                self._client = httpx2.Client(**self._options)
                _bound_reads(self._client)
                self._process = os.getpid()
            return self._client

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._process == os.getpid():
            self._process = -1
            self._client.close()


class AsyncTransport(_Sender):
    """Sends requests on one event loop."""

    _client: httpx2.AsyncClient

    async def send(self, request: Request) -> Answer:
        """The answer to a request, whatever its status.

        Raises:
            NoAnswerError: there was none, after all tries.
        """
        retrying = tenacity.AsyncRetrying(**self._settings(request))
        return await retrying(self._try, request)

    async def _try(self, request: Request) -> Answer:
        content = _Content(request)
        with _errors(content):
            async with (
                asyncio.timeout(content.seconds),
                self._open().stream(**_keywords(request, content.seconds)) as response,
            ):
                if not content.begin(response):
                    async for chunk in response.aiter_raw():
                        content.add(chunk)
        return content.answer(response)

    def _open(self) -> httpx2.AsyncClient:
        if self._process != os.getpid():
            self._client = httpx2.AsyncClient(**self._options)
            self._process = os.getpid()
        return self._client

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._process == os.getpid():
            self._process = -1
            await self._client.aclose()


def _keywords(request: Request, seconds: float) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.url,
        "content": request.content,
        # Not compressed: a small answer could unfold to gigabytes.
        "headers": {**request.headers, "Accept-Encoding": "identity"},
        "timeout": seconds,
        "follow_redirects": False,
    }


class _Content:
    """The content of one answer while it arrives."""

    def __init__(self, request: Request) -> None:
        self.seconds = min(request.seconds, remaining_seconds())
        self.deadline = time.monotonic() + self.seconds
        self.has_begun = False
        self._largest = request.largest
        self._problem = request.problem
        self._chunks: list[bytes] = []
        self._size = 0

    def begin(self, response: httpx2.Response) -> bool:
        """Whether the content is here with the head, as transports of a user's own give it."""
        self.has_begun = True
        if response.is_stream_consumed:
            self.add(response.content)
        return response.is_stream_consumed

    def add(self, chunk: bytes) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError
        self._size += len(chunk)
        if self._size > self._largest:
            raise NoAnswerError(f"sent more than {self._largest >> 20} MB", is_reached=True)
        self._chunks.append(chunk)

    def answer(self, response: httpx2.Response) -> Answer:
        wait = read_retry_after(response.headers.get("Retry-After"))
        answer = Answer(response.status_code, b"".join(self._chunks), wait)
        problem = self._problem(answer.content) if self._problem and answer.is_success else ""
        if problem:
            raise NoAnswerError(problem, is_reached=True)
        return answer


@contextmanager
def _errors(content: _Content) -> Iterator[None]:
    """Say in our own words why there is no answer; httpx2's errors hold the request's headers."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        reason = str(error).lower() or "no connection in time"
        raise NoAnswerError(f"cannot be reached ({reason})", is_sent=False) from None
    except (httpx2.TimeoutException, TimeoutError):
        raise NoAnswerError(f"did not answer in {content.seconds:.3g} seconds") from None
    except httpx2.HTTPError as error:
        if content.has_begun:
            raise NoAnswerError("closed the connection in the middle of an answer") from None
        reason = str(error).lower().rstrip(".") or "it closed the connection"
        raise NoAnswerError(f"cannot be reached ({reason})") from None


@contextmanager
def _set_deadline(deadline: float) -> Iterator[None]:
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def _bound_reads(client: httpx2.Client) -> None:
    """Have each read end at the deadline: httpx2 bounds one read, so that drops would never end.

    Its transports take no network backend, so theirs is replaced.
    """
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx2.HTTPTransport):
            transport._pool._network_backend = _Backend()


class _Backend(httpcore2.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        stream = super().connect_tcp(
            host, port, _remaining_seconds(timeout), local_address, socket_options
        )
        return _Stream(stream)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _remaining_seconds(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _remaining_seconds(timeout))

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(
            self._stream.start_tls(ssl_context, server_hostname, _remaining_seconds(timeout))
        )


def _remaining_seconds(timeout: float | None) -> float | None:
    deadline = _deadline.get(None)
    if deadline is None:
        return timeout
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise httpcore2.ReadTimeout("deadline")
    return seconds if timeout is None else min(timeout, seconds)
