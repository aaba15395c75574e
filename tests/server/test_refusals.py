"""Whatever is sent, the answer is a 4xx with a reason, and the server goes on."""

import string

import pytest

from tests.server import serving
from tests.server.serving import QUERY, refused

JSON = {"content-type": "application/json"}
POSTS = ["/v1/rank", "/v1/rank/batch", "/v1/plans", "/v1/mask/openai", "/v1/feedback"]


@pytest.mark.parametrize("body", [b" " * 10_000_000, [b" " * 100_000] * 100])
def test_a_body_of_ten_megabytes_is_refused_with_the_limit(served, body):
    content = body if isinstance(body, bytes) else iter(body)
    reason = refused(served.http.post("/v1/rank", content=content, headers=JSON), 413)
    assert "1000000 bytes" in reason


ANY_JSON = [
    ("/v1/mask/openai", '{"request":{"messages":[{"a":'),
    ("/v1/mask/anthropic", '{"request":{"messages":[{"a":'),
    ("/v1/feedback", '{"demonstrations":[{"query":"q","calls":[{"id":"1","arguments":{"a":'),
]


@pytest.mark.parametrize(("path", "start"), [*((path, "") for path in POSTS), *ANY_JSON])
@pytest.mark.parametrize("opening", ["[", '{"a":', '{"query":['])
def test_deep_nesting_is_refused(served, path, start, opening):
    body = start + opening * (900_000 // len(opening))
    reason = refused(served.http.post(path, content=body.encode(), headers=JSON), 400, 422)
    assert not start or "nested too deeply" in reason


@pytest.mark.parametrize("depth", [50, 200, 400, 800, 950, 990])
def test_nesting_that_json_can_still_read_is_no_failure(served, depth):
    for deep in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        calls = f'[{{"id":"1","tool":"weather","arguments":{{"a":{deep}}}}}]'
        bodies = {
            "/v1/feedback": f'{{"demonstrations":[{{"query":"q","calls":{calls}}}]}}',
            "/v1/mask/openai": f'{{"request":{{"messages":[{{"role":"user","content":{deep}}}],'
            f'"tools":[{{"name":"weather","parameters":{deep}}}]}}}}',
            "/v1/rank": f'{{"query":{deep}}}',
        }
        for path, body in bodies.items():
            answer = served.http.post(path, content=body.encode(), headers=JSON)
            assert answer.status_code < 500, (path, answer.text)


RANK = b'{"query":"Mail Ann","history":["read_file"],"top_k":3}'
MESSAGE = b'{"request":{"messages":[{"role":"user","content":"%s"}],"tools":[]}}'


NO_OBJECT = "the body must be a JSON object, sent with Content-Type: application/json"


@pytest.mark.parametrize(
    ("path", "content", "status", "message"),
    [
        ("/v1/rank", b"\xef\xbb\xbf" + RANK, 200, ""),
        ("/v1/rank", b'{"query":"a","top_k":"3"}', 200, ""),
        ("/v1/rank", b'{"query":"a","top_k":3.0}', 200, ""),
        ("/v1/rank", b'{"query":"a","query":"b"}', 200, ""),
        ("/v1/rank", b'{"query":"a","model":null}', 200, ""),
        ("/v1/rank", b"", 422, NO_OBJECT),
        ("/v1/rank", b"[]", 422, NO_OBJECT),
        ("/v1/rank", b"{", 400, "the body is not JSON ("),
        ("/v1/rank", RANK + b"x", 400, "the body is not JSON ("),
        ("/v1/rank", b'{"query":"\xff"}', 400, "the body is not UTF-8"),
        ("/v1/rank", b'{"query":" \\n "}', 422, "the query is empty; say what"),
        ("/v1/rank", b"{}", 422, "the body: object missing required field `query`"),
        ("/v1/rank", b'{"query":5}', 422, "query: expected `str`, got `int`"),
        ("/v1/rank", b'{"query":"a","x":[]}', 422, "the body: object contains unknown field `x`"),
        ("/v1/rank/batch", b'{"steps":[{"query":"a","x":1}]}', 422, "steps.0: object contains"),
        ("/v1/rank", b'{"query":"a","history":["a",""]}', 422, "history.1: expected `str` of"),
        ("/v1/mask/openai", MESSAGE[:-1] + b',"form":"x"}', 422, "form: not one of the values"),
        ("/v1/mask/openai", MESSAGE % b"cut \\ud83d", 400, "the body is not"),
        ("/v1/mask/openai", MESSAGE % b"\xff", 400, "the body is not UTF-8"),
        ("/v1/mask/openai", b'{"request":NaN}', 400, "the body is not JSON"),
        ("/v1/rank/", RANK, 307, ""),
        ("//v1/rank", RANK, 404, "there is nothing at this path; see /docs"),
    ],
)
def test_status_and_reason_of_a_body(served, path, content, status, message):
    answer = served.http.post(path, content=content, headers=JSON)
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert refused(answer, status).startswith(message)


def test_a_body_that_is_not_said_to_be_json_is_refused(served):
    def post(kind):
        return served.http.post("/v1/rank", content=RANK, headers={"content-type": kind})

    for kind in ("application/json; charset=utf-8", "application/problem+json"):
        assert post(kind).status_code == 200
    for kind in ("", "text/json", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert refused(post(kind), 422) == NO_OBJECT


def test_what_was_sent_is_not_repeated_in_the_reason(served):
    secret = "hunter2-" * 50
    for body in ({"query": 5, "history": [secret]}, {"query": "a", "top_k": secret}):
        assert "hunter2" not in served.post("/v1/rank", body).text


def test_long_queries_histories_and_batches_are_refused_with_the_limit(served):
    cases = [
        ("/v1/rank", {"query": "x" * 32_769}, "32768"),
        ("/v1/rank", {"query": "x", "history": ["a"] * 1_001}, "1000"),
        ("/v1/rank/batch", {"steps": [{"query": "x"}] * 257}, "256"),
        ("/v1/rank/batch", {"steps": [{"query": "x", "history": ["a"] * 1_001}]}, "1000"),
        ("/v1/feedback", {"demonstrations": [{"query": "x", "calls": ["a"]}] * 257}, "256"),
        ("/v1/feedback", {"demonstrations": [{"query": "x", "calls": ["a"] * 1_001}]}, "1000"),
    ]
    for path, body, limit in cases:
        assert limit in refused(served.post(path, body), 422)


def test_unknown_paths_and_methods_say_what_there_is(served):
    assert "/docs" in refused(served.get("/v2/rank"), 404)
    assert "POST" in refused(served.get("/v1/rank"), 405)
    assert "GET" in refused(served.http.put("/v1/models"), 405)


METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://localhost:3000", "null", "http://127.0.0.1", ""]
)
def test_a_web_page_is_refused_without_keys_whatever_it_asks(served, method, origin):
    for path in ("/v1/models/mail/reload", "/v1/models/mail/save", "/v1/rank", "/healthz"):
        answer = served.http.request(method, path, headers={"origin": origin})
        assert answer.status_code == 403, (method, path)
    assert served.get("/v1/models/mail").json()["generation"] == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_foreign_host_is_refused_whatever_it_asks(served, method):
    for host in ("attacker.example", "127.0.0.1.attacker.example", "[::1].attacker.example", "["):
        answer = served.http.request(method, "/v1/models/mail/reload", headers={"host": host})
        assert answer.status_code == 421, (method, host)
    assert "localhost" in refused(served.get("/v1/models", headers={"host": "a.example"}), 421)
    for host in ("localhost", "127.0.0.1:1", "[::1]:8756", "LOCALHOST"):
        assert served.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.2", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_every_loopback_address_is_served_and_guarded(fitted, host):
    with serving.serve(serving.settings(fitted, host=host)) as served:
        assert served.post("/v1/rank", {"query": QUERY}).status_code == 200
        here = {"origin": served.url}
        assert served.post("/v1/rank", {"query": QUERY}, headers=here).status_code == 200
        there = {"origin": "https://evil.example"}
        assert served.post("/v1/models/mail/reload", headers=there).status_code == 403
        assert served.get("/healthz", headers={"host": "evil.example"}).status_code == 421


def test_request_ids_are_taken_over_only_when_they_are_harmless(served):
    def answered(name):
        return served.get("/healthz", headers={"x-request-id": name}).headers["x-request-id"]

    assert answered("abc-1") == "abc-1"
    for odd in ("a b", "x" * 65, "a;b"):
        assert set(answered(odd)) <= set(string.hexdigits)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_json_does_not_have_are_refused(served, number):
    made = f'{{"tool": "a", "arguments": {{"x": {number}}}}}'
    told = f'{{"tool": "a", "output": [{number}]}}'
    sent = (
        ("/v1/rank", f'{{"query": "q", "history": [{made}]}}'),
        ("/v1/calls", f'{{"query": "q", "history": [{told}]}}'),
        ("/v1/feedback", f'{{"demonstrations": [{{"query": "q", "calls": [{told}]}}]}}'),
        ("/v1/mask/openai", f'{{"request": {{"messages": [], "temperature": {number}}}}}'),
        ("/v1/mask/openai", f'{{"request": {{"messages": [], "user": "\\ud800", "x": {number}}}}}'),
    )
    for path, body in sent:
        assert refused(served.http.post(path, content=body, headers=JSON), 400, 422)
