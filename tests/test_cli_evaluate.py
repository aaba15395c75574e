import json

import numpy as np
import pytest

from dtdr import load
from dtdr.cli import run
from dtdr.evaluate import mean_score, read_run_log
from dtdr.text.encoders.lexical import LexicalEncoder
from tests import small_data
from tests.command_line import dtdr, is_one_sentence
from tests.helpers import sha256_of

KEYS = [
    "retriever",
    "encoder",
    "mrr",
    "f1",
    "top1",
    "recall@5",
    "log_top1",
    "log_mrr",
    "steps",
    "fit_seconds",
    "rank_microseconds_median",
]


@pytest.fixture
def data(tmp_path):
    return small_data.write(tmp_path, size=24)


@pytest.fixture
def evaluate(data, capsys):
    """Run ``dtdr evaluate`` on the data; gives the code and what it said."""

    def call(*arguments):
        code = run(["evaluate", str(data), *map(str, arguments)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_evaluate_in_a_process_of_its_own_prints_one_table_of_at_most_100_columns(data):
    code, out, err = dtdr("evaluate", data, "--retriever", "random", "--retriever", "dr")
    assert (code, err) == (0, "")
    assert [name for name in ("random", "dr", "MRR", "Recall@5") if name not in out] == []
    assert max(map(len, out.splitlines())) <= 100


def test_whole_plans_are_scored_beside_steps(evaluate):
    options = ("--retriever", "dr", "--retriever", "random", "--plans")
    code, out, _ = evaluate(*options, "--json")
    assert code == 0
    first, second = json.loads(out)["results"]
    assert {"tools", "tools@5", "dag", "log", "milliseconds_median"} <= first["plans"].keys()
    assert first["plans"]["plans"] == sum(
        part["plans"] for part in first["plans"]["by_length"].values()
    )
    assert 0 < second["plans"]["p_value_against_first"] <= 1
    assert sum(one["plans"] for one in first["plans"]["bins"]) <= 5 * first["plans"]["plans"]
    assert 0 <= first["plans"]["ece"] <= 1
    code, out, _ = evaluate(*options, "--by", "plan-length", "--calibration")
    assert code == 0
    assert "Whole plans of dr by the number of calls" in out
    assert "Probabilities of the whole plans of dr" in out
    assert max(map(len, out.splitlines())) <= 100


def test_whole_plans_of_folds_are_those_of_every_demonstration(evaluate):
    code, out, _ = evaluate("--retriever", "dr", "--folds", "3", "--plans", "--json")
    assert code == 0
    (result,) = json.loads(out)["results"]
    scored = result["plans"]
    assert scored["plans"] == len(small_data.dataset(24).demonstrations)
    assert scored["tools"] <= scored["tools@5"]


def test_whole_plans_are_of_models_that_are_fitted(capsys):
    assert run(["evaluate", "runs/dr.npz", "--plans"]) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert "leave out --plans" in error


def test_a_fitted_model_is_scored_as_it_is_and_its_surest_mistakes_are_listed(
    evaluate, data, tmp_path, capsys
):
    model = tmp_path / "model"
    assert run(["fit", str(data), "-o", str(model), "--retriever", "dtdr-l"]) == 0
    before = {item.name: sha256_of(item) for item in model.iterdir()}
    new = tmp_path / "new" / "demonstrations.jsonl"
    known = [item.to_dict() for item in small_data.dataset(8).demonstrations]
    odd = {"id": "odd", "query": "Mail Ann the summary", "calls": ["weather", "teleport"]}
    new.parent.mkdir()
    new.write_text("".join(json.dumps(item) + "\n" for item in [*known, odd]), encoding="utf-8")
    capsys.readouterr()
    assert run(["evaluate", str(new), "--model", str(model), "--plans", "--json"]) == 0
    shown = capsys.readouterr()
    assert "the model never saw 'teleport'" in shown.err
    (result,) = json.loads(shown.out)["results"]
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
    assert run(["evaluate", str(new), "--model", str(model)]) == 0
    out = capsys.readouterr().out
    assert "The most confident mistakes" in out
    assert max(map(len, out.splitlines())) <= 100
    assert {item.name: sha256_of(item) for item in model.iterdir()} == before
    _, _, err = evaluate("--model", model, "--json")
    assert "learned from these very runs" in err


def test_what_a_model_cannot_be_scored_on_is_one_sentence(evaluate, data, tmp_path, capsys):
    model = tmp_path / "model"
    assert run(["fit", str(data), "-o", str(model), "--retriever", "dr", "--no-arguments"]) == 0
    strange = tmp_path / "strange.jsonl"
    strange.write_text('{"id": "1", "query": "Go", "calls": ["walk"]}\n', encoding="utf-8")
    for arguments, said in (
        ([strange], "knows none of the tools that strange calls"),
        ([data, "--retriever", "dr"], "leave out --retriever"),
        ([data, "--calls"], "fitted without arguments"),
    ):
        capsys.readouterr()
        assert run(["evaluate", *map(str, arguments), "--model", str(model)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert is_one_sentence(error.splitlines(keepends=True)[-1])


def test_json_is_one_object_with_the_promised_keys(evaluate):
    code, out, _ = evaluate("--retriever", "random", "--retriever", "dtdr-c", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["dataset"], found["split"]) == ("demonstrations", "paper-0")
    assert [list(item) for item in found["results"]] == [[*KEYS, "next_calls"]] * 2
    assert [item["retriever"] for item in found["results"]] == ["random", "dtdr-c"]
    assert [item["encoder"] for item in found["results"]] == [None, "lexical"]


def test_all_is_every_retriever_that_can_run_and_names_those_that_cannot(evaluate):
    code, out, err = evaluate("--retriever", "all", "--json")
    assert code == 0
    names = [item["retriever"] for item in json.loads(out)["results"]]
    assert {"random", "bm25", "qts", "tgr", "dr", "lr", "dtdr-c", "dtdr-l"} <= set(names)
    assert "less-is-more" not in names
    assert "left out less-is-more: it needs an LLM; fit it in Python" in err


def test_retrievers_that_need_descriptions_are_left_out_of_all_where_there_are_none(evaluate, data):
    (data.parent / "tools.json").unlink()
    code, out, err = evaluate("--json")
    assert code == 0
    names = [item["retriever"] for item in json.loads(out)["results"]]
    assert {"random", "dr", "lr", "dtdr-c", "dtdr-l"} <= set(names)
    for name in ("bm25", "qts", "tgr"):
        assert name not in names
        assert f"left out {name}: it needs tool descriptions" in err


def test_retriever_that_needs_descriptions_and_is_asked_for_by_name_is_an_error(evaluate, data):
    (data.parent / "tools.json").unlink()
    code, _, err = evaluate("--retriever", "bm25")
    assert code == 2
    assert "retriever 'bm25' needs tool descriptions" in err


def test_same_seed_gives_the_same_figures(evaluate):
    def figures(seed):
        _, out, _ = evaluate("--retriever", "random", "--seed", seed, "--split", "group", "--json")
        return {key: json.loads(out)["results"][0][key] for key in KEYS[:7]}

    assert figures(1) == figures(1)
    assert figures(1) != figures(2)


def test_split_file_decides_what_is_held_out(evaluate, tmp_path):
    split = tmp_path / "mine.json"
    split.write_text(json.dumps({"train": list(range(20)), "test": [20, 21, 22]}), encoding="utf-8")
    code, out, _ = evaluate("--retriever", "random", "--split", split, "--json")
    found = json.loads(out)
    assert (code, found["split"]) == (0, "mine")
    expected = sum(len(small_data.demonstration(number).plan) + 1 for number in (20, 21, 22))
    assert found["results"][0]["steps"] == expected


def test_run_logs_are_kept_and_say_the_same(evaluate, tmp_path):
    runs = tmp_path / "runs"
    _, out, _ = evaluate("--retriever", "dr", "--retriever", "random", "--runs", runs, "--json")
    for item in json.loads(out)["results"]:
        log = read_run_log(runs / f"{item['retriever']}.npz")
        for metric in ("mrr", "f1", "top1", "recall@5"):
            assert mean_score(log, metric) == pytest.approx(item[metric], abs=1e-6)


def test_encoder_is_part_of_the_name_of_its_run_log(evaluate, tmp_path):
    evaluate("--retriever", "dtdr-c", "--encoder", "lexical", "--runs", tmp_path / "runs")
    assert [item.name for item in (tmp_path / "runs").iterdir()] == ["dtdr-c-lexical.npz"]


def test_existing_run_logs_are_replaced_with_force_only(evaluate, tmp_path):
    runs = tmp_path / "runs"
    assert evaluate("--retriever", "random", "--runs", runs)[0] == 0
    before = (runs / "random.npz").read_bytes()
    code, _, err = evaluate("--retriever", "random", "--runs", runs, "--seed", 4)
    assert code == 1
    assert is_one_sentence(err)
    assert "random.npz exists; pass --force" in err
    assert (runs / "random.npz").read_bytes() == before
    assert evaluate("--retriever", "random", "--runs", runs, "--seed", 4, "--force")[0] == 0
    assert read_run_log(runs / "random.npz").header.seed == 4


def test_settings_go_to_the_retrievers_that_take_them(evaluate, tmp_path):
    runs = tmp_path / "runs"
    names = ["--retriever", "random", "--retriever", "dtdr-c"]
    code, _, _ = evaluate(*names, "--set", "order=1", "--set", "random.seed=9", "--runs", runs)
    assert code == 0
    assert read_run_log(runs / "dtdr-c.npz").header.parameters["order"] == 1
    assert read_run_log(runs / "dtdr-c.npz").header.seed == 0
    assert read_run_log(runs / "random.npz").header.seed == 9


def test_paper_recipe_reaches_the_retrievers(evaluate, tmp_path):
    runs = tmp_path / "runs"
    assert evaluate("--retriever", "dtdr-c", "--set", "recipe=paper", "--runs", runs)[0] == 0
    assert read_run_log(runs / "dtdr-c.npz").header.parameters["recipe"] == "paper"


def test_metrics_can_be_chosen_and_broken_down(evaluate):
    arguments = ["--retriever", "random", "--metric", "hit@3", "--by", "plan-length"]
    code, out, _ = evaluate(*arguments)
    assert code == 0
    assert "Hit@3 by calls of the plan" in out
    assert "MRR" not in out
    _, out, _ = evaluate(*arguments, "--json")
    result = json.loads(out)["results"][0]
    groups = result["hit@3_by_plan_length"]
    assert sum(item["steps"] for item in groups.values()) == result["steps"]


def test_markdown_table_has_one_row_a_retriever(evaluate):
    _, out, _ = evaluate("--retriever", "random", "--retriever", "dr", "--markdown")
    lines = out.strip().splitlines()
    assert lines[0].startswith("| Retriever | Encoder | MRR |")
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| random", "| dr"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--retriever", "dtdr-x"], "unknown retriever 'dtdr-x'; choose one of"),
        (["--metric", "ndcg"], "unknown metric 'ndcg'; choose one of"),
        (["--encoder", "word2vec"], "unknown encoder 'word2vec'; choose one of"),
        (["--encoder", "word2vec", "--retriever", "dr"], "unknown encoder 'word2vec'"),
        (["--retriever", "dr", "--set", "depth=2"], "has the parameter 'depth'"),
        (["--retriever", "dr", "--set", "lr.epochs=2"], "'lr', which is not evaluated"),
        (["--retriever", "less-is-more"], "'less-is-more' needs an LLM; fit it in Python"),
        (["--dataset", "tinyagent"], "name the demonstrations once"),
        (["--split", "nowhere.json"], "cannot read nowhere.json"),
    ],
)
def test_misuse_names_the_value_and_the_remedy(evaluate, arguments, said):
    code, out, err = evaluate(*arguments)
    assert (code, out) == (2, "")
    assert is_one_sentence(err)
    assert said in err


def test_unknown_dataset_is_an_error_that_lists_them(capsys):
    assert run(["evaluate", "--dataset", "moon"]) == 2
    assert "unknown dataset 'moon'; choose one of bundled" in capsys.readouterr().err


def test_published_set_that_is_not_there_says_where_it_was_looked_for(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("DTDR_DATA_DIR", str(tmp_path))
    assert run(["evaluate", "--dataset", "tinyagent"]) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert str(tmp_path) in error


def test_skip_bad_counts_what_it_leaves_out(evaluate, data):
    with data.open("a", encoding="utf-8") as stream:
        stream.write("rubbish\n")
    code, _, err = evaluate("--retriever", "random")
    assert (code, is_one_sentence(err)) == (2, True)
    assert f"{data}:25: " in err
    code, _, err = evaluate("--retriever", "random", "--skip-bad")
    assert code == 0
    assert "left out 1 bad record in all" in err


def test_encoder_that_gives_nan_is_one_sentence(evaluate, monkeypatch):
    def broken(encoder, texts):
        return np.full((len(texts), encoder.dimension), np.nan, dtype=np.float32)

    monkeypatch.setattr(LexicalEncoder, "_encode", broken)
    code, out, err = evaluate("--retriever", "dtdr-c")
    assert (code, out) == (1, "")
    assert is_one_sentence(err)
    assert "encoder 'lexical' gave a value that is not a finite number" in err


def test_dr_gives_the_reference_mrr_on_the_tinyagent_example_bank(data_dir, monkeypatch, capsys):
    monkeypatch.setenv("DTDR_DATA_DIR", str(data_dir))
    assert run(["evaluate", "--dataset", "tinyagent", "--retriever", "dr", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["dataset"], found["split"]) == ("tinyagent", "tinyagent")
    assert found["results"][0]["mrr"] == pytest.approx(0.598, abs=0.005)
    assert found["results"][0]["steps"] == 2858


def test_folds_hold_out_every_plan(evaluate):
    code, out, _ = evaluate("--retriever", "random", "--folds", "3", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["split"] == "3-folds"
    (result,) = found["results"]
    plans = small_data.dataset(24).demonstrations
    assert result["steps"] == sum(len(item.plan) + 1 for item in plans)
    code, out, _ = evaluate("--retriever", "random", "--folds", "3")
    assert f"of {len(plans)} held-out plans" in " ".join(out.split())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--folds", "3", "--split", "paper"], "leave out --split"),
        (["--folds", "1"], "at least 2"),
        (["--folds", "1000"], "need as many groups"),
    ],
)
def test_folds_that_cannot_be_made_are_one_sentence(evaluate, more, words):
    code, _, error = evaluate("--retriever", "random", *more)
    assert code == 2
    assert words in error
