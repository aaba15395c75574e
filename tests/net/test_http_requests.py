"""What the language models, the endpoint encoder and the clients share, against a bad server."""

import asyncio
import json
import os
import re
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtdr
from dtdr.errors import DtdrError, MissingExtraError
from dtdr.llm.backends.server import OpenAIServer
from dtdr.llm.prompting import Prompt
from dtdr.net.http_requests import (
    Answer,
    Request,
    Transport,
    bound_requests,
    parse_address,
    read_refusal,
    read_retry_after,
    wait_for,
)
from dtdr.text.encoders.endpoint import EndpointEncoder

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


class RawServer:
    """Answers each connection with the next of ``scripts``, a function of the socket."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.default = lambda connection: keep_answering(self, connection)
        self.scripts = []
        self.connections = 0
        self.requests = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            script = self.scripts.pop(0) if self.scripts else self.default
            threading.Thread(target=self._serve, args=(script, connection), daemon=True).start()

    @staticmethod
    def _serve(script, connection):
        with connection, suppress(OSError):  # the client has gone, as it should
            script(connection)


def keep_answering(server, connection):
    while b"\r\n\r\n" in (received := connection.recv(1 << 16)) and received:
        server.requests += 1
        connection.sendall(HEAD + b"{}")


def dripping(before, drop=b" "):
    def script(connection):
        connection.recv(1 << 16)
        connection.sendall(before)
        while True:
            time.sleep(0.02)
            connection.sendall(drop)

    return script


def endless(connection):
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    while True:
        connection.sendall(chunk)


SLOW = {
    "body": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
    "head": dripping(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
    "status": dripping(b"HTTP/1", b".1"),
}


@pytest.fixture
def server():
    running = RawServer()
    yield running
    running.socket.close()


def ask_llm(url, timeout=0.2):
    with closing(OpenAIServer("m", f"{url}/v1", timeout=timeout, tries=1)) as llm:
        llm.complete(Prompt("", "x", ""), max_tokens=1)


def ask_encoder(url, timeout=0.2):
    EndpointEncoder(url=f"{url}/v1", model="m", timeout=timeout, retries=0).encode(["x"])


def ask_client(url, timeout=0.2):
    with dtdr.Client(url, timeout=timeout, retries=0) as client:
        client.rank("x")


def ask_async_client(url, timeout=0.2):
    async def ask():
        async with dtdr.AsyncClient(url, timeout=timeout, retries=0) as client:
            await client.rank("x")

    asyncio.run(ask())


USERS = [ask_llm, ask_encoder, ask_client, ask_async_client]


@pytest.mark.parametrize(
    ("ask", "where"), [*((ask, "body") for ask in USERS), (ask_llm, "head"), (ask_llm, "status")]
)
def test_an_answer_that_drips_ends_at_the_deadline(server, ask, where):
    server.default = SLOW[where]
    with pytest.raises(DtdrError) as raised:
        ask(server.url)
    assert "did not answer in 0.2 seconds" in str(raised.value)


def test_an_answer_without_end_is_cut_at_the_size_limit(server):
    server.scripts = [endless]
    answer = send(Request("GET", server.url), tries=1)
    assert (answer.problem, answer.is_success) == ("sent more than 64 MB", False)


@pytest.mark.parametrize(
    ("ask", "package"), [*((ask, "httpx2") for ask in USERS), (ask_client, "tenacity")]
)
def test_a_missing_package_names_its_extra(ask, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"'{package}'.*pip install 'dtdr\[client\]'"):
        ask("http://127.0.0.1:1")


def answer_with(*statuses):
    """A script that answers one request a connection."""

    def script_of(status):
        def script(connection):
            connection.recv(1 << 16)
            if status:
                head = f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode())

        return script

    return [script_of(status) for status in statuses]


def send(request, tries=4, pause=0.0) -> Answer:
    transport = Transport("a test", request.url, tries, pause)
    try:
        return wait_for(transport.send(request))
    finally:
        wait_for(transport.close())


def test_passing_failures_are_tried_again_and_counted(server):
    server.scripts = answer_with(429, None, 503)
    answer = send(Request("GET", server.url))
    assert (answer.status, answer.content, answer.tries) == (200, b"{}", 4)
    server.scripts = answer_with(*[500] * 9)
    answer = send(Request("GET", server.url), tries=3)
    assert (answer.status, answer.tries) == (500, 3)
    server.scripts = answer_with(400, 400)
    assert send(Request("GET", server.url)).status == 400
    assert len(server.scripts) == 1


def test_all_tries_together_end_within_the_seconds_of_the_context(server):
    server.default = SLOW["body"]
    request = Request("GET", server.url, seconds=60)
    with bound_requests(60), bound_requests(0.5):  # the shorter one counts
        answer = send(request, tries=100, pause=0.1)
    assert re.fullmatch(r"did not answer in 0\.\d+ seconds", answer.problem)
    server.default = lambda connection: keep_answering(server, connection)
    assert send(request).status == 200, "the bound outlives its block"


def test_what_may_have_been_seen_is_sent_again_only_where_that_does_no_harm(server):
    change = Request("POST", server.url, {}, is_repeatable=False)
    server.scripts = answer_with(503)
    assert send(change).status == 503
    server.scripts = answer_with(None)
    answer = send(change)
    assert (answer.status, answer.is_sent, answer.tries) == (0, True, 1)
    server.socket.close()
    answer = send(Request("POST", "http://127.0.0.1:1", {}, is_repeatable=False))
    assert answer.problem.startswith("cannot be reached (")
    assert (answer.is_sent, answer.tries) == (False, 4)


def test_a_redirect_is_an_answer_and_is_not_followed(server):
    def redirect(connection):
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 307 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")

    server.scripts = [redirect]
    assert send(Request("GET", server.url)).status == 307
    assert server.connections == 1


def test_loopback_is_asked_without_a_proxy(server, monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert send(Request("GET", server.url)).status == 200


def test_one_connection_serves_many_requests_and_a_fork_opens_its_own(server):
    transport, request = Transport("a test", server.url), Request("GET", server.url)
    for _ in range(5):
        wait_for(transport.send(request))
    assert (server.connections, server.requests) == (1, 5)
    if not hasattr(os, "fork"):
        return
    child = os.fork()
    if child == 0:
        os._exit(0 if wait_for(transport.send(request)).status == 200 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert server.connections == 2
    wait_for(transport.send(request))
    assert (server.connections, server.requests) == (2, 7)
    wait_for(transport.close())


def test_threads_share_one_transport(server):
    transport, request = Transport("a test", server.url), Request("GET", server.url)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: wait_for(transport.send(request)).status, range(20)))
    assert answers == [200] * 20
    wait_for(transport.close())


@given(st.text() | st.from_regex(r"[-+]?[0-9.eE]+|nan|inf|[A-Z][a-z]{2}, \d\d .*", fullmatch=True))
def test_any_retry_after_is_read_as_seconds(value):
    assert read_retry_after(value) >= 0


@given(st.text() | st.from_regex(r"https?://.*", fullmatch=True) | st.integers() | st.none())
def test_any_address_is_parsed_or_refused(url):
    parts = parse_address(url)
    assert parts is None or (parts.scheme in ("http", "https") and parts.hostname)


@given(
    st.binary()
    | st.recursive(
        st.none() | st.text(),
        lambda inner: st.dictionaries(
            st.sampled_from(["error", "message", "detail", "type", "code"]), inner
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_refusal_is_read_as_one_short_line(content):
    reason, _ = read_refusal(content)
    assert len(reason) <= 300
    assert len(reason.splitlines()) <= 1


def test_a_refusal_never_shows_the_key():
    said = json.dumps({"error": {"message": "no such key s3cret\n!", "type": "auth", "code": 7}})
    assert read_refusal(said.encode(), "s3cret") == ("no such key *** !", "auth 7")
    assert read_refusal(b"s3cret") == ("s3cret", "")
