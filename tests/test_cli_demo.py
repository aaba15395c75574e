import json

import pytest

from dtdr.cli import run
from dtdr.datasets import BUNDLED, load, synthetic
from dtdr.datasets.splits import default_split


@pytest.fixture
def demo(monkeypatch, capsys):
    """Run ``dtdr demo`` on a part of the bundled set, which takes seconds; gives what it prints."""
    monkeypatch.setattr(synthetic, "BUNDLED_DEMONSTRATIONS", 300)

    def call(*arguments):
        assert run(["demo", *arguments]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return call


@pytest.fixture
def answer(demo):
    """What ``dtdr demo --json`` prints."""
    return json.loads(demo("--json", "--seed", "1"))


def test_demo_says_that_its_data_are_synthetic_and_fits_100_columns(demo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    shown = demo()
    assert "synthetic" in shown
    assert "✓" in shown
    assert max(map(len, shown.splitlines())) <= 100
    for name in ("random", "bm25", "qts", "tgr", "dr", "lr", "dtdr-c", "dtdr-l", "dtdr-f"):
        assert f" {name} " in shown


def test_demo_shows_three_queries_of_the_held_out_side_step_by_step(answer):
    dataset = load(BUNDLED)
    held_out = {
        item.id: item for item in default_split(dataset, seed=1).testing(dataset.demonstrations)
    }
    assert answer["synthetic"] is True
    assert len(answer["queries"]) == 3
    for query in answer["queries"]:
        plan = held_out[query["id"]].plan
        steps = list(plan.steps())
        assert [step["called"] for step in query["steps"]] == [*plan.tools, None]
        assert [step["acceptable"] for step in query["steps"]] == [
            sorted(step.acceptable) for step in steps
        ]
        for step in query["steps"]:
            marked = [item["tool"] for item in step["top"] if item["acceptable"]]
            assert set(marked) == {item["tool"] for item in step["top"]} & set(step["acceptable"])


def test_demo_evaluates_every_offline_retriever_on_the_held_out_steps(answer):
    scores = {item["retriever"]: item["mrr"] for item in answer["results"]}
    assert set(scores) >= {"random", "bm25", "qts", "tgr", "dr", "lr", "dtdr-c", "dtdr-l", "dtdr-f"}
    assert scores["dtdr-f"] > scores["dtdr-l"] > scores["lr"] > scores["random"]
    assert scores["dtdr-c"] > scores["random"]
    assert len({item["steps"] for item in answer["results"]}) == 1
