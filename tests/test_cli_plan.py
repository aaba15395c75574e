import json
from typing import get_args

import pytest

import dtdr
from dtdr.cli import plan
from dtdr.cli.planning_options import Fill, Icl, Select
from dtdr.cli.signature import CommandGroup
from dtdr.errors import InputError
from dtdr.llm.backends.replay import Recorder
from dtdr.llm.planning import METHODS, Planner
from dtdr.llm.planning.filling import METHODS as FILL_METHODS
from dtdr.llm.prompting import METHODS as ICL_METHODS
from dtdr.predict import create
from tests import small_data, whole_calls
from tests.command_line import invoke
from tests.scripted_llm import ScriptedLLM
from tests.test_filling import with_body

QUERY = "Mail Ann the notes"

app = CommandGroup()
app.command()(plan.plan)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan") / "model"
    found = small_data.dataset()
    create("random").fit(found.demonstrations, found.tools).save(folder)
    return folder


def run(*arguments):
    return invoke(app, *arguments)


def test_the_choices_of_the_command_line_are_those_of_the_library():
    assert set(get_args(Icl)) == set(ICL_METHODS)
    assert set(get_args(Select)) == set(METHODS)
    assert set(get_args(Fill)) == set(FILL_METHODS)


def test_the_retriever_alone_plans_without_an_llm(model):
    result = run(model, QUERY, "--select", "retriever", "--max-steps", 3)
    assert "calls, 0 LLM requests" in result.stdout
    found = json.loads(run(model, QUERY, "--select", "retriever", "--json").stdout)
    assert found["query"] == QUERY
    assert len(found["steps"]) >= len(found["calls"])


def test_a_recorded_plan_is_replayed_from_the_command_line(model, tmp_path):
    from dtdr.api import load
    from dtdr.rankers.selection import Selection

    path = tmp_path / "answers.jsonl"
    with Recorder(ScriptedLLM(["weather", "weather", "end"]), path) as llm:
        expected = Planner(load(model), llm, mask=Selection(top_k=9)).plan(QUERY)
    options = ["--llm", f"replay:{path}", "--top", 9]
    result = run(model, QUERY, *options)
    assert result.stdout.splitlines()[:2] == ["out_1 = weather()", "out_2 = weather()"]
    assert "The plan is complete; 2 calls, 3 LLM requests" in result.stdout
    found = json.loads(run(model, QUERY, *options, "--json").stdout)
    assert found["calls"] == expected.to_dict()["calls"]
    assert found["stopped"] == "end"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([QUERY, "--select", "greedy"], "--select greedy asks an LLM; name one with --llm"),
        ([QUERY, "--fill", "both"], "--fill both asks an LLM; name one with --llm"),
        ([QUERY, "--fill", "learned"], "fit it again with dtdr fit"),
        ([" ", "--select", "retriever"], "query is empty"),
        ([QUERY, "--llm", "qwen"], "names no LLM"),
        ([QUERY, "--select", "retriever", "--coverage", "2"], "--coverage is 2.0"),
        ([QUERY, "--select", "retriever", "--threshold", "1"], "--threshold is 1.0"),
    ],
)
def test_misuse_is_one_sentence(model, arguments, said):
    with pytest.raises(InputError, match=said):
        run(model, *arguments)


def test_demonstrations_that_are_not_there_are_named(model):
    with pytest.raises(InputError, match=r"cannot read nowhere\.jsonl"):
        run(model, QUERY, "--select", "retriever", "--examples", "nowhere.jsonl")


def test_a_plan_with_a_value_that_has_to_be_written_is_not_complete(tmp_path):
    mails = [item for item in whole_calls.DEMONSTRATIONS if item.plan.calls[-1].tool == "send_mail"]
    dtdr.fit(map(with_body, mails), retriever="dr", arguments=True).save(tmp_path / "model")
    query = 'Look up Rosa and send them a mail with the subject "Final Demo"'
    result = run(tmp_path / "model", query)
    assert "has to be written: body" in result.stdout
    assert "The plan is not complete, values to be written: 1; 2 calls" in result.stdout
