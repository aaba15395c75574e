"""The clients, against real servers."""

import asyncio
import json
import subprocess
import sys

import httpx2
import pytest

import dtdr
from dtdr.errors import InputError
from dtdr.serve.client import InvalidRequestError, ServerError
from dtdr.serve.server.keys import create_key
from tests import small_data
from tests.server import serving
from tests.server.serving import QUERY


@pytest.fixture
def client(served):
    with dtdr.Client(served.url) as found:
        yield found


@pytest.mark.parametrize("query", [QUERY, "write me a poem about the sea"])
def test_a_remote_ranking_reads_like_a_local_one(query, client, fitted):
    local = dtdr.load(fitted).rank(query, ["read_file"])
    remote = client.rank(query, ["read_file"], top_k=100)
    assert remote.tools == local.tools
    assert remote.best == local.best
    assert remote.probabilities == pytest.approx(local.probabilities, abs=1e-6)
    assert remote.confidence == pytest.approx(local.confidence, abs=1e-6)
    assert remote.is_familiar == local.is_familiar
    assert remote.is_none_of_these == local.is_none_of_these
    assert [tool for tool, _ in remote.top(2)] == [tool for tool, _ in local.top(2)]
    assert remote.probability(local.best) == pytest.approx(local.probability(local.best), abs=1e-6)
    assert remote.probability("no_such") == 0.0


def test_bounds_are_passed_on(client):
    assert len(client.rank(QUERY, top_k=2)) == 2
    assert len(client.rank(QUERY, threshold=0.999)) == 1


def test_a_session_follows_its_calls_and_keeps_nothing_open(client, served):
    with client.session(QUERY) as session:
        assert session.rank(top_k=3) == client.rank(QUERY, top_k=3)
        session.call("read_file").call("summarize", "unknown_tool")
        history = ("read_file", "summarize", "unknown_tool")
        assert session.history == history
        assert session.rank(top_k=3) == client.rank(QUERY, history, top_k=3)
    assert session.rank(top_k=3) == client.rank(QUERY, history, top_k=3), "nothing was open"
    with pytest.raises(InputError, match="share the id"):
        session.call({"id": "x", "tool": "a"}, {"id": "x", "tool": "b"})
    assert session.history == history


def test_a_model_is_taught_with_demonstrations_or_their_json(learner):
    with serving.serve(serving.settings(learner)) as served, dtdr.Client(served.url) as client:
        before = client.rank(QUERY).probability("weather")
        done = client.feedback([{"query": QUERY, "calls": ["weather"]}])
        assert (done.demonstrations, done.new_tools, done.logged) == (1, [], False)
        serving.wait_until(lambda: client.status().unsaved == 1, 120)
        assert client.rank(QUERY).probability("weather") > before
        assert client.feedback(small_data.dataset(6).demonstrations).demonstrations == 6


def test_tools_are_added_and_removed_by_the_client(learner):
    with serving.serve(serving.settings(learner)) as served, dtdr.Client(served.url) as client:
        client.add_tools([dtdr.Tool("scan", "Scan a page"), {"name": "print_pages"}])
        serving.wait_until(lambda: "scan" in client.status().vocabulary, 120)
        client.remove_tools(["scan"])
        serving.wait_until(lambda: "scan" not in client.status().vocabulary, 120)
        with pytest.raises(ServerError, match="no tool is named 'scan'"):
            client.remove_tools(["scan"])
        named = dtdr.Client(served.url, model="mail")
        assert "print_pages" in named.status().vocabulary
        named.close()


def test_refusals_are_errors_that_say_why(client, served):
    with pytest.raises(InvalidRequestError, match="coverage") as caught:
        client.rank(QUERY, coverage=0.9)
    assert caught.value.status == 422
    assert caught.value.kind == "invalid_request"
    assert caught.value.request_id
    assert isinstance(caught.value, InputError)
    with (
        dtdr.Client(served.url, model="nope") as other,
        pytest.raises(ServerError, match="no model is named 'nope'") as missing,
    ):
        other.rank(QUERY)
    assert missing.value.status == 404
    with pytest.raises(InputError, match="history must be a list, not"):
        client.rank(QUERY, "read_file")


def test_the_key_is_given_or_taken_from_the_environment(fitted, tmp_path, monkeypatch):
    key, _ = create_key(tmp_path / "keys.json")
    settings = serving.settings(fitted, keys=tmp_path / "keys.json")
    with serving.serve(settings) as served:
        with dtdr.Client(served.url) as nobody, pytest.raises(ServerError, match="valid key"):
            nobody.rank(QUERY)
        with dtdr.Client(served.url, key=key) as somebody:
            assert somebody.rank(QUERY).best
        monkeypatch.setenv("DTDR_API_KEY", key)
        with dtdr.Client(served.url) as somebody:
            assert somebody.rank(QUERY).best


def test_a_server_that_is_not_there_is_one_sentence():
    with (
        dtdr.Client("http://127.0.0.1:9", retries=1) as client,
        pytest.raises(ServerError, match=r"http://127\.0\.0\.1:9 cannot be reached") as caught,
    ):
        client.rank(QUERY)
    assert caught.value.status == 0


@pytest.mark.parametrize("url", ["", "localhost:8756", "ftp://a", "http://"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InputError, match="not a server's address"):
        dtdr.Client(url)


RANKING = {
    "model": "m",
    "generation": 1,
    "tools": [{"tool": "a", "probability": 1.0}],
    "confidence": 1.0,
    "familiar": True,
    "none_of_these": False,
    "unknown_tools": [],
}


def test_a_question_is_asked_again_and_a_change_is_not():
    seen: list[str] = []
    script: list[int] = []  # 0 closes the connection

    def answer(request):
        seen.append(request.url.path)
        status = script.pop(0) if script else 200
        if not status:
            raise httpx2.ReadError("")
        return httpx2.Response(status, json=RANKING if status == 200 else "busy")

    with dtdr.Client("https://a.example", transport=httpx2.MockTransport(answer)) as client:
        script[:] = [503, 0]
        assert client.rank(QUERY).best == "a"
        assert seen == ["/v1/rank"] * 3
        script[:] = [503] * 3
        with pytest.raises(ServerError, match="not an answer of a dtdr server"):
            client.rank(QUERY)
        for status in (503, 0):
            seen.clear()
            script[:] = [status]
            with pytest.raises(ServerError):
                client.feedback([{"query": "q", "calls": ["a"]}])
            assert seen == ["/v1/feedback"]


def test_both_clients_have_the_same_methods_and_answers(served, fitted):
    names = {name for name in dir(dtdr.Client) if not name.startswith("_")}
    assert names == {name for name in dir(dtdr.AsyncClient) if not name.startswith("_")}
    assert {"rank", "session", "feedback"} <= names

    async def ask():
        async with dtdr.AsyncClient(served.url, model="mail") as client:
            ranked, after = await asyncio.gather(
                client.rank(QUERY, top_k=3), client.rank(QUERY, ["read_file"], top_k=3)
            )
            async with client.session(QUERY) as session:
                await session.call("read_file")
                step = await session.rank(top_k=3)
            async with await client.session(QUERY, ["read_file"]) as session:
                assert await session.rank(top_k=3) == step
            with pytest.raises(ServerError, match="does not support updates"):
                await client.feedback([{"query": "q", "calls": ["weather"]}])
            return ranked, after, step

    with dtdr.Client(served.url, model="mail") as client:
        expected = (
            client.rank(QUERY, top_k=3),
            client.rank(QUERY, ["read_file"], top_k=3),
            client.rank(QUERY, ["read_file"], top_k=3),
        )
        assert asyncio.run(ask()) == expected


def test_importing_dtdr_imports_no_http_library():
    program = (
        "import sys, dtdr, dtdr.cli; print('dtdr.serve.client' in sys.modules); "
        "dtdr.Client; dtdr.AsyncClient; "
        "print('dtdr.serve.client' in sys.modules, "
        "sys.modules.keys() & {'httpx2', 'starlette', 'uvicorn', 'prometheus_client'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True", "set()"], done.stderr
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        dtdr.Clinet  # noqa: B018


def test_a_transport_of_the_users_own_gets_the_bounds():
    seen = []

    def answer(request):
        seen.append((request.method, request.url.path, json.loads(request.content)))
        return httpx2.Response(200, json=RANKING)

    async def ask():
        transport = httpx2.MockTransport(answer)
        async with dtdr.AsyncClient("https://a.example", transport=transport) as client:
            return await client.rank("half \ud800", top_k=1, fallback=False)

    with dtdr.Client("https://a.example", transport=httpx2.MockTransport(answer)) as client:
        assert client.rank("half \ud800", top_k=1, fallback=False) == asyncio.run(ask())
        with pytest.raises(InputError, match="top_k is 0"):
            client.rank(QUERY, top_k=0)
    body = {"query": "half \ud800", "history": [], "before": [], "top_k": 1, "fallback": False}
    assert seen == [("POST", "/v1/rank", body)] * 2
