"""HTTP requests with reused connections, one retry policy, a deadline and a size limit."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from dtdr.errors import InputError, MissingExtraError
from dtdr.net.servers import is_loopback

if TYPE_CHECKING:
    import httpx2
    import tenacity

Result = TypeVar("Result")

BUSY = frozenset({429, 502, 503, 504})
"""Statuses of a server that is busy or still starting, whatever it is asked."""

PASSING = BUSY | {408, 425, 500}
"""Statuses after which the same request may succeed."""

LARGEST_ANSWER = 64 << 20
"""Bytes; no model's answer comes near."""

_CONNECT_SHARE = 0.9
"""Share of the seconds of a try for connecting; later, no answer would come in time."""

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
    """A whole answer of a server, or the reason why there is none.

    Attributes:
        status: 0 without an answer.
        retry_after: seconds that the server asks to wait; 0 if it does not ask.
        problem: why there is no usable answer; an empty text if there is one.
        is_sent: whether the server may have seen the request.
        tries: how often the request was sent.
    """

    status: int = 0
    content: bytes = b""
    retry_after: float = 0.0
    problem: str = ""
    is_sent: bool = True
    tries: int = 1

    @property
    def is_success(self) -> bool:
        """Whether there is a usable answer with a status 2xx."""
        return not self.problem and 200 <= self.status < 300


class Transport:
    """Sends requests on one event loop, which can end a request while a server sends byte by byte.

    It follows no redirects: they would take the key along.

    Args:
        capability: what needs it, for the error.
        url: of the server; loopback addresses get no proxy.
        tries: of one request at most.
        pause: seconds before the second try; doubled each time, with jitter of up to half of
            ``pause``, and never less than the server's ``Retry-After``.
        longest_pause: seconds; if a server asks for more, the request is not sent again.
        options: of ``httpx2.AsyncClient``, such as ``verify``.

    Raises:
        MissingExtraError: httpx2 or tenacity is not installed.
    """

    _client: httpx2.AsyncClient

    def __init__(
        self,
        capability: str,
        url: str,
        tries: int = 4,
        pause: float = 0.5,
        longest_pause: float = 60.0,
        **options: Any,
    ) -> None:
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
        self._tries, self._pause, self._longest_pause = tries, pause, longest_pause
        self._options = {"trust_env": uses_proxy, "limits": limits, **options}
        self._process = -1

    async def send(self, request: Request) -> Answer:
        """The last answer to a request, of all tries, whatever its status."""
        import tenacity

        jitter = tenacity.wait_random(0, self._pause / 2)
        backoff = tenacity.wait_exponential(self._pause, self._longest_pause) + jitter

        def answer_of(state: tenacity.RetryCallState) -> Any:
            return cast(tenacity.Future, state.outcome).result()

        def may_change(answer: Answer) -> bool:
            is_passing = bool(answer.problem) or answer.status in PASSING
            is_soon = answer.retry_after <= self._longest_pause
            return (request.is_repeatable or not answer.is_sent) and is_passing and is_soon

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._tries)
            | tenacity.stop_before_delay(_remaining_seconds()),
            wait=lambda state: max(backoff(state), answer_of(state).retry_after),
            retry=tenacity.retry_if_result(may_change),
            retry_error_callback=answer_of,
        )
        answer: Answer = await retrying(self._try, request)
        answer.tries = retrying.statistics["attempt_number"]
        return answer

    async def _try(self, request: Request) -> Answer:
        """One try; it raises no error of httpx2's, which would contain the request's headers."""
        import httpx2

        seconds = min(request.seconds, _remaining_seconds())
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(request, seconds)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            reason = str(error).lower() or "no connection in time"
            return Answer(problem=f"cannot be reached ({reason})", is_sent=False)
        except (httpx2.TimeoutException, TimeoutError):
            return Answer(problem=f"did not answer in {seconds:.3g} seconds")
        except httpx2.HTTPError as error:
            reason = str(error).lower().rstrip(".") or "it closed the connection"
            return Answer(problem=f"cannot be reached ({reason})")

    async def _ask(self, request: Request, seconds: float) -> Answer:
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
            # A transport of the user's may have read it.
            is_read = response.is_stream_consumed
            try:
                async for chunk in response.aiter_bytes() if is_read else response.aiter_raw():
                    content += chunk
                    if len(content) > request.largest:
                        reason = f"sent more than {request.largest >> 20} MB"
                        return Answer(response.status_code, problem=reason)
            except (httpx2.ReadError, httpx2.ProtocolError):
                return Answer(problem="closed the connection in the middle of an answer")
        wait = read_retry_after(response.headers.get("Retry-After"))
        answer = Answer(response.status_code, bytes(content), wait)
        answer.problem = request.problem(answer.content) if answer.is_success else ""
        return answer

    def describe_failure(self, answer: Answer, key: str = "") -> str:
        """Why a request failed, to be read after the server's name; never shows the key."""
        text = answer.problem
        if not text:
            reason, _ = read_refusal(answer.content, key)
            text = f"answered with status {answer.status}" + (f" ({reason})" if reason else "")
            if answer.retry_after > self._longest_pause:
                text += f" and asks to wait {answer.retry_after:.0f} seconds"
        times = "once" if answer.tries == 1 else f"{answer.tries} times"
        return f"{text}; tried {times}"

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
    until = parsedate_to_datetime(date)
    return (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds()


_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process: a forked child has no threads of its parent's."""
_lock = threading.Lock()


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on this process's event loop, in the caller's context, and wait for it."""
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # the caller may have been interrupted
        raise


def submit(work: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Start a coroutine on this process's event loop, in the caller's context."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="dtdr-loop", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, loop)
