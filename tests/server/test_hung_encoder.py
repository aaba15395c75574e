"""A model whose encoder asks a server that answers nothing, beside a model that works."""

import concurrent.futures
import contextlib
import json
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from dtdr.text.encoders.endpoint import EndpointEncoder
from tests.embeddings_server import EmbeddingsServer, embeddings_server
from tests.server import serving
from tests.server.serving import QUERY


@pytest.fixture
def embeddings(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingsServer]:
    monkeypatch.setenv("DTDR_ALLOW_ENDPOINT", "127.0.0.1")
    with embeddings_server() as server:
        yield server


@pytest.fixture
def models(fitted: Path, tmp_path: Path, embeddings: EmbeddingsServer) -> dict[str, Path]:
    encoder = EndpointEncoder(url=embeddings.url, model="m", dimension=4)
    remote = serving.fit(tmp_path / "remote", ranker="qts", encoder=encoder)
    return {"mail": fitted, "remote": remote}


def new_query(model: str) -> dict[str, str]:
    """A query that was never asked for, since embeddings are kept, and takes a thread."""
    return {"query": f"{QUERY} {secrets.token_hex(300)}", "model": model}


def ask(served: serving.Served, model: str) -> httpx2.Response:
    return httpx2.post(f"{served.url}/v1/rank", json=new_query(model), timeout=60)


def test_a_hung_encoder_is_given_up_and_keeps_no_other_model_waiting(models, embeddings):
    with (
        serving.serve(serving.settings(models=models, ranking_seconds=3)) as served,
        concurrent.futures.ThreadPoolExecutor(60) as pool,
    ):
        assert ask(served, "remote").status_code == 200
        embeddings.works.clear()
        embeddings.requests.clear()
        pending = [pool.submit(ask, served, "remote") for _ in range(60)]
        serving.wait_until(lambda: embeddings.requests)
        assert ask(served, "mail").status_code == 200
        assert not any(item.done() and item.result().status_code == 200 for item in pending)
        answers = [item.result() for item in pending]
        assert {item.status_code for item in answers} <= {502, 503}
        tool = {"type": "function", "function": {"name": "read_file", "parameters": {}}}
        request = {"messages": [{"role": "user", "content": f"{QUERY}!"}], "tools": [tool]}
        masked = served.post("/v1/mask/openai", {"model": "remote", "request": request})
        assert masked.status_code in (200, 503)
        embeddings.works.set()
        serving.wait_until(lambda: ask(served, "remote").status_code == 200)


def test_a_server_with_a_hung_encoder_stops_when_told_to(models, embeddings):
    """And answers every request that was sent before, read or not."""
    given = [f"{name}={folder}" for name, folder in models.items()]
    with (
        contextlib.ExitStack() as stack,
        serving.process(*given, "--quiet", "--limit", "ranking_seconds=600") as served,
    ):
        embeddings.works.clear()
        connections = []
        for _ in range(20):
            connections.append(stack.enter_context(served.connect()))
            connections[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += connections[-1].recv(65_536)
        for number, connection in enumerate(connections):
            body = json.dumps(new_query("remote")).encode()
            head = "POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            if number == 11:  # the others are sent as it stops
                serving.wait_until(lambda: len(embeddings.requests) >= 8)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) == 0
        answers = [connection.recv(65_536) for connection in connections]
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 503"] * 20
