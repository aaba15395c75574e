"""Sessions: created, told, ranked, deleted, expired, and following their model."""

import dtdr
from tests.server import serving
from tests.server.serving import QUERY


def test_a_session_expires_when_nobody_uses_it_for_too_long(fitted):
    now = [0.0]
    with serving.serve(serving.settings(fitted, session_seconds=60)) as served:
        served.service.sessions._clock = lambda: now[0]
        used = served.post("/v1/sessions", {"query": QUERY}).json()["session"]
        idle = served.post("/v1/sessions", {"query": QUERY}).json()["session"]
        now[0] = 59.0
        assert served.post(f"/v1/sessions/{used}/rank", {}).status_code == 200
        now[0] = 61.0
        assert served.post(f"/v1/sessions/{used}/rank", {}).status_code == 200
        gone = served.post(f"/v1/sessions/{idle}/rank", {})
        assert gone.status_code == 404
        assert "expired" in gone.json()["error"]["message"]
        assert served.metric("dtdr_sessions_open") == 1


def test_no_more_sessions_are_opened_than_the_limit(fitted):
    with serving.serve(serving.settings(fitted, sessions=2)) as served:
        first = served.post("/v1/sessions", {"query": QUERY}).json()["session"]
        served.post("/v1/sessions", {"query": QUERY})
        refused = served.post("/v1/sessions", {"query": QUERY})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        served.http.delete(f"/v1/sessions/{first}")
        assert served.post("/v1/sessions", {"query": QUERY}).status_code == 201


def test_sessions_are_weighed_and_not_only_counted(fitted):
    long_history = ["\N{ROLLING ON THE FLOOR LAUGHING}" * 500] * 100
    with serving.serve(serving.settings(fitted, session_bytes=1_500_000)) as served:
        opened = served.post("/v1/sessions", {"query": QUERY, "history": long_history})
        assert opened.status_code == 201
        heavy = served.post("/v1/sessions", {"query": "q" * 30_000, "history": long_history * 2})
        assert heavy.status_code == 429
        assert "bytes" in heavy.json()["error"]["message"]
        path = f"/v1/sessions/{opened.json()['session']}"
        told = served.post(f"{path}/call", {"tools": long_history * 2})
        assert told.status_code == 429
        assert len(served.get(path).json()["history"]) == 100
        assert served.http.delete(path).status_code == 204
        again = served.post("/v1/sessions", {"query": QUERY, "history": long_history * 2})
        assert again.status_code == 201


def test_a_history_that_would_grow_too_long_is_refused_and_stays(fitted):
    with serving.serve(serving.settings(fitted, history=3)) as served:
        session = served.post("/v1/sessions", {"query": QUERY, "history": ["a", "b"]}).json()[
            "session"
        ]
        refused = served.post(f"/v1/sessions/{session}/call", {"tools": ["c", "d"]})
        assert refused.status_code == 422
        assert served.get(f"/v1/sessions/{session}").json()["history"] == ["a", "b"]
        assert served.post(f"/v1/sessions/{session}/call", {"tools": ["c"]}).status_code == 200


def test_a_session_goes_on_with_the_reloaded_model(model):
    with serving.serve(serving.settings(model)) as served:
        session = served.post("/v1/sessions", {"query": QUERY}).json()["session"]
        served.post(f"/v1/sessions/{session}/call", {"tools": ["read_file"]})
        before = served.post(f"/v1/sessions/{session}/rank", {}).json()
        serving.fit(model, retriever="dr")
        assert served.post("/v1/models/mail/reload").json()["generation"] == 2
        after = served.post(f"/v1/sessions/{session}/rank", {}).json()
        expected = dtdr.load(model).rank(QUERY, ["read_file"])
        assert (before["generation"], after["generation"]) == (1, 2)
        assert [item["tool"] for item in after["tools"]] == list(expected.tools)


def test_a_replaced_model_is_kept_by_no_session(model):
    import gc
    import weakref

    with serving.serve(serving.settings(model)) as served:
        session = served.post("/v1/sessions", {"query": QUERY, "rank": {}}).json()["session"]
        former = weakref.ref(served.service.models["mail"].current.retriever)
        served.post("/v1/models/mail/reload")
        gc.collect()
        assert former() is None
        assert served.post(f"/v1/sessions/{session}/rank", {}).status_code == 200
