"""HTTP requests with reused connections, one retry policy, a deadline and a size limit.

``Transport`` waits for an event loop in a thread, since only an event loop can end a request while
a server sends drop by drop.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

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
    wait_for,
)
from dtdr.net.limits import is_loopback

_CONNECT_SHARE = 0.9
"""Of the seconds of a try, for connecting: later than that, no answer would come in time."""


class AsyncTransport:
    """Sends requests on one event loop. It follows no redirects: they would take the key along.

    Args:
        url: of the server; loopback addresses get no proxy.
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
        uses_proxy = not (parts and is_loopback(parts.hostname or ""))
        self._policy = policy
        self._options = {"trust_env": uses_proxy, "limits": limits, **options}
        self._process = -1

    async def send(self, request: Request) -> Answer:
        """The answer to a request, whatever its status.

        Raises:
            NoAnswerError: there was none, after all tries.
        """
        policy = self._policy
        jitter = tenacity.wait_random(0, policy.pause / 2)
        backoff = tenacity.wait_exponential(policy.pause, policy.longest_pause) + jitter

        def result_of(state: tenacity.RetryCallState) -> Any:
            return cast(tenacity.Future, state.outcome).result()

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(policy.tries)
            | tenacity.stop_before_delay(remaining_seconds()),
            wait=lambda state: max(backoff(state), result_of(state).retry_after),
            retry=tenacity.retry_if_result(lambda result: policy.allows_another(request, result)),
            retry_error_callback=result_of,
        )
        result: Answer | NoAnswerError = await retrying(self._try, request)
        result.tries = retrying.statistics["attempt_number"]
        if isinstance(result, NoAnswerError):
            raise result
        return result

    async def _try(self, request: Request) -> Answer | NoAnswerError:
        """One try; its errors are our own, since httpx2's contain the request's headers."""
        seconds = min(request.seconds, remaining_seconds())
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(request, seconds)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            reason = str(error).lower() or "no connection in time"
            return NoAnswerError(f"cannot be reached ({reason})", is_sent=False)
        except (httpx2.TimeoutException, TimeoutError):
            return NoAnswerError(f"did not answer in {seconds:.3g} seconds")
        except httpx2.HTTPError as error:
            reason = str(error).lower().rstrip(".") or "it closed the connection"
            return NoAnswerError(f"cannot be reached ({reason})")

    async def _ask(self, request: Request, seconds: float) -> Answer | NoAnswerError:
        stream = self._open().stream(
            request.method,
            request.url,
            content=request.content,
            # Not compressed: a small answer could unfold to gigabytes.
            headers={**request.headers, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(seconds, connect=_CONNECT_SHARE * seconds),
            follow_redirects=False,
        )
        content = bytearray()
        async with stream as response:
            chunks = response.aiter_raw()
            if response.is_stream_consumed:  # by a transport of the user's
                chunks = response.aiter_bytes()
            try:
                async for chunk in chunks:
                    content += chunk
                    if len(content) > request.largest:
                        reason = f"sent more than {request.largest >> 20} MB"
                        return NoAnswerError(reason, is_reached=True)
            except (httpx2.ReadError, httpx2.ProtocolError):
                return NoAnswerError("closed the connection in the middle of an answer")
        wait = read_retry_after(response.headers.get("Retry-After"))
        answer = Answer(response.status_code, bytes(content), wait)
        problem = request.problem(answer.content) if answer.is_success else ""
        return NoAnswerError(problem, is_reached=True) if problem else answer

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
    """``AsyncTransport`` without asyncio. Thread-safe, also after a fork."""

    def __init__(self, url: str, policy: RetryPolicy, **options: Any) -> None:
        self._transport = AsyncTransport(url, policy, **options)

    def send(self, request: Request) -> Answer:
        """The answer to a request; see ``AsyncTransport.send``."""
        return wait_for(self._transport.send(request))

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        wait_for(self._transport.close())
