"""``dtdr predict``, ``dtdr inspect`` and ``dtdr plan``: calls with arguments, and whole plans."""

import json

import pytest

import dtdr
from dtdr import Run, load
from dtdr.cli import run
from dtdr.data.demonstration_files import save_demonstrations
from tests import whole_calls
from tests.fake_llm_server import fake_server
from tests.llm.test_filling import with_body

QUERY = 'Look up Wanda and send them a mail with the subject "Ski Trip"'
LEARNED = whole_calls.DEMONSTRATIONS[:40]
CALL = {"tool": "find_user", "arguments": {"name": "Wanda"}, "output": {"mail": "w@y.org"}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("predict") / "demonstrations.jsonl"
    save_demonstrations(path, LEARNED)
    path.with_name("run.json").write_text(json.dumps({"query": QUERY, "calls": [CALL]}))
    return path


@pytest.fixture(scope="module")
def model(data):
    folder = data.parent / "model"
    assert run(["fit", str(data), "-o", str(folder), "--retriever", "dr"]) == 0
    return folder


def test_the_next_calls_are_those_of_the_library(model, cli):
    predicted = cli("predict", model, QUERY, "--json").json()
    assert predicted["calls"] == [call.to_dict() for call in load(model).next_calls(Run(QUERY))]
    assert predicted["history"] == []
    plans = cli("predict", model, QUERY, "--plans", "--top-k", "2", "--json").json()["plans"]
    assert plans == [plan.to_dict() for plan in load(model).plans(QUERY, top_k=2)]


def test_a_run_in_a_file_gives_its_outputs(model, data, cli):
    path = data.with_name("run.json")
    (predicted,) = cli("predict", model, "--run", path, "--top-k", "1", "--json").json()["calls"]
    assert predicted["tool"] == "send_mail"
    assert predicted["arguments"]["to"] == "w@y.org"
    assert predicted["sources"]["to"] == [{"kind": "output", "call": "1", "path": "/mail"}]
    best = cli("predict", model, "--run", path, "--plans", "--json").json()["plans"][0]
    assert [(call["id"], call["tool"]) for call in best["calls"]] == [("2", "send_mail")]


def test_the_tables_say_where_values_come_from(model, cli):
    calls, plans = (cli("predict", model, QUERY, *more).table() for more in ((), ("--plans",)))
    for out in (calls, plans):
        assert '"Wanda"' in out
        assert "the query" in out
    assert "Arguments" in plans  # the probability of the arguments has its own column
    assert "1. find_user" in plans
    for more in ((), ("--plans",)):
        refused = cli("predict", model, QUERY, "--top-k", "0", *more)
        assert (refused.code, refused.out) == (2, "")
        assert "at least 1" in refused.err


def test_inspect_shows_the_whole_configuration(model, cli):
    shown = cli("inspect", model)
    assert "40 demonstrations" in shown.table()
    assert "send_mail" in shown.out
    assert shown.err == ""
    found = cli("inspect", model, "--json").json()
    assert found["ranker"] == "dr"
    assert [tool["name"] for tool in found["tools"]][-1] == "end"
    assert found["bytes"] == sum(item.stat().st_size for item in model.iterdir())


def test_inspect_lists_the_values_a_model_holds(model, data, tmp_path, cli):
    assert '"Outbox"' in cli("inspect", model).table()
    fit = ["fit", data, "--retriever", "dr", "--no-plans", "--set"]
    assert cli(*fit, "value_runs=0", "-o", tmp_path / "bare").code == 0
    out = cli("inspect", tmp_path / "bare").table()
    assert "has no values" in out
    assert "Outbox" not in out
    assert cli(*fit, "value_runs=99", "-o", tmp_path / "rare").code == 0
    constants = cli("inspect", tmp_path / "rare", "--json").json()["arguments"]["constants"]
    assert not any(about["values"] for names in constants.values() for about in names.values())


# -- plan --------------------------------------------------------------------------------------


def test_the_ranker_alone_plans_without_an_llm(model, cli):
    options = ("--select", "retriever")
    assert "0 LLM requests" in cli("plan", model, QUERY, *options).table()
    found = cli("plan", model, QUERY, *options, "--json").json()
    assert found["query"] == QUERY
    assert len(found["steps"]) >= len(found["calls"])


def test_an_llm_on_a_server_selects_the_functions(model, cli):
    names = iter(["get_contact", "get_contact", "end"])
    with fake_server() as server:
        server.script, server.context = lambda body: next(names), 10_000
        options = ["--llm", f"openai:m@{server.url}", "--select", "greedy", "--fill", "none"]
        out = cli("plan", model, QUERY, *options).table()
        assert out.splitlines()[:2] == ["out_1 = get_contact()", "out_2 = get_contact()"]
        assert "The plan is complete; 2 calls, 3 LLM requests" in out
        server.script = lambda body: "end"
        found = cli("plan", model, QUERY, *options, "--json").json()
    assert found["calls"] == []
    assert found["stopped"] == "end"


def test_a_plan_with_a_value_that_has_to_be_written_is_not_complete(tmp_path, cli):
    mails = [item for item in whole_calls.DEMONSTRATIONS if item.plan.calls[-1].tool == "send_mail"]
    dtdr.fit(map(with_body, mails), ranker="dr", arguments=True).save(tmp_path / "model")
    query = 'Look up Rosa and send them a mail with the subject "Final Demo"'
    out = cli("plan", tmp_path / "model", query).table()
    assert "has to be written: body" in out
    assert "The plan is incomplete: 1 value to be written; 2 calls" in out
