import io
import json
import sys
from typing import Any

import pytest

from dtdr import Run, fit, load
from dtdr.cli import run
from tests import small_data
from tests.command_line import is_one_sentence


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rank")
    path = small_data.write(folder)
    assert run(["fit", str(path), "-o", str(folder / "model"), "--retriever", "random"]) == 0
    return folder / "model"


@pytest.fixture(scope="module")
def factored(model):
    data = model.parent / "demonstrations.jsonl"
    folder = model.parent / "factored"
    assert run(["fit", str(data), "-o", str(folder), "--no-arguments", "--no-plans"]) == 0
    return folder


@pytest.fixture
def stdin(monkeypatch):
    def give(text):
        content = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def test_ranking_is_that_of_the_library(model, cli):
    found = cli("rank", model, "Mail Ann", "--history", "read_file,summarize", "--json").json()
    expected = load(model).rank("Mail Ann", ["read_file", "summarize"]).top(5)
    assert found["history"] == ["read_file", "summarize"]
    assert [item["tool"] for item in found["tools"]] == [tool for tool, _ in expected]
    probabilities = [item["probability"] for item in found["tools"]]
    assert probabilities == pytest.approx([value for _, value in expected], abs=1e-6)


def test_a_query_unlike_the_demonstrations_is_said_to_be(factored, cli):
    shown = cli("rank", factored, "qwv lkj zzt", "--json")
    assert shown.json()["familiar"] is False
    assert shown.json()["none_of_these"] is True
    assert "unlike the demonstrations" in shown.err


@pytest.mark.parametrize("command", ["rank", "predict"])
def test_several_histories_add_up_and_keep_the_name_of_a_tool_whole(command, tmp_path, cli):
    folder = tmp_path / "model"
    fit([("Mail Ann", ["odd, name", "b"]), ("Call Bo", ["b", "c"])], ranker="dr").save(folder)
    history = ["--history", "b, c", "--history", "odd, name", "--history", "x"]
    shown = cli(command, folder, "Mail Ann", *history, "--json")
    assert shown.json()["history"] == ["b", "c", "odd, name", "x"]
    assert "never saw 'x'" in shown.err


def test_a_table_has_the_top_tools_and_top_0_shows_all(model, stdin, cli):
    shown = cli("rank", model, "Mail Ann")
    assert load(model).rank("Mail Ann").best in shown.table()
    assert "after 0 calls; 1 more tool not shown" in shown.out
    stdin(json.dumps({"query": "Mail Ann", "offered": ["read_file", "weather"]}))
    assert "not shown" not in cli("rank", model, "--run", "-").table()
    assert shown.err == ""
    tools = cli("rank", model, "Mail Ann", "--top-k", "0", "--json").json()["tools"]
    assert len(tools) == len(small_data.TOOLS) + 1
    assert sum(item["probability"] for item in tools) == pytest.approx(1, abs=1e-4)


def test_long_histories_and_queries_rank(model, stdin, cli):
    query, calls = "Mail Ann the notes " * 55_000, ["read_file", "weather"] * 5000
    stdin(json.dumps({"query": query, "calls": calls}))
    assert len(cli("rank", model, "--run", "-", "--json").json()["tools"]) == 5


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


def test_a_run_is_ranked_as_by_the_library(factored, tmp_path, stdin, cli):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN, indent=1))
    shown = cli("rank", factored, "--run", path, "--json")
    found = shown.json()
    assert (found["query"], found["history"]) == ("Mail Ann", ["read_file", "teleport"])
    assert found["unknown_tools"] == ["teleport"]
    assert "ignores" not in shown.err
    expected = load(factored).rank(Run.from_dict(RUN)).top(5)
    assert [item["tool"] for item in found["tools"]] == [tool for tool, _ in expected]
    stdin(json.dumps(RUN))
    assert cli("rank", factored, "--run", "-", "--json").json() == found


def test_a_ranker_that_knows_names_only_says_that_the_rest_changes_nothing(model, stdin, cli):
    stdin(json.dumps(RUN))
    assert "it ignores their outputs and the messages" in cli("rank", model, "--run", "-").err
    stdin(json.dumps({"query": "Mail Ann", "calls": [{"tool": "read_file"}]}))
    assert cli("rank", model, "--run", "-").err == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not a run"),
        ("{}", "no 'query'"),
        (b"\xff\xfe\xff", "is not a run"),
        ('{"query": "a", "calls": [{"tool": "b", "arguments": {"v": {"$ref": "9"}}}]}', "'9'"),
    ],
)
def test_what_is_not_a_run_is_one_sentence(model, stdin, cli, content, words):
    stdin(content)
    shown = cli("rank", model, "--run", "-")
    assert shown.code == 2
    assert is_one_sentence(shown.err)
    assert "standard input" in shown.err
    assert words in shown.err
