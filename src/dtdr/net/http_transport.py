"""The one way out: HTTP with reused connections, one retry policy, a deadline and a size limit.

``AsyncTransport`` sends requests on an event loop. ``Transport`` has its own in a thread and
waits, since only an event loop can end a request while a server sends drop by drop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import httpx2
import tenacity

from dtdr.net.http_requests import (
    Answer,
    NoAnswerError,
    Request,
    RetryPolicy,
    parse_address,
    read_retry_after,
    remaining_seconds,
)
from dtdr.net.limits import is_loopback

Result = TypeVar("Result")

_CONNECT_SHARE = 0.9
"""Of the seconds of a try, for connecting: later than that, no answer would come in time."""


class AsyncTransport:
    """Sends requests on one event loop. Redirects are not followed: they would take the key along.

    Args:
        url: of the server; loopback addresses are asked without a proxy.
        policy: when a request is sent again.
        options: of ``httpx2.AsyncClient``, such as ``verify``.
    """

    _client: httpx2.AsyncClient

    def __init__(self, url: str, policy: RetryPolicy, **options: Any) -> None:
        parts = parse_address(url)
        # Servers such as uvicorn and llama.cpp drop a connection that was idle for 5 seconds.
        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=20, keepalive_expiry=3.0
        )
        self._policy = policy
        self._options = {
            "trust_env": not (parts and is_loopback(parts.hostname or "")),
            "limits": limits,
            **options,
        }
        self._process = -1

    async def send(self, request: Request) -> Answer:
        """The answer to a request, whatever its status.

        Raises:
            NoAnswerError: there was none, after all tries.
        """
        policy = self._policy
        backoff = tenacity.wait_exponential(policy.pause, policy.longest_pause)
        jitter = tenacity.wait_random(0, policy.pause / 2)

        def result_of(state: tenacity.RetryCallState) -> Any:
            outcome = cast(tenacity.Future, state.outcome)
            return outcome.exception() or outcome.result()

        def is_worth_another(state: tenacity.RetryCallState) -> bool:
            result = result_of(state)
            if isinstance(result, Answer | NoAnswerError):
                result.tries = state.attempt_number
            if isinstance(result, NoAnswerError):
                return request.is_repeatable or not result.is_sent
            return (
                isinstance(result, Answer)
                and request.is_repeatable
                and result.status in policy.statuses
                and result.retry_after <= policy.longest_pause
            )

        def pause(state: tenacity.RetryCallState) -> float:
            asked = getattr(result_of(state), "retry_after", 0.0)
            return max(backoff(state) + jitter(state), asked)

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(policy.tries)
            | tenacity.stop_before_delay(remaining_seconds()),
            wait=pause,
            retry=is_worth_another,
            retry_error_callback=lambda state: cast(tenacity.Future, state.outcome).result(),
        )
        return await retrying(self._try, request)

    async def _try(self, request: Request) -> Answer:
        seconds = min(request.seconds, remaining_seconds())
        content = bytearray()

        def add(chunk: bytes) -> None:
            content.extend(chunk)
            if len(content) > request.largest:
                raise NoAnswerError(f"sent more than {request.largest >> 20} MB", is_reached=True)

        stream = self._open().stream(
            request.method,
            request.url,
            content=request.content,
            # Not compressed: a small answer could unfold to gigabytes.
            headers={**request.headers, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(seconds, connect=_CONNECT_SHARE * seconds),
            follow_redirects=False,
        )
        with _explain_errors(seconds) as note_head:
            async with asyncio.timeout(seconds), stream as response:
                note_head()
                if response.is_stream_consumed:  # as transports of a user's own give it
                    add(response.content)
                else:
                    async for chunk in response.aiter_raw():
                        add(chunk)
        wait = read_retry_after(response.headers.get("Retry-After"))
        answer = Answer(response.status_code, bytes(content), wait)
        problem = request.problem(answer.content) if request.problem and answer.is_success else ""
        if problem:
            raise NoAnswerError(problem, is_reached=True)
        return answer

    def _open(self) -> httpx2.AsyncClient:
        if self._process != os.getpid():  # a forked child must not share its parent's sockets
            self._client = httpx2.AsyncClient(**self._options)
            self._process = os.getpid()
        return self._client

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._process == os.getpid():
            self._process = -1
            await self._client.aclose()


class Transport:
    """Sends requests and waits for their answers. Thread-safe, also after a fork.

    Args:
        url: as of ``AsyncTransport``, as the other arguments are.
        policy: when a request is sent again.
        options: of ``httpx2.AsyncClient``.
    """

    def __init__(self, url: str, policy: RetryPolicy, **options: Any) -> None:
        self._transport = AsyncTransport(url, policy, **options)

    def send(self, request: Request) -> Answer:
        """The answer to a request, whatever its status.

        Raises:
            NoAnswerError: there was none, after all tries.
        """
        return wait_for(self._transport.send(request))

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        wait_for(self._transport.close())


@contextmanager
def _explain_errors(seconds: float) -> Iterator[Callable[[], None]]:
    """Say in our own words why there is no answer; httpx2's errors hold the request's headers.

    Yields:
        What notes that the head of the answer arrived.
    """
    has_head = False

    def note_head() -> None:
        nonlocal has_head
        has_head = True

    try:
        yield note_head
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        reason = str(error).lower() or "no connection in time"
        raise NoAnswerError(f"cannot be reached ({reason})", is_sent=False) from None
    except (httpx2.TimeoutException, TimeoutError):
        raise NoAnswerError(f"did not answer in {seconds:.3g} seconds") from None
    except httpx2.HTTPError as error:
        if has_head:
            raise NoAnswerError("closed the connection in the middle of an answer") from None
        reason = str(error).lower().rstrip(".") or "it closed the connection"
        raise NoAnswerError(f"cannot be reached ({reason})") from None


_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process: a forked child has no threads of its parent's."""
_lock = threading.Lock()


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine returns that runs on this process's event loop, in the caller's context."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="dtdr-http", daemon=True).start()
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # the caller may have been interrupted
        raise
