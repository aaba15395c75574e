"""Sessions in Redis: several servers on one session, lost walks, failures of Redis."""

import asyncio
import concurrent.futures
import contextlib
import functools
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import httpx2
import pytest

import dtdr
from dtdr.cli import run
from dtdr.errors import InputError, MissingExtraError
from dtdr.serve.server.keys import create_key
from tests.redis_server import RedisServer
from tests.server import serving
from tests.server.serving import QUERY, lose_answers, refused

CALL = {"tool": "read_file", "id": "a", "arguments": {"name": "q3.pdf"}, "output": "Sales rose."}
BEFORE: list[Any] = [
    {"role": "user", "content": "I am Ann"},
    {"role": "call", "id": "b1", "tool": "find_contact", "arguments": {"name": "Ann"}},
]


@pytest.fixture(scope="module")
def replicas(fitted, redis_server):
    """Two servers that share their sessions."""
    settings = serving.settings(fitted, session_store=redis_server.url)
    with serving.serve(settings) as first, serving.serve(settings) as second:
        yield first, second


@pytest.fixture
def client(redis_server):
    """A client of the Redis that the replicas share."""
    import redis

    with redis.from_url(redis_server.url) as client:
        yield client


def name_of(path, owner=""):
    """The name of a session's list in Redis."""
    return f"dtdr:session:4:{owner}:" + path.rsplit("/", 1)[1]


def test_every_server_answers_every_step_as_one_process_does(replicas, served):
    first, second = replicas
    for given in ({}, {"before": BEFORE, "history": [CALL]}):
        shared, alone = first.open_session(**given), served.open_session(**given)
        for step, call in enumerate(["summarize", {**CALL, "id": "c"}, "send_mail", "unknown"]):
            body = {"tools": [call], "rank": {"top_k": 5}}
            answers = [
                (second, first)[step % 2].post(f"{shared}/call", body).json(),
                served.post(f"{alone}/call", body).json(),
            ]
            assert answers[0]["history"] == answers[1]["history"]
            assert answers[0]["ranking"] == answers[1]["ranking"]
            ranked = (first, second)[step % 2].post(f"{shared}/rank", {"top_k": 5}).json()
            assert ranked == answers[1]["ranking"]


def test_a_session_takes_about_a_kilobyte_of_redis(replicas, client):
    text = json.dumps([{"title": f"Report {n}", "pages": n * 7} for n in range(200)])
    for output, most in (("", 1_000), (text[:200], 2_500), (text, 10_000)):
        path = replicas[0].open_session(before=BEFORE)
        for _ in range(4):
            call = {"tool": "read_file", "output": output} if output else "read_file"
            replicas[0].post(f"{path}/call", {"tools": [call]})
        assert 0 < client.pttl(name_of(path)) <= 1_800_000
        assert client.llen(name_of(path)) == 5
        assert client.memory_usage(name_of(path), samples=0) < most


def test_servers_that_tell_a_session_of_calls_at_once_lose_and_repeat_none(replicas):
    path = replicas[0].open_session()
    tools = [f"tool_{number}" for number in range(24)]

    def tell(number):
        body = {"tools": [tools[number]]}
        for _ in range(20):
            answer = replicas[number % 2].post(f"{path}/call", body)
            if answer.status_code != 503:
                return answer
        raise AssertionError("it was refused again and again")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert {answer.status_code for answer in pool.map(tell, range(24))} == {200}
    histories = [server.get(path).json()["history"] for server in replicas]
    assert sorted(histories[0]) == sorted(tools)
    assert histories[0] == histories[1]


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_request_that_is_sent_again_adds_nothing(kind, replicas, served):
    first, second = replicas if kind == "redis" else (served, served)
    path = first.open_session()
    body = {"tools": ["read_file"], "idempotency_key": "k1"}
    for server in (first, second, first):
        assert server.post(f"{path}/call", body).json()["history"] == ["read_file"]
    again = second.post(f"{path}/call", {**body, "idempotency_key": "k2"}).json()
    assert again["history"] == ["read_file"] * 2


@pytest.mark.parametrize("marker", [b'"query":', b'"key":'])
def test_what_redis_did_before_its_answer_was_lost_counts_once(fitted, redis_server, marker):
    with lose_answers(redis_server.port, marker) as (port, lost):
        settings = serving.settings(fitted, session_store=f"redis://127.0.0.1:{port}")
        with serving.serve(settings) as served:
            path = served.open_session()
            answer = served.post(f"{path}/call", {"tools": ["read_file"], "idempotency_key": "k"})
            assert lost.is_set()
    assert answer.status_code == 200, answer.text
    assert answer.json()["history"] == ["read_file"]


def test_a_deleted_session_is_gone_everywhere_and_belongs_to_its_key(replicas):
    first, second = replicas
    path = first.open_session()
    assert second.get(path).status_code == 200
    assert first.http.delete(path).status_code == 204
    for server, action in ((second, "rank"), (second, "call"), (first, "call")):
        body = {"tools": ["read_file"]} if action == "call" else {}
        assert "deleted, expired" in refused(server.post(f"{path}/{action}", body), 404)
    assert first.post("/v1/sessions/nonsense/rank", {}).status_code == 404


def test_a_session_expires_everywhere(fitted, redis_server, client):
    settings = serving.settings(fitted, session_store=redis_server.url, session_seconds=1.0)
    with serving.serve(settings) as first, serving.serve(settings) as second:
        path = first.open_session()
        assert second.post(f"{path}/rank", {}).status_code == 200
        serving.wait_until(lambda: not client.exists(name_of(path)))
        assert first.post(f"{path}/rank", {}).status_code == 404
        assert second.post(f"{path}/call", {"tools": ["read_file"]}).status_code == 404


def test_limits_of_one_session_hold(fitted, redis_server, monkeypatch):
    monkeypatch.setattr("dtdr.serve.server.redis_sessions._SESSION_BYTES", 4_000)
    settings = serving.settings(fitted, session_store=redis_server.url, history=3)
    with serving.serve(settings) as served:
        path = served.open_session(history=["read_file"])
        large = {"tool": "read_file", "arguments": {"text": "x" * 3_000}}
        for tools in (["read_file"] * 3, [large]):
            assert refused(served.post(f"{path}/call", {"tools": tools}), 422)
        assert served.get(path).json()["history"] == ["read_file"]


@pytest.mark.parametrize("entry", [b"not JSON", b'{"model":"mail"}'])
def test_a_session_of_another_version_is_refused_and_not_guessed(replicas, client, entry):
    name = name_of("/v1/sessions/damaged")
    client.rpush(name, entry)
    answer = replicas[0].post("/v1/sessions/damaged/rank", {})
    client.delete(name)
    assert "open it again" in refused(answer, 404)


@pytest.mark.parametrize("part", ["calls", "before", "entries", "bytes"])
def test_a_session_that_is_larger_than_any_of_the_servers_is_refused_at_once(
    replicas, client, part
):
    """Whoever may write to Redis must not make each request take seconds."""
    name = name_of(replicas[0].open_session(history=["read_file"]))
    start = json.loads(client.lindex(name, 0))
    call = start["run"]["calls"][0]
    more = json.dumps({"key": "k", "calls": [call]})
    if part == "entries":
        client.rpush(name, *[more] * 20_000)
    elif part == "bytes":
        client.rpush(name, json.dumps({"key": "k", "calls": [{**call, "id": "x" * 20_000_000}]}))
    else:
        start["run"][part] = (start["run"].get(part) or [call]) * 100_000
        client.lset(name, 0, json.dumps(start))
    path = "/v1/sessions/" + name.rpartition(":")[2]
    answer = replicas[0].post(f"{path}/rank", {})
    client.delete(name)
    assert "open it again" in refused(answer, 404)


def test_another_keys_request_does_not_prolong_a_session(fitted, redis_server, client, tmp_path):
    (mine, entry), (other, _) = [create_key(tmp_path / "keys.json") for _ in range(2)]
    settings = serving.settings(fitted, session_store=redis_server.url, keys=tmp_path / "keys.json")
    with serving.serve(settings) as served:
        served.http.headers = {"X-API-Key": mine}
        path = served.open_session()
        name = name_of(path, entry.id)
        client.pexpire(name, 100_000)
        for method in ("GET", "DELETE"):
            assert refused(served.http.request(method, path, headers={"X-API-Key": other}), 404)
        assert 0 < client.pttl(name) <= 100_000
        assert served.get(path).status_code == 200
        assert client.pttl(name) > 100_000


def test_a_server_without_the_model_of_a_session_says_so(fitted, redis_server, replicas):
    path = replicas[0].open_session()
    settings = serving.settings(models={"home": fitted}, session_store=redis_server.url)
    with serving.serve(settings) as served:
        assert "same models" in refused(served.post(f"{path}/rank", {}), 503)


def message(answer):
    assert answer.headers["retry-after"] == "1"
    return refused(answer, 503)


def test_without_redis_sessions_answer_503_and_come_back_by_themselves(fitted, tmp_path):
    server = RedisServer(tmp_path)
    try:
        with (
            serving.serve(serving.settings(fitted, session_store=server.url)) as served,
            serving.serve(serving.settings(fitted)) as alone,
        ):
            path = served.open_session(history=["read_file"])
            server.stop()
            for answer in (
                served.post("/v1/sessions", {"query": QUERY}),
                served.post(f"{path}/call", {"tools": ["summarize"]}),
                served.post(f"{path}/rank", {}),
                served.http.delete(path),
            ):
                assert "cannot be reached" in message(answer)
                assert str(server.port) in message(answer)
            assert served.post("/v1/rank", {"query": QUERY}).status_code == 200
            serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 1)
            server.start()
            told = served.post(f"{path}/call", {"tools": ["summarize"], "rank": {}})
            history = ["read_file", "summarize"]
            assert told.json()["history"] == history
            expected = alone.post("/v1/rank", {"query": QUERY, "history": history}).json()
            assert told.json()["ranking"] == expected
            serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 0)
    finally:
        server.stop()


def test_a_wrong_password_and_a_full_redis_are_said_and_can_be_mended(fitted, tmp_path):
    import redis

    server = RedisServer(tmp_path, requirepass="right")
    try:
        with serving.serve(
            serving.settings(
                fitted, session_store=server.url.replace("//", "//:wrong@"), watch_seconds=0.0
            )
        ) as served:
            reason = message(served.post("/v1/sessions", {"query": QUERY}))
            assert "refused the user or password" in reason
            assert "wrong" not in reason
        right = server.url.replace("//", "//:right@")
        with serving.serve(serving.settings(fitted, session_store=right)) as served:
            path = served.open_session()
            with redis.from_url(right) as client:
                client.config_set("maxmemory", "1mb")
                assert "is full" in message(served.post("/v1/sessions", {"query": QUERY}))
                assert "is full" in message(served.post(f"{path}/call", {"tools": ["read_file"]}))
                assert served.post(f"{path}/rank", {}).status_code == 200
                client.config_set("maxmemory", "0")
            assert served.post(f"{path}/call", {"tools": ["read_file"]}).status_code == 200
    finally:
        server.stop()


def test_a_node_of_a_cluster_is_refused_by_name(fitted):
    pytest.importorskip("redis", reason="needs the extra 'redis'")

    def refuse(listener):
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as client:
                    while asked := client.recv(65_536):
                        # Commands of the connection itself are answered by any node.
                        known = asked.count(b"CLIENT") or asked.count(b"SELECT")
                        client.sendall(b"+OK\r\n" * known or b"-MOVED 1 h:1\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=refuse, args=[listener], daemon=True).start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        with serving.serve(serving.settings(fitted, session_store=url)) as served:
            reason = message(served.post("/v1/sessions", {"query": QUERY}))
    assert "is a node of a Redis Cluster" in reason


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1", "redis://127.0.0.1:port", "somewhere", "redis://h/0?socket_timeout=x"],
)
def test_an_address_that_is_not_one_of_redis_stops_the_start(url, fitted, capsys):
    pytest.importorskip("redis", reason="needs the extra 'redis'")
    assert run(["serve", str(fitted), "--sessions", url, "--port", "0"]) == 2
    assert "is not an address of Redis" in capsys.readouterr().err


def test_a_missing_package_is_named_with_its_extra(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    from dtdr.serve.server import create_app

    with pytest.raises(MissingExtraError, match=r"dtdr\[redis\]"):
        create_app(serving.settings(fitted, session_store="redis://127.0.0.1:1"))


def test_the_address_of_valkey_is_one_too():
    pytest.importorskip("redis", reason="needs the extra 'redis'")
    from dtdr.net.redis_client import connect, describe_address

    for url in ("valkey://h:1/2", "valkeys://:secret@h:1/2", "rediss://user:secret@h", "unix:///s"):
        client = connect(url, asynchronous=True)
        assert "secret" not in describe_address(url)
        asyncio.run(client.aclose())
    with pytest.raises(InputError):
        connect("mongodb://h")


@pytest.mark.slow
def test_two_thousand_sessions_survive_a_killed_replica_and_a_restarted_redis(fitted, tmp_path):
    """Requests of both servers in turns are repeated until one is answered; no step is lost."""
    sessions, steps, tools = 2_000, 10, ("read_file", "summarize", "find_contact", "send_mail")
    model = dtdr.load(fitted)

    @functools.cache
    def expected(query, history):
        top = model.rank(query, history).top(5)
        return [{"tool": tool, "probability": round(float(p), 6)} for tool, p in top]

    turns = itertools.count()
    repeated: list[str] = []
    paths: dict[int, str] = {}
    histories: dict[int, tuple[str, ...]] = dict.fromkeys(range(sessions), ())

    def ask(path, body):
        for attempt in range(400):
            try:
                answer = client.post(backends[next(turns) % 2] + path, json=body)
            except httpx2.TransportError:
                answer = None
            if answer is not None and answer.is_success:
                repeated.extend([path] * bool(attempt))
                return answer.json()
            assert answer is None or answer.status_code == 503, answer.text
            time.sleep(0.05)
        raise AssertionError("no server answered")

    def take_step(number):
        query = f"{QUERY} number {number % 7}"
        if number not in paths:
            paths[number] = f"/v1/sessions/{ask('/v1/sessions', {'query': query})['session']}/call"
        tool = tools[(number + len(histories[number])) % len(tools)]
        history = histories[number] = (*histories[number], tool)
        body = {"tools": [tool], "rank": {"top_k": 5}, "idempotency_key": str(len(history))}
        answer = ask(paths[number], body)
        assert tuple(answer["history"]) == history
        assert answer["ranking"]["tools"] == expected(query, history)

    server = RedisServer(tmp_path)
    keys = tmp_path / "keys.json"
    headers = {"x-api-key": create_key(keys)[0]}
    options = ("--sessions", server.url, "--keys", keys, "--quiet", "--watch", "0")
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        processes = [stack.enter_context(serving.process(fitted, *options)) for _ in range(2)]
        backends = [item.url for item in processes]
        client = stack.enter_context(httpx2.Client(headers=headers, timeout=30))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(4))
        for step in range(steps):
            done = [pool.submit(take_step, number) for number in range(sessions)]
            serving.wait_until(done[sessions // 2].done, 300)
            if step == 2:
                os.kill(processes[1].process.pid, signal.SIGKILL)
            elif step == 4:
                backends[1] = stack.enter_context(serving.process(fitted, *options)).url
            elif step == 6:
                server.stop()
                time.sleep(0.3)
                server.start()
            for item in done:
                item.result()
    assert repeated
