"""Ranking over HTTP, against the library's own answers."""

import dtdr
from tests.server import serving
from tests.server.serving import QUERY


def test_a_ranking_is_the_one_of_the_library(served, fitted):
    expected = dtdr.load(fitted).rank(QUERY, ["read_file"])
    answer = served.post("/v1/rank", {"query": QUERY, "history": ["read_file"]}).json()
    assert [(item["tool"], item["probability"]) for item in answer["tools"]] == [
        (tool, round(probability, 6)) for tool, probability in expected
    ]
    assert answer["model"] == "mail"
    assert answer["confidence"] == round(expected.confidence, 6)
    assert answer["unknown_tools"] == []
    detail = served.get("/v1/models/mail").json()
    assert detail["vocabulary"] == list(dtdr.load(fitted).vocabulary)
    assert detail["tools"] == len(detail["vocabulary"])


def test_top_k_and_threshold_bound_what_is_sent(served, fitted):
    ranking = dtdr.load(fitted).rank(QUERY)
    two = served.post("/v1/rank", {"query": QUERY, "top_k": 2}).json()["tools"]
    assert [item["tool"] for item in two] == list(ranking.tools[:2])
    cut = float(ranking.probabilities[2])
    above = served.post("/v1/rank", {"query": QUERY, "threshold": cut}).json()["tools"]
    assert [item["tool"] for item in above] == list(ranking.tools[:2])
    best = served.post("/v1/rank", {"query": QUERY, "threshold": 0.9999}).json()["tools"]
    assert [item["tool"] for item in best] == [ranking.best]


def test_several_models_are_told_apart_by_name(fitted, tmp_path):
    other = serving.fit(tmp_path / "other", retriever="dr")
    models = {"mail": fitted, "chain": other}
    with serving.serve(serving.settings(fitted, models=models)) as served:
        assert served.post("/v1/rank", {"query": QUERY, "model": "chain"}).json()["model"] == (
            "chain"
        )
        unnamed = served.post("/v1/rank", {"query": QUERY})
        assert unnamed.status_code == 422
        assert "mail, chain" in unnamed.json()["error"]["message"]
        unknown = served.post("/v1/rank", {"query": QUERY, "model": "nope"})
        assert unknown.status_code == 404
        listed = served.get("/v1/models").json()["models"]
        assert [(item["name"], item["retriever"]) for item in listed] == [
            ("mail", "dtdr-l"),
            ("chain", "dr"),
        ]


def test_a_query_is_prepared_once_for_all_steps_of_a_run(fitted, monkeypatch):
    with serving.serve(serving.settings(fitted)) as served:
        retriever = served.service.models["mail"].current.retriever
        prepared: list[str] = []
        original = retriever.ranker.prepare_all

        def prepare(runs):
            prepared.extend(run.query for run in runs)
            return original(runs)

        monkeypatch.setattr(retriever.ranker, "prepare_all", prepare)
        expected = dtdr.load(fitted)
        for history in ([], ["read_file"], ["read_file", "summarize"], []):
            answer = served.post("/v1/rank", {"query": QUERY, "history": history, "top_k": 1})
            assert answer.json()["tools"][0]["tool"] == expected.rank(QUERY, history).best
        assert prepared == [QUERY]
        long_query = "word " * 6_500  # a tenth of what may be kept
        for _ in range(2):
            served.post("/v1/rank", {"query": long_query})
        assert prepared == [QUERY, long_query, long_query], "what is kept must be small"


def test_a_query_that_was_ranked_is_ranked_anew_by_another_model(model):
    with serving.serve(serving.settings(model)) as served:
        first = served.post("/v1/rank", {"query": QUERY, "top_k": 100}).json()
        serving.fit(model, size=4, retriever="dr")
        served.post("/v1/models/mail/reload")
        second = served.post("/v1/rank", {"query": QUERY, "top_k": 100}).json()
        found = {item["tool"]: item["probability"] for item in second["tools"]}
        expected = dtdr.load(model).rank(QUERY)
        assert found == {tool: round(value, 6) for tool, value in expected}
        assert second["generation"] == first["generation"] + 1
        assert second["tools"] != first["tools"]
