"""API keys: hashed at rest, checked in constant time, with roles, and noticed when they change."""

import concurrent.futures
import hmac
import json
import os
import stat

import pytest

from dtdr.errors import InputError
from dtdr.serve.feedback import FileLog
from dtdr.serve.server import Settings, create_app
from dtdr.serve.server.keys import create_key, find_key, read_keys, revoke_key
from tests.command_line import is_one_sentence
from tests.server import serving
from tests.server.serving import QUERY, refused


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A key file, a key that may rank, and one that may do everything."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    return path, create_key(path)[0], create_key(path, role="admin", note="refit")[0]


@pytest.fixture(scope="module")
def guarded(fitted, keys):
    with serving.serve(serving.settings(fitted, keys=keys[0])) as found:
        yield found


def test_the_file_holds_hashes_only_and_is_nobody_elses_business(keys):
    path, rank, admin = keys
    text = path.read_text()
    assert rank not in text
    assert admin not in text
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert [(key.role, key.note) for key in read_keys(path)] == [("rank", ""), ("admin", "refit")]


def test_a_request_with_a_key_is_answered_in_either_header(guarded, keys):
    _, rank, admin = keys
    for key in (rank, admin):
        assert guarded.post("/v1/rank", {"query": QUERY}, headers=bearer(key)).status_code == 200
        elsewhere = {"host": "ranking.example", "origin": "https://app.example"}
        headers = {"x-api-key": key, **elsewhere}
        answer = guarded.post("/v1/rank", {"query": QUERY}, headers=headers)
        assert answer.status_code == 200


def test_every_way_to_be_wrong_gets_the_same_answer(guarded, keys):
    _, rank, _ = keys
    wrong = [
        {},
        {"authorization": "Bearer"},
        bearer("dtdr_"),
        bearer(rank[:-1]),
        bearer(rank + "x"),
        bearer(rank.swapcase()),
        bearer("x" * 5_000),
        {"authorization": rank},
        {"authorization": f"Basic {rank}"},
        {"x-api-key": "é".encode()},
    ]
    answers = []
    for headers in wrong:
        answer = guarded.post("/v1/rank", {"query": QUERY}, headers=headers)
        error = answer.json()["error"]
        answers.append((answer.status_code, error["type"], error["message"]))
        assert answer.headers["www-authenticate"] == "Bearer"
    assert set(answers) == {(401, "unauthorized", "send a valid key as: Authorization: Bearer KEY")}
    # Path and body are not looked at.
    assert guarded.get("/no/such/path").status_code == 401
    assert guarded.http.post("/v1/rank", content=b"x" * 2_000_000).status_code == 401


def test_every_key_is_compared_whichever_matches(keys, monkeypatch):
    path, rank, admin = keys
    compared = []
    original = hmac.compare_digest

    def compare(left, right):
        compared.append(left)
        return original(left, right)

    monkeypatch.setattr("dtdr.serve.server.keys.hmac.compare_digest", compare)
    found = read_keys(path)
    for presented, expected in ((rank, "rank"), (admin, "admin"), ("nonsense", None)):
        compared.clear()
        key = find_key(found, presented)
        assert (key and key.role) == expected
        assert len(compared) == 2


def test_health_and_the_description_need_no_key_and_metrics_do(guarded, keys):
    headers = bearer(keys[1])
    before = guarded.metric("dtdr_refused_keys_total", headers=headers)
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        assert guarded.get(path).status_code == 200
    assert "mail" not in guarded.get("/readyz").text + guarded.get("/healthz").text
    assert guarded.get("/metrics").status_code == 401
    assert guarded.metric("dtdr_refused_keys_total", headers=headers) == before + 1


def test_a_key_that_may_rank_may_not_teach_save_or_reload(guarded, keys):
    _, rank, admin = keys
    demonstration = {"demonstrations": [{"query": QUERY, "calls": ["weather"]}]}
    for path, body in (
        ("/v1/feedback", demonstration),
        ("/v1/models/mail/tools", {"remove": ["weather"]}),
        ("/v1/models/mail/reload", None),
        ("/v1/models/mail/save", None),
    ):
        assert "--role admin" in refused(guarded.post(path, body, headers=bearer(rank)), 403)
    assert guarded.post("/v1/models/mail/reload", headers=bearer(admin)).status_code == 200


def test_a_key_behind_a_chunked_body_does_not_count(guarded, keys):
    body = json.dumps({"query": QUERY}).encode()
    request = (
        b"POST /v1/rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nTransfer-Encoding: chunked\r\nTrailer: X-API-Key\r\n\r\n"
        b"%x\r\n%b\r\n0\r\nX-API-Key: %b\r\n\r\n" % (len(body), body, keys[1].encode())
    )
    with guarded.connect() as connection:
        connection.sendall(request)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 401")


def test_a_running_server_notices_new_and_revoked_keys(fitted, tmp_path):
    path = tmp_path / "keys.json"
    first, _ = create_key(path)
    settings = serving.settings(fitted, keys=path, watch_seconds=0.05)
    with serving.serve(settings) as served:
        second, entry = create_key(path)
        serving.wait_until(
            lambda: served.get("/v1/models", headers=bearer(second)).status_code == 200
        )
        revoke_key(path, entry.id)
        serving.wait_until(
            lambda: served.get("/v1/models", headers=bearer(second)).status_code == 401
        )
        good = path.read_text()
        path.write_text("damaged")
        serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 1)
        assert served.get("/v1/models", headers=bearer(first)).status_code == 200
        assert served.metric('dtdr_failing{task="keys"}', headers=bearer(first)) == 1
        path.write_text(good)
        serving.wait_until(lambda: served.get("/readyz").json()["failing"] == 0)


def test_keys_that_are_made_and_revoked_at_once_are_all_there_or_gone(tmp_path):
    path = tmp_path / "keys.json"
    first = [create_key(path)[1].id for _ in range(20)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = [pool.submit(create_key, path) for _ in range(20)]
        for identifier in first:
            pool.submit(revoke_key, path, identifier)
    assert {key.id for key in read_keys(path)} == {item.result()[1].id for item in made}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org", ""])
def test_an_address_that_others_reach_is_refused_without_keys(fitted, host):
    with pytest.raises(InputError, match="--keys FILE"):
        Settings(models={"mail": fitted}, host=host)


def test_a_file_without_any_key_serves_nobody(fitted, keys, tmp_path):
    path = tmp_path / "empty.json"
    record = json.loads(keys[0].read_text())
    path.write_text(json.dumps({**record, "keys": []}))
    with pytest.raises(InputError, match="has no key"):
        create_app(Settings(models={"mail": fitted}, host="0.0.0.0", keys=path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": "dtdr-keys", "format_version": 2, "keys": []}',
        '{"format": "dtdr-keys", "format_version": 1, "keys": [{}]}',
    ],
)
def test_a_file_that_is_no_key_file_is_an_error_that_names_it(tmp_path, text):
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"odd\.json"):
        read_keys(path)


def test_keys_are_made_listed_and_revoked_on_the_command_line(cli, tmp_path):
    path = tmp_path / "keys.json"
    code, key, said = cli("keys", "create", path, "--role", "admin", "--note", "refit")
    assert code == 0
    assert key.startswith("dtdr_")
    assert len(key.strip()) > 40
    assert is_one_sentence(said)
    found = find_key(read_keys(path), key.strip())
    assert found is not None
    code, listed, _ = cli("keys", "list", path, "--json")
    assert [item["note"] for item in json.loads(listed)["keys"]] == ["refit"]
    assert key.strip() not in listed
    assert "admin" in cli("keys", "list", path)[1]
    assert cli("keys", "revoke", path, "nope")[0] == 2
    assert cli("keys", "revoke", path, found.id)[0] == 0
    assert read_keys(path) == ()


def test_a_key_sends_a_number_of_demonstrations_an_hour_and_is_named_in_the_log(
    fitted, keys, tmp_path
):
    log = tmp_path / "feedback.jsonl"
    settings = serving.settings(
        fitted, keys=keys[0], feedback_log=str(log), hourly_demonstrations=5
    )
    headers, other = bearer(keys[2]), bearer(create_key(keys[0], role="admin")[0])

    def send(count, headers):
        bodies = [{"query": QUERY, "calls": ["weather"]}] * count
        return served.post("/v1/feedback", {"demonstrations": bodies}, headers=headers)

    with serving.serve(settings) as served:
        assert send(3, headers).is_success
        assert "3 demonstrations within an hour" in refused(send(3, headers), 429)
        assert send(2, headers).is_success
        answer = send(1, headers)
        assert answer.status_code == 429
        assert 3_500 < int(answer.headers["retry-after"]) <= 3_600
        assert send(5, other).is_success, "another key has its own number"
        first, second = served.service.keys[1].id, served.service.keys[2].id
    senders = [json.loads(line)["sender"] for line in log.read_text().splitlines()]
    assert senders == [first] * 5 + [second] * 5
    assert [entry.sender for entry in FileLog(log).read("", 20)] == senders
