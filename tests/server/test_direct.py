"""The short way to an endpoint answers as FastAPI does, and no ranking is older than its model."""

import json

import pytest

import dtdr
from tests import small_data
from tests.server import serving
from tests.server.serving import QUERY, Learner

JSON = "application/json"
RANK = json.dumps({"query": QUERY, "history": ["read_file"], "top_k": 3}).encode()
MESSAGES = [{"role": "user", "content": QUERY}]
TOOLS = [{"type": "function", "function": {"name": tool.name}} for tool in small_data.TOOLS]


@pytest.fixture(scope="module")
def long_way(fitted):
    """A server that spans its requests, so that FastAPI sees each of them."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider

    with serving.running(serving.settings(fitted), tracer_provider=TracerProvider()) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "kind", "content"),
    [
        ("/v1/rank", JSON, RANK),
        ("/v1/rank", "application/json; charset=utf-8", RANK),
        ("/v1/rank", "application/problem+json", RANK),
        ("/v1/rank", "text/plain", RANK),
        ("/v1/rank", "", RANK),
        ("/v1/rank", JSON, b""),
        ("/v1/rank", JSON, b"{"),
        ("/v1/rank", JSON, b'{"query":"a","query":"b"}'),
        ("/v1/rank", JSON, b'{"query":"a","top_k":"3"}'),
        ("/v1/rank", JSON, b'{"query":"a","top_k":3.0}'),
        ("/v1/rank", JSON, b'{"query":"a","top_k":true}'),
        ("/v1/rank", JSON, b'{"query":"a","threshold":NaN}'),
        ("/v1/rank", JSON, b'{"query":"a","top_k":' + b"9" * 5_000 + b"}"),
        ("/v1/rank", JSON, b'{"query":"a","histroy":[]}'),
        ("/v1/rank", JSON, b'{"query":"a","coverage":0.9}'),
        ("/v1/rank", JSON, b'{"query":"a","model":"none"}'),
        ("/v1/rank", JSON, b'{"query":" "}'),
        ("/v1/rank", JSON, b'{"query":"\xff"}'),
        ("/v1/rank", JSON, b'{"query":"\\ud800"}'),
        ("/v1/rank/", JSON, RANK),
        ("//v1/rank", JSON, RANK),
        ("/v1/rank/batch", JSON, json.dumps({"steps": [{"query": QUERY}] * 9}).encode()),
        ("/v1/sessions/none/rank", JSON, b"{}"),
        ("/v1/sessions/none/call", JSON, b'{"tools":["a"]}'),
        ("/v1/sessions/none/other", JSON, b"{}"),
        (f"/v1/sessions/{'x' * 65}/rank", JSON, b"{}"),
        ("/v1/sessions//rank", JSON, b"{}"),
        (
            "/v1/mask/openai",
            JSON,
            json.dumps({"request": {"messages": MESSAGES, "tools": TOOLS}}).encode(),
        ),
        (
            "/v1/mask/openai",
            JSON,
            b'{"request":{"messages":[{"role":"user","content":"a","b":'
            + b"[" * 300
            + b"]" * 300
            + b"}]}}",
        ),
        ("/v1/mask/anthropic", JSON, b'{"request":{"messages":5}}'),
    ],
)
def test_the_short_way_answers_as_fastapi_does(served, long_way, path, kind, content):
    headers = {"content-type": kind, "x-request-id": "same"}
    short, whole = (
        one.http.post(path, content=content, headers=headers) for one in (served, long_way)
    )
    assert short.status_code == whole.status_code
    assert short.content == whole.content
    assert short.headers.get("content-type") == whole.headers.get("content-type")
    assert short.headers["x-request-id"] == "same"


def test_a_valid_request_takes_the_short_way(fitted):
    with serving.running(serving.settings(fitted)) as served:

        async def fail(*_):
            raise AssertionError("FastAPI was asked")

        served.app.router.app = fail
        session = served.post("/v1/sessions", {"query": QUERY})
        assert session.status_code == 201
        path = f"/v1/sessions/{session.json()['session']}"
        for name, body in {
            "/v1/rank": {"query": QUERY},
            f"{path}/call": {"tools": ["read_file"], "rank": {}},
            f"{path}/rank": {"top_k": 2},
        }.items():
            assert served.post(name, body).status_code == 200


def test_a_query_is_prepared_once_for_all_steps_of_a_run(fitted, monkeypatch):
    with serving.running(serving.settings(fitted)) as served:
        retriever = served.state.shelf["mail"].current.retriever
        prepared: list[str] = []
        original = retriever._prepare

        def prepare(queries):
            prepared.extend(queries)
            return original(queries)

        monkeypatch.setattr(retriever, "_prepare", prepare)
        expected = dtdr.load(fitted)
        for history in ([], ["read_file"], ["read_file", "summarize"], []):
            answer = served.post("/v1/rank", {"query": QUERY, "history": history, "top_k": 1})
            assert answer.json()["tools"][0]["tool"] == expected.rank(QUERY, history).best
        assert prepared == [QUERY]
        long_query = "word " * 1_000
        for _ in range(2):
            served.post("/v1/rank", {"query": long_query})
        assert prepared == [QUERY, long_query, long_query], "what is kept must be small"


def test_a_query_that_was_ranked_is_ranked_anew_by_another_model(model):
    with serving.running(serving.settings(model)) as served:
        first = served.post("/v1/rank", {"query": QUERY, "top_k": 100}).json()
        serving.fit(model, size=4, retriever="dr")
        served.post("/v1/models/mail/reload")
        second = served.post("/v1/rank", {"query": QUERY, "top_k": 100}).json()
        found = {item["tool"]: item["probability"] for item in second["tools"]}
        expected = dtdr.load(model).rank(QUERY)
        assert found == {tool: round(value, 6) for tool, value in expected}
        assert second["generation"] == first["generation"] + 1
        assert second["tools"] != first["tools"]
        learner = Learner().fit(small_data.dataset(6).demonstrations, small_data.TOOLS)
        served.state.shelf["mail"]._install(learner)
        for _ in range(3):
            before = served.post("/v1/rank", {"query": QUERY, "top_k": 100}).json()
            lesson = {"query": QUERY, "calls": ["weather"] * 5}
            served.post("/v1/feedback", {"demonstrations": [lesson]})
            after = served.post("/v1/rank", {"query": QUERY, "top_k": 100}).json()
            assert after["tools"] != before["tools"]
