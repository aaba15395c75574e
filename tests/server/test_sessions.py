"""Models told apart, and sessions: ranked, expired, bounded, and following their model."""

import gc
import weakref
from typing import Any

import dtdr
from tests.server import serving
from tests.server.serving import QUERY, refused


def test_several_models_are_told_apart_by_name(fitted, tmp_path):
    other = serving.fit(tmp_path / "other", ranker="dr")
    with serving.serve(serving.settings(models={"mail": fitted, "chain": other})) as served:
        ranked = served.post("/v1/rank", {"query": QUERY, "model": "chain"}).json()
        assert ranked["model"] == "chain"
        for more, status, said in (
            ({}, 422, "mail, chain"),
            ({"model": "nope"}, 404, "no model is named 'nope'"),
        ):
            assert said in refused(served.post("/v1/rank", {"query": QUERY, **more}), status)
        listed = served.get("/v1/models").json()["models"]
        assert [(item["name"], item["retriever"]) for item in listed] == [
            ("mail", "dtdr-l"),
            ("chain", "dr"),
        ]
        detail = served.get("/v1/models/chain").json()
        assert detail["vocabulary"] == list(dtdr.load(other).vocabulary)
        assert detail["tools"] == len(detail["vocabulary"])


def test_a_query_is_prepared_once_for_all_steps_of_a_run(fitted, monkeypatch):
    with serving.serve(serving.settings(fitted)) as served:
        ranker = served.service.models["mail"].current.model.ranker
        prepared: list[str] = []
        original = ranker.prepare_all

        def prepare(runs):
            prepared.extend(run.query for run in runs)
            return original(runs)

        monkeypatch.setattr(ranker, "prepare_all", prepare)
        for history in ([], ["read_file"], ["read_file", "summarize"], []):
            assert served.post("/v1/rank", {"query": QUERY, "history": history}).is_success
        assert prepared == [QUERY]
        long_query = "word " * 6_500  # a tenth of what may be kept
        for _ in range(2):
            served.post("/v1/rank", {"query": long_query})
        assert prepared == [QUERY, long_query, long_query], "what is kept must be small"


def test_a_session_expires_when_nobody_uses_it_for_too_long(fitted):
    now = [0.0]
    with serving.serve(serving.settings(fitted, session_seconds=60)) as served:
        served.service.sessions._clock = lambda: now[0]
        used, idle = served.open_session(), served.open_session()
        for now[0] in (59.0, 61.0):
            assert served.post(f"{used}/rank", {}).status_code == 200
        assert "expired" in refused(served.post(f"{idle}/rank", {}), 404)
        assert served.metric("dtdr_sessions_open") == 1


def test_sessions_are_limited_in_number_bytes_and_calls(fitted):
    history = ["\N{ROLLING ON THE FLOOR LAUGHING}" * 500] * 100
    limits = {"sessions": 2, "session_bytes": 1_000_000, "history": 250}
    with serving.serve(serving.settings(fitted, **limits)) as served:
        path, other = served.open_session(history=history), served.open_session()
        for full, body, status in (
            ("/v1/sessions", {"query": QUERY}, 429),
            (f"{path}/call", {"tools": ["a"] * 151}, 422),
            (f"{path}/call", {"tools": history}, 429),
        ):
            answer = served.post(full, body)
            assert refused(answer, status)
            assert status == 422 or int(answer.headers["retry-after"]) >= 1
        assert len(served.get(path).json()["history"]) == 100
        assert served.http.delete(other).status_code == 204
        assert "bytes" in refused(
            served.post("/v1/sessions", {"query": "q" * 30_000, "history": history}), 429
        )
        assert served.http.delete(path).status_code == 204
        served.open_session(history=history)


def test_sessions_and_queries_go_on_with_the_reloaded_model_and_keep_no_former_one(model):
    with serving.serve(serving.settings(model)) as served:
        path = served.open_session(rank={})
        served.post(f"{path}/call", {"tools": ["read_file"]})
        asked: Any = (f"{path}/rank", {}), ("/v1/rank", {"query": QUERY, "history": ["read_file"]})
        before = [served.post(*request).json() for request in asked]
        former = weakref.ref(served.service.models["mail"].current.model)
        serving.fit(model, size=4, ranker="dr")
        assert served.post("/v1/models/mail/reload").json()["generation"] == 2
        gc.collect()
        assert former() is None
        after = [served.post(*request).json() for request in asked]
        expected = dtdr.load(model).rank(QUERY, ["read_file"]).top(10)
        for first, second in zip(before, after, strict=True):
            assert (first["generation"], second["generation"]) == (1, 2)
            assert [(item["tool"], item["probability"]) for item in second["tools"]] == [
                (tool, round(probability, 6)) for tool, probability in expected
            ]
