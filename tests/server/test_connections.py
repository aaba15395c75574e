"""Limits on connections: heads, time, number; and what is not HTTP."""

import contextlib
import json
import re
import socket
import threading
import time

import httpx2
import pytest

from dtdr.net.servers import listen
from tests.server import serving

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


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
    """A server with a small limit of heads, and time enough for a test on a busy machine."""
    limits = {"head_seconds": 60.0, "body_seconds": 60.0, "head_bytes": 4_000}
    with serving.serve(serving.settings(fitted, **limits)) as served:
        yield served


@pytest.fixture(scope="module")
def hasty(fitted):
    """A server that waits for clients only a short time."""
    limits = {"head_seconds": 0.3, "idle_seconds": 1.0, "body_seconds": 0.5}
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
        with httpx2.Client(base_url=served.url, timeout=60) as http:
            while not stop.is_set():
                answered.append(http.get("/healthz").status_code)

    other = threading.Thread(target=ask)
    other.start()
    serving.wait_until(lambda: answered)
    sent = 0
    try:
        with served.connect() as connection:
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
    with strict.connect() as connection:
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
    with strict.connect() as connection:
        for byte in HEAD + b"X-Much: " + b"a" * 3_000 + b"\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("before", [b"", HEAD + b"\r\n"])
def test_a_head_that_comes_too_slowly_is_refused_with_the_limit(hasty, before):
    with hasty.connect() as connection:
        if before:
            connection.sendall(before)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(HEAD)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert reason(answer) == "the head did not arrive within 0.3 s"


@pytest.mark.parametrize("before", [b"", HEAD + b"\r\n"])
def test_a_connection_that_nobody_uses_is_closed(hasty, before):
    with hasty.connect() as connection:
        connection.sendall(before)
        answer = read_all(connection)  # until the server closes
        assert answer.count(b"HTTP/1.1") == bool(before)


@pytest.mark.parametrize(("path", "status"), [(b"/v1/rank", b"408"), (b"/v2", b"404")])
def test_a_body_that_never_ends_is_answered_after_the_limit_read_or_not(hasty, path, status):
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{"
    with hasty.connect() as connection:
        connection.sendall(head % path)
        assert read_all(connection).startswith(b"HTTP/1.1 " + status)


def test_a_client_that_does_not_read_is_dropped(hasty):
    """It asks for the description again and again; what waits for it is bounded in time."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        url = httpx2.URL(hasty.url)
        connection.connect((url.host, int(url.port or 0)))
        connection.sendall(request * 100)
        dropped = 'dtdr_refused_connections_total{reason="unread"}'
        serving.wait_until(lambda: hasty.metric(dropped) == 1)


def test_a_refusal_never_stands_where_an_answer_is_expected(served):
    with served.connect() as connection:
        connection.sendall((HEAD + b"\r\n") * 50 + b"nonsense\r\n\r\n")
        answers = read_all(connection)
    assert answers.count(b"HTTP/1.1 400") <= 1
    assert b"HTTP/1.1 200" not in answers.partition(b"HTTP/1.1 400")[2]


def test_requests_sent_at_once_are_answered_in_order(strict):
    request = "GET /v{} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {}\r\n{}\r\n"
    number = 2_000
    sent = [request.format(n, n, "") for n in range(number - 1)]
    sent.append(request.format("last", number - 1, "Connection: close\r\n"))
    with strict.connect() as connection:
        connection.sendall("".join(sent).encode())
        answers = read_all(connection)
    assert re.findall(rb"x-request-id: (\d+)", answers) == [b"%d" % n for n in range(number)]
    assert answers.count(b"HTTP/1.1 404") == number


def test_more_than_a_reading_behind_an_unanswered_request_ends_the_connection(strict):
    """A request that waits for its body's end resumes reading, so what follows it is bounded."""
    ended = 'dtdr_refused_connections_total{reason="pipelined"}'
    head = b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    with strict.connect() as connection, contextlib.suppress(OSError):
        for _ in range(40):
            connection.sendall(head * 2_000)
        read_all(connection)
    assert strict.metric(ended) == 1
    assert strict.get("/healthz").status_code == 200


def test_connections_that_only_wait_make_room_for_others(crowded):
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(crowded.connect())
        for _ in range(5):
            with crowded.connect() as connection:
                connection.sendall(HEAD + b"Connection: close\r\n\r\n")
                assert read_all(connection).startswith(b"HTTP/1.1 200")
    assert crowded.metric('dtdr_refused_connections_total{reason="idle"}') >= 1


def test_more_connections_with_requests_under_way_than_the_limit_get_503(crowded):
    body = b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            busy = stack.enter_context(crowded.connect())
            busy.sendall(body.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
            assert busy.recv(100).startswith(b"HTTP/1.1 100")
        with crowded.connect() as connection:
            connection.sendall(HEAD + b"\r\n")
            answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in answer
    assert "too many connections" in reason(answer)
    serving.wait_until(lambda: crowded.get("/healthz").status_code == 200)
    assert crowded.metric('dtdr_refused_connections_total{reason="full"}') == 1


def test_what_is_not_http_is_refused_and_counted(fitted):
    with serving.serve(serving.settings(fitted)) as served:
        for _ in range(3):
            with served.connect() as connection:
                connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
                answer = read_all(connection)
            assert answer.startswith(b"HTTP/1.1 400")
            assert "not an HTTP request" in reason(answer)
        refused = served.metric('dtdr_refused_connections_total{reason="malformed"}')
    assert refused == 3


def test_a_connection_sends_each_part_of_an_answer_at_once():
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


CHUNKED = b"POST %b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b'd\r\n{"query":"x"}\r\n'


@pytest.mark.parametrize("path", [b"/healthz", b"/v1/rank"])
@pytest.mark.parametrize(
    "endless",
    [
        BODY + b"0\r\n" + b"a:\r\n" * 250_000,
        BODY + b"0\r\na: " + b"a" * 1_000_000,
        BODY + b"d;a=" + b"a" * 1_000_000,
        BODY + b"0" * 1_000_000,
    ],
)
def test_what_surrounds_a_chunked_body_has_the_limit_of_a_head(strict, path, endless):
    """Sent without end, it is neither kept nor waited for."""
    with strict.connect() as connection:
        with contextlib.suppress(OSError):
            for _ in range(20):
                connection.sendall(CHUNKED % path + endless)
        answer = read_all(connection)
    assert not answer or answer.startswith(b"HTTP/1.1 ")
    if path == b"/v1/rank" and answer:  # nothing, if the server had closed before it was read
        assert answer.startswith(b"HTTP/1.1 431")
        assert "larger than 4000 bytes" in reason(answer)


def test_trailers_below_the_limit_are_dropped_and_the_next_request_is_answered(strict):
    sent = CHUNKED % b"/healthz" + BODY + b"0\r\n" + b"X-Key: a\r\n" * 300 + b"\r\n"
    with strict.connect() as connection:
        connection.sendall(sent * 2 + HEAD + b"Connection: close\r\n\r\n")
        answers = read_all(connection)
    assert answers.count(b"HTTP/1.1 405") == 2
    assert answers.count(b"HTTP/1.1 200") == 1


def test_a_head_without_end_behind_a_body_that_was_not_read_is_refused(strict):
    """The answer to the first request came before its body."""
    head = b"POST /v2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n"
    with strict.connect() as connection:
        connection.sendall(head)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 404")
        with contextlib.suppress(OSError):
            connection.sendall(b"x" + HEAD + b"X-Large: " + b"a" * 5_000_000)
        answer = read_all(connection)
    assert not answer or answer.startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    "sent",
    [
        CHUNKED.replace(b"chunked", b"chunked\r\nTransfer-Encoding: chunked") + BODY,
        CHUNKED.replace(b"chunked", b"gzip, chunked") + BODY,
        CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + BODY,
        CHUNKED.replace(b"Host: localhost\r\n", b"") + BODY,
        CHUNKED.replace(b"Host", b"Host: a\r\nHost") + BODY,
        *(CHUNKED + BODY.replace(b"d\r\n", size) for size in
          (b"0xd\r\n", b"+d\r\n", b"d \r\n", b"d\n", b"\r\n", b"d;\r\n", b"f" * 17 + b"\r\n")),
    ],
)  # fmt: skip
def test_what_a_proxy_may_read_in_another_way_is_refused(served, sent):
    with served.connect() as connection:
        connection.sendall(sent.replace(b"%b", b"/v1/rank") + b"0\r\n\r\n" + HEAD + b"\r\n")
        answers = read_all(connection)
    assert answers.startswith(b"HTTP/1.1 400")
    assert answers.count(b"HTTP/1.1 ") == 1
