"""What the sessions of one API key may hold together, in memory and over several servers."""

import concurrent.futures
import contextlib

import pytest

from dtdr.serve.server.keys import create_key
from tests.server import serving
from tests.server.serving import lose_answers

QUERY = "q" * 4_000
LIMIT = 20_000
"""Three sessions of that query."""


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture
def client(key_file):
    """Headers and id of a key that nobody used yet."""
    key, entry = create_key(key_file)
    return {"x-api-key": key}, entry.id


def limited(fitted, key_file, **given):
    create_key(key_file)  # a server starts with one at least
    settings = serving.settings(
        fitted, keys=key_file, key_session_bytes=LIMIT, watch_seconds=0.02, **given
    )
    return serving.serve(settings)


@pytest.fixture(scope="module")
def replicas(fitted, key_file, redis_server):
    with (
        limited(fitted, key_file, session_store=redis_server.url) as first,
        limited(fitted, key_file, session_store=redis_server.url) as second,
    ):
        yield first, second


@pytest.fixture(scope="module")
def alone(fitted, key_file):
    with limited(fitted, key_file) as served:
        yield served


@pytest.fixture
def redis(redis_server):
    import redis

    with redis.from_url(redis_server.url, decode_responses=True) as connection:
        yield connection


def wait_until_known(servers, headers):
    """Servers look for new keys at times."""
    serving.wait_until(
        lambda: all(
            server.get("/v1/models", headers=headers).status_code == 200 for server in servers
        )
    )


def start(server, headers, **given):
    return server.post("/v1/sessions", {"query": QUERY, **given}, headers=headers)


def fill(servers, client):
    """As many sessions as there is room for; their paths."""
    headers, _ = client
    wait_until_known(servers, headers)
    answers = [start(servers[number % len(servers)], headers) for number in range(3)]
    assert [answer.status_code for answer in answers] == [201] * 3
    return ["/v1/sessions/" + answer.json()["session"] for answer in answers]


def weights_of(client):
    return f"dtdr:sessions:3:{client[1]}"


def list_name(client, path):
    return f"dtdr:session:3:{client[1]}:" + path.rsplit("/", 1)[1]


def refusal(answer):
    assert answer.status_code == 429, answer.text
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    return answer.json()["error"]["message"]


def test_the_limit_of_a_key_is_that_of_a_server_alone(replicas, alone, client, key_file):
    headers = client[0]
    messages = []
    for servers in (replicas, (alone, alone)):
        paths = fill(servers, client)
        messages.append([refusal(start(server, headers)) for server in servers])
        tools = ["x" * 500] * 6
        told = servers[1].post(f"{paths[0]}/call", {"tools": tools}, headers=headers)
        messages[-1].append(refusal(told))
        assert servers[0].get(paths[0], headers=headers).json()["history"] == []
        assert servers[0].post(f"{paths[0]}/rank", {}, headers=headers).status_code == 200
        assert servers[0].http.delete(paths[0], headers=headers).status_code == 204
        assert start(servers[1], headers).status_code == 201
        refusal(start(servers[0], headers))
        other = {"x-api-key": create_key(key_file)[0]}
        wait_until_known(servers, other)
        assert start(servers[1], other).status_code == 201, "a key has room of its own"
    assert messages[0] == messages[1]
    assert "of this key take" in messages[0][0]


def test_servers_that_open_sessions_at_once_keep_the_limit_together(replicas, client):
    wait_until_known(replicas, client[0])
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: start(replicas[n % 2], client[0]), range(12)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [429] * 9


def test_a_session_that_is_gone_makes_room(replicas, client, redis):
    """Expired or evicted, which look alike."""
    paths = fill(replicas, client)
    redis.delete(list_name(client, paths[1]))
    assert start(replicas[0], client[0]).status_code == 201
    refusal(start(replicas[0], client[0]))
    assert redis.hlen(weights_of(client)) == 1 + 3


def test_a_session_that_was_only_ranked_since_counts_on(replicas, client, redis):
    paths = fill(replicas, client)
    for path in paths:
        redis.pexpire(list_name(client, path), 2_000)
        assert replicas[0].post(f"{path}/rank", {}, headers=client[0]).status_code == 200
        assert redis.pttl(list_name(client, path)) > 2_000
    refusal(start(replicas[0], client[0]))


def test_redis_that_forgets_everything_or_half_of_it_locks_nobody_out(replicas, client, redis):
    paths = fill(replicas, client)
    assert redis.delete(weights_of(client)) == 1
    answer = replicas[0].post(f"{paths[0]}/call", {"tools": ["a"]}, headers=client[0])
    assert answer.status_code == 200, answer.text
    for path in paths:
        assert replicas[1].http.delete(path, headers=client[0]).status_code == 204
    fill(replicas, client)
    refusal(start(replicas[0], client[0]))
    redis.flushdb()  # as a restart without persistence
    fill(replicas, client)
    refusal(start(replicas[0], client[0]))


def test_a_request_that_is_sent_to_redis_twice_counts_once(fitted, key_file, redis_server, redis):
    for marker in (b'"query":', b'"key":'):
        key, entry = create_key(key_file)
        headers = {"x-api-key": key}
        with contextlib.ExitStack() as stack:
            port, lost = stack.enter_context(lose_answers(redis_server.port, marker))
            url = f"redis://127.0.0.1:{port}"
            served = stack.enter_context(limited(fitted, key_file, session_store=url))
            # Short enough not to be compressed, so that the marker is seen.
            path = "/v1/sessions/" + start(served, headers, query="q").json()["session"]
            body = {"tools": ["read_file"], "idempotency_key": "k1"}
            told = served.post(f"{path}/call", body, headers=headers)
            assert told.json()["history"] == ["read_file"]
            assert lost.is_set()
        weights = redis.hgetall(f"dtdr:sessions:3:{entry.id}")
        identifier = path.rsplit("/", 1)[1]
        session = served.service.sessions._decode(
            identifier, entry.id, redis_bytes(redis_server, list_name((headers, entry.id), path))
        )
        assert weights == {"": str(session.bytes), identifier: str(session.bytes)}
        assert redis.llen(list_name((headers, entry.id), path)) == 2


def test_a_full_redis_lets_sessions_be_deleted_and_counts_them_off_later(replicas, client, redis):
    paths = fill(replicas, client)
    redis.config_set("maxmemory", "1")
    try:
        assert replicas[0].http.delete(paths[0], headers=client[0]).status_code == 204
        assert replicas[1].get(paths[0], headers=client[0]).status_code == 404
    finally:
        redis.config_set("maxmemory", "0")
    assert start(replicas[1], client[0]).status_code == 201
    refusal(start(replicas[1], client[0]))


def redis_bytes(redis_server, name):
    """The entries of a list."""
    import redis

    with redis.from_url(redis_server.url) as connection:
        return connection.lrange(name, 0, -1)


def test_what_is_known_of_a_key_goes_with_its_sessions(replicas, client, redis):
    paths = fill(replicas, client)
    assert 1_800_000 < redis.pttl(weights_of(client)) <= 3_600_000
    for path in paths:
        replicas[0].http.delete(path, headers=client[0])
    assert redis.hgetall(weights_of(client)) == {"": "0"}
