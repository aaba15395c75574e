"""Limits on connections: heads, time, number; and what is not HTTP."""

import asyncio
import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import cast

import httpx2
import pytest
import uvicorn

from dtdr.net.connections import Connections
from dtdr.serve.server import Limits
from tests.server import serving
from tests.server.serving import QUERY, Served

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


def connect(served: Served) -> socket.socket:
    return connect_to(httpx2.URL(served.url))


def connect_to(url: httpx2.URL) -> socket.socket:
    return socket.create_connection((url.host, int(url.port or 0)), timeout=30)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65_536):
            received += chunk
    return received


def reason(answer: bytes) -> str:
    return json.loads(answer.split(b"\r\n\r\n")[-1])["error"]["message"]


@pytest.fixture(scope="module")
def strict(fitted):
    """A server with small limits."""
    limits = {"head_seconds": 0.3, "idle_seconds": 1.0, "body_seconds": 0.5, "head_bytes": 4_000}
    with serving.serve(serving.settings(fitted, **limits)) as served:
        yield served


@pytest.fixture
def crowded(fitted):
    """A server of three connections."""
    with serving.serve(serving.settings(fitted, connections=3)) as served:
        yield served


def test_a_head_that_does_not_end_is_refused_before_it_fills_memory(served):
    """And other clients are answered meanwhile."""
    answered: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        with httpx2.Client(base_url=served.url) as http:
            while not stop.is_set():
                answered.append(http.get("/healthz").status_code)

    other = threading.Thread(target=ask)
    other.start()
    serving.wait_until(lambda: answered)
    sent = 0
    try:
        with connect(served) as connection:
            connection.sendall(HEAD + b"X-Large: ")
            with contextlib.suppress(OSError):
                for _ in range(64):
                    connection.sendall(b"a" * 1_000_000)
                    sent += 1
            answer = read_all(connection)
    finally:
        stop.set()
        other.join(30)
    assert sent < 64 or answer.startswith(b"HTTP/1.1 431")
    assert set(answered) == {200}


@pytest.mark.parametrize("pieces", [1, 20])
def test_a_head_over_the_limit_is_refused_with_the_limit(strict, pieces):
    value = b"a" * 5_000
    step = len(value) // pieces
    with connect(strict) as connection:
        connection.sendall(HEAD + b"X-Large: ")
        for start in range(0, len(value), step):
            connection.sendall(value[start : start + step])
            time.sleep(0.002 if pieces > 1 else 0)
        with contextlib.suppress(OSError):
            connection.sendall(b"\r\n\r\n")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 431")
    assert "larger than 4000 bytes" in reason(answer)


def test_a_head_below_the_limit_may_come_in_pieces(strict):
    with connect(strict) as connection:
        for byte in HEAD + b"X-Much: " + b"a" * 3_000 + b"\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


def test_a_head_that_comes_too_slowly_is_refused_with_the_limit(strict):
    with connect(strict) as connection:
        connection.sendall(HEAD)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert reason(answer) == "the head did not arrive within 0.3 s"


def test_a_slow_second_head_is_refused_as_the_first_is(strict):
    with connect(strict) as connection:
        connection.sendall(HEAD + b"\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /hea")
        assert read_all(connection).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("before", [b"", HEAD + b"\r\n"])
def test_a_connection_that_nobody_uses_is_closed(strict, before):
    with connect(strict) as connection:
        connection.sendall(before)
        answer = read_all(connection)  # until the server closes
        assert answer.count(b"HTTP/1.1") == bool(before)


def test_a_body_that_an_application_waits_for_may_not_take_for_ever():
    """Whatever application it is: the gateway's has no limit of its own."""
    ended = threading.Event()

    async def app(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.set()

    limits = Limits(body_seconds=0.1, head_seconds=0.1)
    connections = Connections(limits, lambda _, reason: reason.encode())
    config = uvicorn.Config(app, http=connections.protocol, lifespan="off", log_config=None)
    with socket.socket() as listener, serving.run_server(config, listener) as url:
        with socket.create_connection((url.host, int(url.port or 0)), timeout=30) as connection:
            connection.sendall(HEAD.replace(b"GET", b"POST") + b"Content-Length: 9\r\n\r\n{")
            read_all(connection)
        assert ended.wait(10)


def test_a_body_that_nobody_reads_may_not_go_on_for_ever(strict):
    with connect(strict) as connection:
        connection.sendall(
            b"POST /v2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{"
        )
        assert read_all(connection).startswith(b"HTTP/1.1 404")


def test_a_client_that_does_not_read_is_dropped(strict):
    """It asks for the description again and again; what waits for it is bounded in time."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        url = httpx2.URL(strict.url)
        connection.connect((url.host, int(url.port or 0)))
        connection.sendall(request * 500)
        dropped = 'dtdr_refused_connections_total{reason="unread"}'
        serving.wait_until(lambda: strict.metric(dropped) == 1)


def test_a_refusal_never_stands_where_an_answer_is_expected(served):
    with connect(served) as connection:
        connection.sendall((HEAD + b"\r\n") * 50 + b"nonsense\r\n\r\n")
        answers = read_all(connection)
    assert answers.count(b"HTTP/1.1 400") <= 1
    assert b"HTTP/1.1 200" not in answers.partition(b"HTTP/1.1 400")[2]


@contextlib.contextmanager
def serve_app(app) -> Iterator[tuple[httpx2.URL, list]]:
    """An application behind connections with limits, and those that were made."""
    shared = Connections(Limits(), lambda _, reason: reason.encode())
    made: list = []

    def protocol(**named):
        made.append(shared.protocol(**named))
        return made[-1]

    kind = cast(type[asyncio.Protocol], protocol)
    config = uvicorn.Config(app, http=kind, lifespan="off", log_config=None)
    with socket.socket() as listener, serving.run_server(config, listener) as url:
        yield url, made


async def respond(send, content: bytes) -> None:
    length = (b"content-length", str(len(content)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": content})


def test_what_follows_a_request_is_not_read_before_that_is_answered():
    """However much it is, it takes no time and is answered in order."""
    may_go_on, asked = threading.Event(), []

    async def app(scope, receive, send):
        asked.append(scope["path"])
        while not may_go_on.is_set():
            await asyncio.sleep(0.01)
        await respond(send, scope["path"].encode())

    lines = [b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(2_000)]
    with serve_app(app) as (url, made), connect_to(url) as connection:
        connection.sendall(b"".join(lines))
        serving.wait_until(lambda: asked)
        time.sleep(0.1)
        assert asked == ["/0"]
        assert len(made[0].pipeline) < 256 / len(lines[0])
        may_go_on.set()
        connection.sendall(b"GET /last HTTP/1.1\r\nConnection: close\r\n\r\n")
        answers = read_all(connection)
    assert asked == [*(f"/{number}" for number in range(2_000)), "/last"]
    assert answers.count(b"HTTP/1.1 200") == 2_001


def test_more_than_a_megabyte_after_a_request_ends_the_connection():
    async def app(scope, receive, send):
        message = {"type": ""}
        while message["type"] != "http.disconnect":
            # Each time, some more of what was sent is read; nothing of it ends the waiting.
            with contextlib.suppress(TimeoutError):
                message = await asyncio.wait_for(receive(), 0.01)

    with serve_app(app) as (url, made):
        with connect_to(url) as connection:
            connection.sendall(HEAD + b"\r\n")
            with contextlib.suppress(OSError):
                for _ in range(64):
                    connection.sendall(b"x" * 1_000_000)
            assert read_all(connection) == b""
        serving.wait_until(lambda: not made[0]._unread)


def test_requests_that_wait_hold_up_no_others():
    """As calls do that other servers have to answer."""

    async def app(scope, receive, send):
        if scope["path"] == "/waits":
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            await respond(send, b"done")

    with serve_app(app) as (url, _), contextlib.ExitStack() as stack:
        for _ in range(50):
            waiting = stack.enter_context(connect_to(url))
            waiting.sendall(b"GET /waits HTTP/1.1\r\n\r\n")
        connection = stack.enter_context(connect_to(url))
        connection.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert read_all(connection).endswith(b"done")


def test_connections_that_only_wait_make_room_for_others(crowded, caplog):
    caplog.set_level(logging.WARNING, "dtdr.server")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connect(crowded))
        for _ in range(5):
            with connect(crowded) as connection:
                connection.sendall(HEAD + b"Connection: close\r\n\r\n")
                assert read_all(connection).startswith(b"HTTP/1.1 200")
    assert any(record.getMessage() == "connections refused" for record in caplog.records)


def test_more_connections_with_requests_under_way_than_the_limit_get_503(crowded, caplog):
    caplog.set_level(logging.WARNING, "dtdr.server")
    body = b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            busy = stack.enter_context(connect(crowded))
            busy.sendall(body.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
            assert busy.recv(100).startswith(b"HTTP/1.1 100")
        with connect(crowded) as connection:
            connection.sendall(HEAD + b"\r\n")
            answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in answer
    assert "too many connections" in reason(answer)
    lines = [record for record in caplog.records if record.getMessage() == "connections refused"]
    assert lines
    serving.wait_until(lambda: crowded.get("/healthz").status_code == 200)
    assert crowded.metric('dtdr_refused_connections_total{reason="full"}') == 1


def test_four_hundred_idle_connections_stop_nobody(served):
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(connect(served))
        for _ in range(20):
            assert served.post("/v1/rank", {"query": QUERY}).status_code == 200


def test_what_is_not_http_is_refused_and_a_flood_of_it_is_one_line(fitted, caplog):
    caplog.set_level(logging.INFO)
    with serving.serve(serving.settings(fitted)) as served:
        for _ in range(30):
            with connect(served) as connection:
                connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
                answer = read_all(connection)
            assert answer.startswith(b"HTTP/1.1 400")
            assert "not an HTTP request" in reason(answer)
        refused = served.metric('dtdr_refused_connections_total{reason="malformed"}')
    names = [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith(("dtdr", "uvicorn.error"))
    ]
    assert names.count("connections refused") == 1
    assert refused == 30
