import io
import json
import subprocess
import sys
from typing import Any

import pytest

from dtdr import Run, fit, load
from dtdr.cli import run
from tests import small_data
from tests.command_line import is_one_sentence, start


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rank")
    path = small_data.write(folder)
    assert run(["fit", str(path), "-o", str(folder / "model"), "--retriever", "random"]) == 0
    return str(folder / "model")


@pytest.fixture
def stdin(monkeypatch):
    def give(text):
        content = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def answer(capsys):
    return json.loads(capsys.readouterr().out)


def test_ranking_is_that_of_the_library(model, capsys):
    assert run(["rank", model, "Mail Ann", "--history", "read_file,summarize", "--json"]) == 0
    expected = load(model).rank("Mail Ann", ["read_file", "summarize"]).top(5)
    found = answer(capsys)
    assert found["history"] == ["read_file", "summarize"]
    assert [item["tool"] for item in found["tools"]] == [tool for tool, _ in expected]
    for item, (_, probability) in zip(found["tools"], expected, strict=True):
        assert item["probability"] == pytest.approx(probability, abs=1e-6)


def test_a_query_prints_a_table_of_at_most_100_columns(model, capsys):
    assert run(["rank", model, "Mail Ann"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    best = load(model).rank("Mail Ann").best
    assert best in out
    assert max(map(len, out.splitlines())) <= 100


def test_a_query_unlike_the_demonstrations_is_said_to_be(tmp_path, capsys):
    path = small_data.write(tmp_path)
    assert run(["fit", str(path), "-o", str(tmp_path / "m"), "--no-arguments"]) == 0
    capsys.readouterr()
    assert run(["rank", str(tmp_path / "m"), "qwv lkj zzt", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["familiar"] is False
    assert json.loads(out)["none_of_these"] is True
    assert "unlike the demonstrations" in err


@pytest.mark.parametrize("command", ["rank", "predict"])
def test_several_histories_add_up_and_keep_the_name_of_a_tool_whole(command, tmp_path, capsys):
    folder = str(tmp_path / "model")
    fit([("Mail Ann", ["odd, name", "b"]), ("Call Bo", ["b", "c"])], retriever="dr").save(folder)
    history = ["--history", "b, c", "--history", "odd, name", "--history", "x"]
    assert run([command, folder, "Mail Ann", *history, "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["history"] == ["b", "c", "odd, name", "x"]
    assert "never saw 'x'" in shown.err


def test_history_with_unknown_tool_still_ranks_and_says_so(model, capsys):
    assert run(["rank", model, "Mail Ann", "--history", "teleport"]) == 0
    shown = capsys.readouterr()
    assert "never saw 'teleport'" in shown.err
    assert "Probability" in shown.out


def test_top_0_shows_all_and_probabilities_sum_to_1(model, capsys):
    assert run(["rank", model, "Mail Ann", "--top", "0", "--json"]) == 0
    tools = answer(capsys)["tools"]
    assert len(tools) == len(small_data.TOOLS) + 1
    assert sum(item["probability"] for item in tools) == pytest.approx(1, abs=1e-4)


def test_threshold_leaves_out_improbable_tools_but_never_all(model, capsys):
    run(["rank", model, "Mail Ann", "--top", "0", "--json"])
    everything = answer(capsys)["tools"]
    bar = everything[2]["probability"]
    run(["rank", model, "Mail Ann", "--top", "0", "--threshold", str(bar), "--json"])
    assert answer(capsys)["tools"] == [item for item in everything if item["probability"] > bar]
    run(["rank", model, "Mail Ann", "--threshold", "0.99", "--json"])
    assert answer(capsys)["tools"] == everything[:1]


@pytest.mark.parametrize("query", ["", "  \n"])
def test_empty_query_is_an_error(model, query, capsys):
    assert run(["rank", model, query]) == 2
    assert "the query is empty" in capsys.readouterr().err


def test_threshold_outside_its_range_is_an_error(model, capsys):
    assert run(["rank", model, "Mail Ann", "--threshold", "1.5"]) == 2
    assert "--threshold is 1.5; it must be in [0, 1)" in capsys.readouterr().err


def test_negative_top_is_an_error(model, capsys):
    assert run(["rank", model, "Mail Ann", "--top", "-1"]) == 2
    assert "--top is -1; it must be at least 1, or 0 for all" in capsys.readouterr().err


def test_history_of_10000_calls_ranks(model, stdin, capsys):
    stdin(json.dumps({"query": "Mail Ann", "history": ["read_file", "weather"] * 5000}))
    assert run(["rank", model]) == 0
    assert len(answer(capsys)["tools"]) == 5


def test_query_of_1_mb_ranks(model, stdin, capsys):
    stdin(json.dumps({"query": "Mail Ann the notes " * 55_000}) + "\n")
    assert run(["rank", model]) == 0
    assert len(answer(capsys)["tools"]) == 5


def test_each_line_of_input_gets_one_line_of_output_in_order(model, stdin, capsys):
    queries = [f"Mail Ann {number}" for number in range(700)]
    histories = [["read_file"] * (number % 3) for number in range(700)]
    requests = [
        json.dumps({"query": query, "history": history})
        for query, history in zip(queries, histories, strict=True)
    ]
    stdin("\n".join(requests) + "\n\n")
    assert run(["rank", model, "--top", "1"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = load(model).rank_batch(queries, histories)
    assert [item["tools"][0]["tool"] for item in answers] == [ranking.best for ranking in expected]


def test_last_line_without_a_newline_is_answered(model, stdin, capsys):
    stdin('{"query": "a"}\n{"query": "b"}')
    assert run(["rank", model]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not a line of JSON"),
        ("\udcff", "not a line of JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "'query' is missing"),
        ('{"query": " "}', "'query' is missing, empty"),
        ('{"query": 5}', "'query' is missing, empty or not text"),
        ('{"query": "a", "history": "b"}', "'history' must be a list"),
        ('{"query": "a", "history": [1]}', "'history' must be a list"),
    ],
)
def test_bad_line_is_named_by_its_number_after_the_good_ones_are_answered(
    model, stdin, capsys, line, said
):
    content = f'{{"query": "a"}}\n\n{line}\n{{"query": "b"}}\n'
    stdin(content.encode("utf-8", "surrogateescape"))
    assert run(["rank", model]) == 2
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1
    assert is_one_sentence(shown.err)
    assert "standard input, line 3: " in shown.err
    assert said in shown.err
    assert "--skip-bad" in shown.err


def test_skip_bad_answers_a_bad_line_with_an_error_and_goes_on(model, stdin, capsys):
    stdin('{"query": "a"}\nrubbish\n{"query": "b"}\n')
    assert run(["rank", model, "--skip-bad"]) == 0
    shown = capsys.readouterr()
    answers = [json.loads(line) for line in shown.out.splitlines()]
    assert [sorted(item) for item in answers] == [["tools"], ["error", "line"], ["tools"]]
    assert answers[1]["line"] == 2
    assert "1 bad line answered with an error" in shown.err


def test_program_that_writes_one_line_and_waits_gets_its_answer(model):
    process = start(["rank", model], stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(3):
        process.stdin.write(json.dumps({"query": f"Mail Ann {number}"}).encode() + b"\n")
        process.stdin.flush()
        assert len(json.loads(process.stdout.readline())["tools"]) == 5
    process.stdin.close()
    assert process.wait() == 0


def test_history_beside_lines_of_input_is_an_error(model, stdin, capsys):
    stdin('{"query": "a"}\n')
    assert run(["rank", model, "--history", "read_file"]) == 2
    assert "each line of the input has its own history" in capsys.readouterr().err


def test_terminal_without_a_query_is_told_what_to_give(model, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert run(["rank", model]) == 2
    assert "give a query" in capsys.readouterr().err


RUN: dict[str, Any] = {
    "query": "Mail Ann",
    "before": [
        {"role": "user", "content": "Who is Ann?"},
        {"role": "call", "id": "e1", "tool": "read_file", "output": {"mail": "ann@x.org"}},
    ],
    "calls": [
        {"tool": "read_file", "arguments": {"path": "q3.pdf"}, "output": "", "step": 1},
        {"tool": "teleport", "status": "error", "step": 2},
    ],
}


@pytest.fixture(scope="module")
def factored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rank-run")
    path = small_data.write(folder)
    assert run(["fit", str(path), "-o", str(folder / "model"), "--retriever", "dtdr-f"]) == 0
    return str(folder / "model")


def test_a_run_is_ranked_as_by_the_library(factored, tmp_path, stdin, capsys):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN))
    assert run(["rank", factored, "--run", str(path), "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["query"], found["history"]) == ("Mail Ann", ["read_file", "teleport"])
    assert found["unknown_tools"] == ["teleport"]
    assert "change nothing" not in shown.err
    expected = load(factored).rank(Run.from_dict(RUN)).top(5)
    assert [item["tool"] for item in found["tools"]] == [tool for tool, _ in expected]
    for item, (_, probability) in zip(found["tools"], expected, strict=True):
        assert item["probability"] == pytest.approx(probability, abs=1e-6)
    stdin(json.dumps(RUN))
    assert run(["rank", factored, "--run", "-", "--json"]) == 0
    assert answer(capsys) == found


def test_a_retriever_that_knows_names_only_says_that_the_rest_changes_nothing(model, stdin, capsys):
    stdin(json.dumps(RUN))
    assert run(["rank", model, "--run", "-"]) == 0
    assert "it ignores their outputs and the messages before" in capsys.readouterr().err
    stdin(json.dumps({"query": "Mail Ann", "calls": [{"tool": "read_file"}]}))
    assert run(["rank", model, "--run", "-"]) == 0
    assert capsys.readouterr().err == ""


def test_lines_may_hold_runs(factored, stdin, capsys):
    names = {"query": "Mail Ann", "history": ["read_file"]}
    mixed: dict[str, Any] = {
        "query": "Mail Ann",
        "history": ["read_file", {"tool": "summarize", "output": []}],
    }
    stdin("\n".join(map(json.dumps, [names, RUN, mixed, {**names, "before": RUN["before"]}])))
    assert run(["rank", factored]) == 0
    found = [json.loads(line)["tools"] for line in capsys.readouterr().out.splitlines()]
    retriever = load(factored)
    expected = [
        retriever.rank("Mail Ann", ["read_file"]),
        retriever.rank(Run.from_dict(RUN)),
        retriever.rank("Mail Ann", mixed["history"]),
        retriever.rank("Mail Ann", ["read_file"], before=RUN["before"]),
    ]
    assert [tools[0]["tool"] for tools in found] == [ranking.best for ranking in expected]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not a run"),
        ("[" * 100_000, "is not a run"),
        ("[]", "a run must be a JSON object"),
        ("{}", "no 'query'"),
        ('{"query": "a", "calls": [7]}', "names of tools, calls and their JSON objects"),
        ('{"query": "a", "calls": [{"tool": "\\ud800"}]}', "surrogate"),
        ('{"query": "a", "before": [{"role": "tool"}]}', "needs the role"),
        ('{"query": "a", "calls": [{"tool": "b", "status": "fine"}]}', "unknown status"),
        (b"\xff\xfe\xff", "is not a run"),
        (
            '{"query": "a", "calls": [{"tool": "b", "step": 2}, {"tool": "b", "step": 1}]}',
            "call '2' has step 1, after a call of step 2",
        ),
        (
            '{"query": "a", "calls": [{"tool": "b", "id": "x", "output": {"to": 1}}, '
            '{"tool": "b", "arguments": {"v": {"$ref": "x", "path": "/from"}}}]}',
            "refers to '/from' in the output of 'x', which does not name a part of it",
        ),
        ('{"query": "a", "calls": [{"tool": "b", "arguments": {"v": {"$ref": "9"}}}]}', "'9'"),
    ],
)
def test_what_is_not_a_run_is_one_sentence(model, stdin, capsys, content, words):
    stdin(content)
    assert run(["rank", model, "--run", "-"]) == 2
    error = capsys.readouterr().err
    assert "standard input" in error
    assert words in error
    assert is_one_sentence(error)


def test_a_run_file_that_is_not_there_is_an_error(model, tmp_path, capsys):
    assert run(["rank", model, "--run", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["Mail Ann"], ["--history", "a"]])
def test_a_run_goes_alone(model, more, capsys):
    assert run(["rank", model, *more, "--run", "run.json"]) == 2
    assert "give --run alone" in capsys.readouterr().err
