"""Models told apart, and runs that are kept between two steps: right, bounded, and of one model."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dtdr
from dtdr.errors import InputError
from dtdr.rankers.dtdr_f.factored_model import FactoredStepState
from dtdr.serve.server import runs
from dtdr.serve.server.runs import RunCache, read_run
from dtdr.serve.server.schemas import CallMade
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
        assert [(item["name"], item["ranker"]) for item in listed] == [
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


def test_runs_and_queries_go_on_with_the_reloaded_model_and_keep_no_former_one(model):
    read = {"tool": "read_file", "output": "three pages"}
    steps = [{"query": QUERY, "history": history} for history in ([read], ["read_file"])]
    with serving.serve(serving.settings(model)) as served:
        before = [served.post("/v1/rank", step).json() for step in steps]
        former = weakref.ref(served.service.models["mail"].current.model)
        serving.fit(model, size=4, ranker="dr")
        assert served.post("/v1/models/mail/reload").json()["generation"] == 2
        gc.collect()
        assert former() is None
        after = [served.post("/v1/rank", step).json() for step in steps]
        expected = dtdr.load(model).rank(QUERY, ["read_file"]).top(10)
        for first, second in zip(before, after, strict=True):
            assert (first["generation"], second["generation"]) == (1, 2)
            assert [(item["tool"], item["probability"]) for item in second["tools"]] == [
                (tool, round(probability, 6)) for tool, probability in expected
            ]


# -- runs between two steps ------------------------------------------------------------------------


def call(number: int) -> CallMade:
    return CallMade(tool="read_file", output={"page": number}, status="ok")


@pytest.fixture
def cache(learner, monkeypatch):
    """Of a dtdr-f, with a list of the calls that were read."""
    reads: list[str] = []
    original = FactoredStepState.call

    def read(self, tool, made=None):
        reads.append("" if made is None else made.id)
        original(self, tool, made)

    monkeypatch.setattr(FactoredStepState, "call", read)
    kept: Any = RunCache(dtdr.load(learner))
    kept.reads = reads
    return kept


def ranked(cache, calls, owner="", query=QUERY):
    with cache.session(owner, query, calls, []) as session:
        return dict(session.rank())


def test_the_next_step_of_a_run_reads_its_new_calls_only(cache):
    calls = [call(number) for number in range(6)]
    for count, reads in ((3, 3), (4, 1), (6, 2), (6, 0)):
        expected = dict(cache._model.rank(read_run(QUERY, calls[:count])))
        cache.reads.clear()
        assert ranked(cache, calls[:count]) == expected
        assert len(cache.reads) == reads
    cache.reads.clear()
    other = [*calls[:5], call(9)]
    assert ranked(cache, other) == dict(cache._model.rank(read_run(QUERY, other)))
    assert len(cache.reads) == 2 * 6, "another continuation is read from the start"


def test_keys_and_queries_share_no_run(cache):
    calls = [call(1)]
    for owner, query in (("a", QUERY), ("b", QUERY), ("a", QUERY + "!")):
        cache.reads.clear()
        ranked(cache, calls, owner, query)
        assert len(cache.reads) == 1


def test_an_id_that_an_earlier_call_had_taken_is_read_with_the_whole_run(cache):
    first, second = call(1), CallMade(tool="weather", id="1")
    ranked(cache, [first])
    with cache.session("", QUERY, [first, second], []) as session:
        assert [made.id for made in session.run.calls] == ["2", "1"]
    with pytest.raises(InputError), cache.session("", QUERY, [second, second], []):
        pass
    with cache.session("", "half \ud800", ["end", "weather"], []) as session:
        assert list(session.run.history) == ["weather"], "such a run is not kept"


def test_kept_runs_are_bounded_and_answers_in_threads_are_right(cache, monkeypatch):
    monkeypatch.setattr(runs, "_BYTES", 120_000)
    steps = [
        [call(number) for number in range(at, at + length)] for at in range(8) for length in (1, 3)
    ]
    expected = [dict(cache._model.rank(read_run(QUERY, step))) for step in steps]
    with ThreadPoolExecutor(6) as pool:
        for answers in pool.map(lambda _: [ranked(cache, step) for step in steps], range(12)):
            assert answers == expected
    assert 0 < cache._bytes <= 120_000
    assert cache._bytes == sum(size for _, size in cache._sessions.values())
    monkeypatch.setattr(runs, "_BYTES", 100)
    ranked(cache, [call(77)])
    assert cache._bytes <= 120_000


def texts_run(number):
    """A run whose texts name the next tool, as far as its order does not say it."""
    tools = ["find", "mail"] if number % 2 else ["mail", "find"]
    calls = [
        dtdr.ToolCall(str(at), tool, step=at, text=f"Now I use {tool} for it.")
        for at, tool in enumerate(tools, 1)
    ]
    return dtdr.Demonstration(str(number), "Go on", dtdr.Plan(tuple(calls)))


def test_the_text_before_a_call_ranks_as_it_does_in_python(tmp_path):
    model = dtdr.fit(map(texts_run, range(24)), arguments=False, plans=False)
    model.save(tmp_path / "model")
    text = "Now I use mail for it."
    first = dtdr.ToolCall("1", "find", step=1, text="Now I use find for it.")
    after = {"tool": "find", "id": "1", "step": 1, "text": first.text}

    def as_sent(session):
        ranking = session.rank()
        pairs = ((tool, round(float(ranking.probability(tool)), 6)) for tool in ranking.tools)
        return [{"tool": tool, "probability": share} for tool, share in pairs]

    bare = as_sent(model.session("Go on"))
    said = as_sent(model.session("Go on").say(text))
    later = as_sent(model.session("Go on").call(first).say(text))
    assert bare != said
    with serving.serve(serving.settings(tmp_path / "model")) as served:

        def ask(**more):
            return served.post("/v1/rank", {"query": "Go on", **more}).json()["tools"]

        # A session that is kept for the next request has forgotten the text.
        assert [ask(), ask(text=text), ask(), ask(text="")] == [bare, said, bare, bare]
        assert ask(history=[after], text=text) == later
        steps = [{"query": "Go on"}, {"query": "Go on", "text": text}]
        batch = served.post("/v1/rank/batch", {"steps": steps}).json()["rankings"]
        assert [item["tools"] for item in batch] == [bare, said]
        assert "text" in refused(served.post("/v1/rank", {"query": "Go on", "text": 3}), 422)
        with dtdr.Client(served.url) as client:
            ranking = client.rank("Go on", text=text)
            assert [item["tool"] for item in said] == list(ranking.tools)
            session = client.session("Go on").say(text)
            assert session.rank().best == ranking.best
            session.call("mail")
            assert (session.run.calls[0].text, session.run.text) == (text, None)
            with pytest.raises(InputError, match="text"):
                session.say(3)
