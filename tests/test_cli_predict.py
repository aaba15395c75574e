import json
from dataclasses import replace

import pytest

from dtdr import Run, load
from dtdr.cli import run
from dtdr.data.demonstration_files import save_demonstrations
from dtdr.errors import InputError
from dtdr.evaluate.call_accuracy import score_calls
from dtdr.predict.arguments.model import ArgumentModel, ArgumentOptions
from tests.command_line import is_one_sentence
from tests.whole_calls import DEMONSTRATIONS, TOOLS

QUERY = 'Look up Wanda and send them a mail with the subject "Ski Trip"'


LEARNED = DEMONSTRATIONS[:40]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("predict") / "demonstrations.jsonl"
    save_demonstrations(path, LEARNED)
    return path


@pytest.fixture(scope="module")
def model(data):
    folder = data.parent / "model"
    assert run(["fit", str(data), "-o", str(folder), "--retriever", "dr"]) == 0
    return str(folder)


def answer(capsys):
    return json.loads(capsys.readouterr().out)


def test_the_next_calls_are_those_of_the_library(model, capsys):
    assert run(["predict", model, QUERY, "--json"]) == 0
    expected = load(model).next_calls(Run(QUERY))
    predicted = answer(capsys)
    assert predicted["calls"] == [call.to_dict() for call in expected]
    assert predicted["history"] == []


def test_a_run_in_a_file_gives_its_outputs(model, tmp_path, capsys):
    path = tmp_path / "run.json"
    call = {"tool": "find_user", "arguments": {"name": "Wanda"}, "output": {"mail": "w@y.org"}}
    path.write_text(json.dumps({"query": QUERY, "calls": [call]}))
    assert run(["predict", model, "--run", str(path), "--top", "1", "--json"]) == 0
    (predicted,) = answer(capsys)["calls"]
    assert predicted["tool"] == "send_mail"
    assert predicted["arguments"]["to"] == "w@y.org"
    assert predicted["sources"]["to"] == [{"kind": "output", "call": "1", "path": "/mail"}]


def test_one_tool_may_be_named(model, capsys):
    assert run(["predict", model, QUERY, "--tool", "get_contact", "--json"]) == 0
    (predicted,) = answer(capsys)["calls"]
    assert predicted["tool"] == "get_contact"
    assert predicted["arguments"] == {"name": "Wanda"}


def test_whole_plans_are_those_of_the_library(model, capsys):
    assert run(["predict", model, QUERY, "--plans", "--top", "2", "--json"]) == 0
    expected = load(model).plans(QUERY, k=2)
    assert answer(capsys)["plans"] == [plan.to_dict() for plan in expected]
    assert sorted(expected[0].tools) == ["find_user", "send_mail"]


def test_a_plan_goes_on_after_a_run(model, tmp_path, capsys):
    path = tmp_path / "run.json"
    call = {"tool": "find_user", "arguments": {"name": "Wanda"}, "output": {"mail": "w@y.org"}}
    path.write_text(json.dumps({"query": QUERY, "calls": [call]}))
    assert run(["predict", model, "--run", str(path), "--plans", "--json"]) == 0
    best = answer(capsys)["plans"][0]
    assert [(call["id"], call["tool"]) for call in best["calls"]] == [("2", "send_mail")]
    assert best["calls"][0]["arguments"]["to"] == "w@y.org"


def test_the_table_of_plans_is_narrow_and_says_each_call_of_the_first(model, capsys):
    assert run(["predict", model, QUERY, "--plans"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert "Arguments" in out  # their probability stands in a column of its own
    assert "1. find_user" in out
    assert '"Wanda"' in out


def test_a_model_without_plans_names_the_remedy(data, tmp_path, capsys):
    folder = str(tmp_path / "model")
    command = ["fit", str(data), "-o", folder, "--retriever", "dr", "--no-plans", "--json"]
    assert run(command) == 0
    assert answer(capsys)["plans"] is False
    assert run(["predict", folder, QUERY, "--plans"]) == 2
    err = capsys.readouterr().err
    assert is_one_sentence(err)
    assert "plans=True" in err


def test_the_table_says_where_values_come_from(model, capsys):
    assert run(["predict", model, QUERY]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert '"Wanda"' in out
    assert "the query" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a query, or --run FILE"),
        (["Mail", "--run", "x"], "give --run alone"),
        (["  "], "the query is empty"),
        (["Mail", "--top", "0"], "at least 1"),
        (["Mail", "--plans", "--top", "0"], "at least 1"),
        (["Mail", "--plans", "--tool", "find_user"], "leave one of them out"),
        (["Mail", "--tool", "unheard_of"], "not known to the model"),
        (["--run", "no such file"], "cannot read"),
    ],
)
def test_misuse_is_one_sentence(model, arguments, words, capsys):
    assert run(["predict", model, *arguments]) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert words in error


def test_a_model_without_arguments_says_what_to_do(data, tmp_path, capsys):
    folder = str(tmp_path / "model")
    command = ["fit", str(data), "-o", folder, "--retriever", "dr", "--no-arguments"]
    assert run(command) == 0
    assert run(["predict", folder, QUERY]) == 2
    assert "fit it again with dtdr fit" in capsys.readouterr().err


def test_inspect_lists_the_values_a_model_holds(model, data, tmp_path, capsys):
    assert run(["inspect", model]) == 0
    assert '"Outbox"' in capsys.readouterr().out
    bare = str(tmp_path / "bare")
    assert run(["fit", str(data), "-o", bare, "--retriever", "dr", "--value-runs", "0"]) == 0
    capsys.readouterr()
    assert run(["inspect", bare]) == 0
    out = capsys.readouterr().out
    assert "has no values" in out
    assert "Outbox" not in out
    rare = str(tmp_path / "rare")
    assert run(["fit", str(data), "-o", rare, "--retriever", "dr", "--value-runs", "99"]) == 0
    capsys.readouterr()
    assert run(["inspect", rare, "--json"]) == 0
    constants = answer(capsys)["arguments"]["constants"]
    assert not any(about["values"] for names in constants.values() for about in names.values())


# -- evaluation --------------------------------------------------------------------------------


def test_evaluate_says_how_many_calls_are_filled_exactly(data, capsys):
    command = ["evaluate", str(data), "--retriever", "dr", "--calls"]
    assert run([*command, "--json"]) == 0
    calls = answer(capsys)["results"][0]["calls"]
    assert calls["exact"] > 0.9
    assert calls["exact_most_sure_half"] >= calls["exact"]
    assert calls["plans_dependencies"] > 0.9
    assert calls["slots"]["query"] > 0.9
    assert calls["milliseconds_median"] > 0
    assert run(command) == 0
    assert "plans with all dependencies" in capsys.readouterr().out
    assert run([*command, "--folds", "2", "--json"]) == 0
    folds = answer(capsys)["results"][0]["calls"]
    assert folds["calls"] == sum(len(item.plan) for item in LEARNED)
    assert folds["exact"] > 0.9


def test_run_logs_hold_no_calls(tmp_path, capsys):
    assert run(["evaluate", str(tmp_path / "x.npz"), "--calls"]) == 2
    assert "leave out --calls" in capsys.readouterr().err


def test_scores_are_counted_by_call_plan_and_source():
    model = ArgumentModel.fit(DEMONSTRATIONS[:60], TOOLS)
    held_out = DEMONSTRATIONS[60:]
    scores = score_calls([(model, held_out[:10]), (model, held_out[10:])])
    assert scores == replace(
        score_calls([(model, held_out)]), milliseconds_median=scores.milliseconds_median
    )
    assert scores.calls == sum(len(item.plan) for item in DEMONSTRATIONS[60:])
    covered, exact = scores.coverage[0.5]
    assert 0 < covered <= 1
    assert exact >= scores.exact - 0.05
    assert len(scores.curve) == 20
    assert scores.curve[-1] == scores.exact
    assert scores.curve[9] == pytest.approx(scores.exact_most_sure_half, abs=0.02)
    few = ArgumentModel.fit(DEMONSTRATIONS[:2], TOOLS, ArgumentOptions(min_runs=0))
    poor = score_calls([(few, held_out)])
    assert poor.exact < scores.exact
    wrong = {name: number * (1 - right) for name, (number, right) in poor.parameters.items()}
    assert list(wrong.values()) == sorted(wrong.values(), reverse=True)
    subjects = [call for item in held_out for call in item.plan.calls if call.tool == "send_mail"]
    assert poor.parameters["send_mail: subject"][0] == len(subjects)
    with pytest.raises(InputError, match="no calls"):
        score_calls([(model, [])])
