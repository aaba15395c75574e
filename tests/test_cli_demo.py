import contextlib
import io
import json

import pytest

from dtdr.cli import run
from dtdr.evaluate.datasets import BUNDLED, load, synthetic
from dtdr.evaluate.datasets.splits import default_split


@pytest.fixture(scope="module", autouse=True)
def _part_of_the_bundled_set():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "BUNDLED_DEMONSTRATIONS", 90)
        yield


@pytest.fixture(scope="module")
def answer():
    """What ``dtdr demo --json`` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run(["demo", "--json"]) == 0
    return json.loads(printed.getvalue())


def test_demo_says_that_its_data_are_synthetic_and_fits_100_columns(capsys, monkeypatch):
    monkeypatch.setattr(synthetic, "BUNDLED_DEMONSTRATIONS", 40)
    assert run(["demo", "--retriever", "dtdr-c"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "synthetic" in shown.out
    assert "✓" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 100
    for name in ("random", "bm25", "qts", "tgr", "dr", "lr", "dtdr-c", "dtdr-l", "dtdr-f"):
        assert f" {name} " in shown.out


def test_demo_shows_three_queries_of_the_held_out_side_step_by_step(answer):
    dataset = load(BUNDLED)
    held_out = {item.id: item for item in default_split(dataset).testing(dataset.demonstrations)}
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
