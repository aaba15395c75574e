"""``dtdr evaluate`` and ``dtdr compare``."""

import json

import pytest

from dtdr import load
from dtdr.cli import run
from dtdr.evaluate import compare, mean_score, read_run_log
from tests import small_data
from tests.command_line import is_one_sentence
from tests.helpers import sha256_of
from tests.whole_calls import DEMONSTRATIONS

KEYS = ["ranker", "encoder", "mrr", "f1", "top1", "recall@5", "log_top1", "log_mrr"]
KEYS += ["steps", "fit_seconds", "rank_microseconds_median"]


@pytest.fixture
def data(tmp_path):
    return small_data.write(tmp_path, size=24)


@pytest.fixture
def evaluate(data, cli):
    """Run ``dtdr evaluate`` on the data with these rankers."""

    def call(*arguments, rankers=("random",)):
        chosen = [word for name in rankers for word in ("--retriever", name)]
        return cli("evaluate", data, *chosen, *arguments)

    return call


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with run logs of two rankers."""
    folder = tmp_path_factory.mktemp("compare")
    path = small_data.write(folder, size=24)
    names = ["--retriever", "random", "--retriever", "dr"]
    assert run(["evaluate", str(path), *names, "--runs", str(folder / "runs")]) == 0
    return folder / "runs"


def test_a_table_has_one_row_per_ranker(evaluate):
    shown = evaluate(rankers=("random", "dr"))
    assert [name for name in ("random", "dr", "MRR", "Recall@5") if name not in shown.table()] == []
    assert shown.err == ""
    out = evaluate("--markdown", rankers=("random", "dr")).out
    assert "For 6 tools: with a prompt cache, " in out
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert lines[0].startswith("| Ranker | Encoder | MRR |")
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| random", "| dr"]


def test_json_is_one_object_with_the_promised_keys(evaluate):
    found = evaluate("--json", rankers=("random", "dtdr-c")).json()
    assert (found["dataset"], found["split"]) == ("demonstrations", "paper-0")
    assert [list(item) for item in found["results"]] == [[*KEYS, "next_calls"]] * 2
    assert [item["ranker"] for item in found["results"]] == ["random", "dtdr-c"]
    assert [item["encoder"] for item in found["results"]] == [None, "lexical"]


def test_folds_hold_out_every_plan(evaluate):
    plans = small_data.dataset(24).demonstrations
    options = ("--folds", "3", "--show", "plans")
    found = evaluate(*options, "--json", rankers=("dr", "random")).json()
    assert found["split"] == "3-folds"
    result, _ = found["results"]
    assert {"dag", "log", "ece", "milliseconds_median"} <= result["plans"].keys()
    assert result["steps"] == sum(len(item.plan) + 1 for item in plans)
    assert result["plans"]["plans"] == len(plans)
    assert result["plans"]["tools"] <= result["plans"]["tools@5"]
    shown = " ".join(evaluate(*options).table().split())
    assert f"of {len(plans)} held-out plans" in shown
    assert "Whole plans" in shown


def test_a_fitted_model_is_scored_as_it_is_and_its_surest_mistakes_are_listed(data, tmp_path, cli):
    model = tmp_path / "model"
    assert cli("fit", data, "-o", model, "--retriever", "dtdr-l").code == 0
    before = {item.name: sha256_of(item) for item in model.iterdir()}
    new = tmp_path / "new" / "demonstrations.jsonl"
    known = [item.to_dict() for item in small_data.dataset(8).demonstrations]
    odd = {"id": "odd", "query": "Mail Ann the summary", "calls": ["weather", "teleport"]}
    new.parent.mkdir()
    new.write_text("".join(json.dumps(item) + "\n" for item in [*known, odd]), encoding="utf-8")
    shown = cli("evaluate", new, "--model", model, "--show", "plans", "--json")
    assert "the model never saw 'teleport'" in shown.err
    (result,) = shown.json()["results"]
    assert result["steps"] == sum(len(item["calls"]) + 1 for item in [*known, odd])
    assert result["plans"]["plans"] == len(known) + 1
    mistakes = result["mistakes"]
    confidences = [item["confidence"] for item in mistakes]
    assert confidences == sorted(confidences, reverse=True)
    (mistake,) = [item for item in mistakes if item["called"] == "teleport"]
    session = load(model).session("Mail Ann the summary").call("weather")
    assert mistake["history"] == ["weather"]
    assert mistake["acceptable"] == ["teleport"]
    assert mistake["predicted"] == session.rank().best
    assert "The most confident mistakes" in cli("evaluate", new, "--model", model).table()
    assert {item.name: sha256_of(item) for item in model.iterdir()} == before
    assert "learned from these very runs" in cli("evaluate", data, "--model", model).err


def test_what_a_model_cannot_be_scored_on_is_one_sentence(data, tmp_path, cli):
    model = tmp_path / "model"
    assert cli("fit", data, "-o", model, "--retriever", "dr", "--no-arguments").code == 0
    strange = tmp_path / "strange.jsonl"
    strange.write_text('{"id": "1", "query": "Go", "calls": ["walk"]}\n', encoding="utf-8")
    for arguments, said in (
        ([strange], "knows none of the tools that strange calls"),
        ([data, "--show", "calls"], "fitted without arguments"),
    ):
        shown = cli("evaluate", *arguments, "--model", model)
        assert shown.code == 2
        assert said in shown.err
        assert is_one_sentence(shown.err.splitlines(keepends=True)[-1])


def test_all_is_every_ranker_that_can_run_and_names_those_that_cannot(evaluate, data, cli):
    (data.parent / "tools.json").unlink()
    shown = cli("evaluate", data, "--json")
    names = {item["ranker"] for item in shown.json()["results"]}
    assert {"random", "dr", "lr", "dtdr-c", "dtdr-l"} <= names
    for name, reason in (
        ("less-is-more", "it needs an LLM; fit it in Python"),
        ("bm25", "it needs tool descriptions"),
        ("qts", "it needs tool descriptions"),
        ("tgr", "it needs tool descriptions"),
    ):
        assert name not in names
        assert f"left out {name}: {reason}" in shown.err
    asked = evaluate(rankers=("bm25",))
    assert asked.code == 2
    assert "ranker 'bm25' needs tool descriptions" in asked.err


def test_split_file_decides_what_is_held_out(evaluate, tmp_path):
    split = tmp_path / "mine.json"
    split.write_text(json.dumps({"train": list(range(20)), "test": [20, 21, 22]}), encoding="utf-8")
    found = evaluate("--split", split, "--json").json()
    assert found["split"] == "mine"
    expected = sum(len(small_data.demonstration(number).plan) + 1 for number in (20, 21, 22))
    assert found["results"][0]["steps"] == expected


def test_run_logs_say_the_same_and_are_replaced_with_force_only(evaluate, tmp_path):
    folder = tmp_path / "runs"
    (item,) = evaluate("--runs", folder, "--json").json()["results"]
    log = read_run_log(folder / "random.npz")
    for metric in ("mrr", "f1", "top1", "recall@5"):
        assert mean_score(log, metric) == pytest.approx(item[metric], abs=1e-6)
    before = (folder / "random.npz").read_bytes()
    again = ("--runs", folder, "--set", "seed=4")
    shown = evaluate(*again)
    assert shown.code == 1
    assert is_one_sentence(shown.err)
    assert "random.npz exists; pass --force" in shown.err
    assert (folder / "random.npz").read_bytes() == before
    assert evaluate(*again, "--force").code == 0
    assert read_run_log(folder / "random.npz").header.seed == 4


def test_settings_go_to_the_rankers_that_take_them(evaluate, tmp_path):
    settings = ("order=1", "encoder=lexical", "recipe=paper", "random.seed=9")
    words = [word for setting in settings for word in ("--set", setting)]
    assert evaluate(*words, "--runs", tmp_path, rankers=("random", "dtdr-c")).code == 0
    header = read_run_log(tmp_path / "dtdr-c-lexical.npz").header
    assert (header.parameters["order"], header.parameters["recipe"], header.seed) == (1, "paper", 0)
    assert read_run_log(tmp_path / "random.npz").header.seed == 9


def test_metrics_can_be_chosen(evaluate):
    out = evaluate("--metric", "hit@3").table()
    assert "Hit@3" in out
    assert "MRR" not in out


def test_dr_gives_the_reference_mrr_on_the_tinyagent_example_bank(data_dir, monkeypatch, cli):
    monkeypatch.setenv("DTDR_DATA_DIR", str(data_dir))
    found = cli("evaluate", "--dataset", "tinyagent", "--retriever", "dr", "--json").json()
    assert (found["dataset"], found["split"]) == ("tinyagent", "tinyagent")
    assert found["results"][0]["mrr"] == pytest.approx(0.598, abs=0.005)
    assert found["results"][0]["steps"] == 2858


# -- calls -------------------------------------------------------------------------------------


def test_it_says_how_many_calls_are_filled_exactly(tmp_path, cli):
    learned = DEMONSTRATIONS[:40]
    path = tmp_path / "demonstrations.jsonl"
    path.write_text("".join(json.dumps(item.to_dict()) + "\n" for item in learned))
    command = ["evaluate", path, "--retriever", "dr", "--show", "calls"]
    calls = cli(*command, "--json").json()["results"][0]["calls"]
    assert calls["exact"] > 0.9
    assert calls["exact_most_sure_half"] >= calls["exact"]
    assert calls["plans_dependencies"] > 0.9
    assert calls["slots"]["query"] > 0.9
    assert calls["milliseconds_median"] > 0
    assert "plans with all dependencies" in cli(*command).table()
    folds = cli(*command, "--folds", "2", "--json").json()["results"][0]["calls"]
    assert folds["calls"] == sum(len(item.plan) for item in learned)
    assert folds["exact"] > 0.9


# -- compare -----------------------------------------------------------------------------------


def test_a_comparison_as_json_is_what_the_library_computes(runs, cli):
    paths = [runs / "random.npz", runs / "dr.npz"]
    found = cli("compare", *paths, "--metric", "top1", "--json").json()
    expected = compare(read_run_log(paths[0]), read_run_log(paths[1]), "top1").to_dict()
    assert {key: found[key] for key in expected} == expected
    assert found["second_run"] == str(paths[1])
    shown = cli("compare", *paths)
    assert "95 % interval" in shown.table()
    assert shown.err == ""
