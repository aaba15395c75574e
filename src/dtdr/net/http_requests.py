"""HTTP requests with reused connections, one retry policy, a deadline and a size limit."""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from dtdr.errors import DtdrError, InputError, MissingExtraError
from dtdr.net.limits import is_loopback

if TYPE_CHECKING:
    import httpx2
    import tenacity

Result = TypeVar("Result")

BUSY = frozenset({429, 502, 503, 504})
"""Statuses of a server that is busy or still starting, whatever it is asked."""

PASSING = BUSY | {408, 409, 425, 500}
"""Statuses after which the same request may succeed."""

LARGEST_ANSWER = 64 << 20
"""Bytes; no model's answer comes near."""

_CONNECT_SHARE = 0.9
"""Of the seconds of a try, for connecting: later than that, no answer would come in time."""

_end: ContextVar[float] = ContextVar("end", default=inf)
"""On ``time.monotonic``'s clock, of all requests that are sent in this context."""


@contextmanager
def bound_requests(seconds: float) -> Iterator[None]:
    """End every request of the block, with all its tries, within this time."""
    token = _end.set(min(time.monotonic() + seconds, _end.get()))
    try:
        yield
    finally:
        _end.reset(token)


def _remaining_seconds() -> float:
    return max(0.0, _end.get() - time.monotonic())


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a request is sent again.

    Attributes:
        tries: of one request at most.
        pause: seconds before the second try; doubled each time, with jitter of up to half of
            ``pause``, and never less than the server's ``Retry-After``.
        longest_pause: seconds; if a server asks for more, the request is not sent again.
        statuses: of answers after which the same request may succeed.
    """

    tries: int = 4
    pause: float = 0.5
    longest_pause: float = 60.0
    statuses: frozenset[int] = PASSING


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        body: sent as JSON, any collection in it as a list; None sends no body.
        seconds: for one try, from connecting to the last byte.
        is_repeatable: whether sending twice does no more than sending once.
        largest: bytes of an answer; a longer one is not read to its end.
        problem: why the content of a successful answer is unusable, so that the request is
            repeated; an empty text if it is usable.
    """

    method: str
    url: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 60.0
    is_repeatable: bool = True
    largest: int = LARGEST_ANSWER
    problem: Callable[[bytes], str] = lambda _: ""


@dataclass(slots=True)
class Answer:
    """A whole answer of a server.

    Attributes:
        retry_after: seconds that the server asks to wait; 0 if it does not ask.
        tries: how often the request was sent.
    """

    status: int
    content: bytes
    retry_after: float = 0.0
    tries: int = 1

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class NoAnswerError(DtdrError):
    """A request brought no usable answer.

    Attributes:
        is_sent: whether the server may have seen the request.
        is_reached: whether the server answered, though not with anything usable.
        tries: how often the request was sent.
    """

    retry_after = 0.0
    tries = 1

    def __init__(self, reason: str, *, is_sent: bool = True, is_reached: bool = False) -> None:
        super().__init__(reason)
        self.is_sent, self.is_reached = is_sent, is_reached


class Transport:
    """Sends requests on one event loop, which can end a request while a server sends byte by byte.

    It follows no redirects: they would take the key along.

    Args:
        capability: what needs it, for the error.
        url: of the server; loopback addresses get no proxy.
        policy: when a request is sent again.
        options: of ``httpx2.AsyncClient``, such as ``verify``.

    Raises:
        MissingExtraError: httpx2 or tenacity is not installed.
    """

    _client: httpx2.AsyncClient

    def __init__(self, capability: str, url: str, policy: RetryPolicy, **options: Any) -> None:
        try:
            import httpx2
            import tenacity  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(capability, "client", str(error.name)) from error
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
        import tenacity

        policy = self._policy
        jitter = tenacity.wait_random(0, policy.pause / 2)
        backoff = tenacity.wait_exponential(policy.pause, policy.longest_pause) + jitter

        def result_of(state: tenacity.RetryCallState) -> Any:
            return cast(tenacity.Future, state.outcome).result()

        def may_change(result: Answer | NoAnswerError) -> bool:
            if isinstance(result, NoAnswerError):
                return request.is_repeatable or not result.is_sent
            is_passing = result.status in policy.statuses
            is_soon = result.retry_after <= policy.longest_pause
            return request.is_repeatable and is_passing and is_soon

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(policy.tries)
            | tenacity.stop_before_delay(_remaining_seconds()),
            wait=lambda state: max(backoff(state), result_of(state).retry_after),
            retry=tenacity.retry_if_result(may_change),
            retry_error_callback=result_of,
        )
        result: Answer | NoAnswerError = await retrying(self._try, request)
        result.tries = retrying.statistics["attempt_number"]
        if isinstance(result, NoAnswerError):
            raise result
        return result

    async def _try(self, request: Request) -> Answer | NoAnswerError:
        """One try; its errors are our own, since httpx2's contain the request's headers."""
        import httpx2

        seconds = min(request.seconds, _remaining_seconds())
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
        import httpx2

        if self._process != os.getpid():  # a forked child must not share its parent's sockets
            self._client = httpx2.AsyncClient(**self._options)
            self._process = os.getpid()
        # As ASCII, which can represent any text, half surrogate pairs included.
        text = "" if request.body is None else json.dumps(request.body, default=list)
        stream = self._client.stream(
            request.method,
            request.url,
            content=text.encode() or None,
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

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._process == os.getpid():
            self._process = -1
            await self._client.aclose()


def parse_address(url: object) -> SplitResult | None:
    """The parts of an http or https URL that can be sent to; None for anything else."""
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        usable = parts.port != 0 and parts.path.isascii() and parts.path.isprintable()
    except ValueError:  # a broken port, bracket, or label of the host name
        return None
    if not host or not usable or " " in url or parts.scheme not in ("http", "https"):
        return None
    return parts


def json_headers(key: str | None, origin: str) -> dict[str, str]:
    """Headers of a JSON request, with a key as a bearer token.

    Args:
        key: may end with the line break of its file.
        origin: of the key, such as an environment variable, for the error.

    Raises:
        InputError: the key has characters that no header may have; it is not shown.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    key = (key or "").strip()
    if not key.isascii() or not key.isprintable():
        raise InputError(f"the key in {origin} has a character that no key has; set it again")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return headers


def describe_failure(result: Answer | NoAnswerError, policy: RetryPolicy, key: str = "") -> str:
    """Why a request failed, to be read after the server's name; never shows the key."""
    text = str(result)
    if isinstance(result, Answer):
        reason, _ = read_refusal(result.content, key)
        text = f"answered with status {result.status}" + (f" ({reason})" if reason else "")
        if result.retry_after > policy.longest_pause:
            text += f" and asks to wait {result.retry_after:.0f} seconds"
    times = "once" if result.tries == 1 else f"{result.tries} times"
    return f"{text}; tried {times}"


def read_refusal(content: bytes, key: str = "") -> tuple[str, str]:
    """The reason of a refusal, on one line and without the key, and its kind.

    OpenAI's form is ``{"error": {"message": …}}``; older vLLM has the inner object alone, and
    FastAPI says ``{"detail": …}``.
    """
    kind = ""
    text = content[:10_000].decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        value = value.get("error") or value.get("detail") or value
    if isinstance(value, dict):
        kind = f"{value.get('type', '')} {value.get('code', '')}"
        value = value.get("message") or value
    text = value if isinstance(value, str) else json.dumps(value)
    if key:
        text = text.replace(key, "***")
    return " ".join(text.split())[:300], kind


def read_retry_after(value: str | None) -> float:
    """Seconds to wait, from a ``Retry-After`` header in seconds or as a date; 0 without one."""
    for read in (float, _seconds_until):
        try:
            return max(0.0, read(value or "0"))
        except ValueError:
            continue
    return 0.0


def _seconds_until(date: str) -> float:
    until = email.utils.parsedate_to_datetime(date)
    return (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds()


_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process: a forked child has no threads of its parent's."""
_lock = threading.Lock()


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on this process's event loop, in the caller's context, and wait for it."""
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
