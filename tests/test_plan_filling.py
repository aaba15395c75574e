"""Plans that are made as a whole: followed, filled, and left where they fail."""

import pytest

from dtdr.data.calls import ToolCall
from dtdr.data.run import Run
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError
from dtdr.llm.planning import Filler, Planner
from dtdr.predict import create
from dtdr.predict.arguments.prediction import CallPrediction
from tests import whole_calls
from tests.scripted_llm import ScriptedLLM

QUERY = 'Create an event "Final Demo" with Rosa and Kim'


@pytest.fixture(scope="module")
def retriever():
    found = create("dtdr-l")
    return found.fit(whole_calls.DEMONSTRATIONS, whole_calls.TOOLS, arguments=True, plans=True)


def test_a_plan_without_an_llm_is_the_most_probable_whole_plan(retriever):
    planner = Planner(retriever)
    assert planner.selector.method == "plan"
    result = planner.plan(QUERY)
    (expected,) = retriever.plans(QUERY, k=1)
    assert result.stopped == "end"
    assert [(call.id, call.tool, call.arguments) for call in result.plan.calls] == [
        (id, call.tool, call.arguments)
        for id, call in zip(expected.ids, expected.calls, strict=True)
    ]
    assert [step.selected.outcome for step in result.steps] == ["plan"] * len(result.steps)
    steps = list(planner.iter_steps(QUERY))
    assert planner.result_of(QUERY, steps).plan == result.plan


@pytest.mark.parametrize(
    ("output", "status"), [("no such person", "error"), ([], "empty"), ({}, None)]
)
def test_a_plan_goes_on_after_a_run_and_by_steps_after_a_call_that_failed(
    retriever, output, status
):
    run = Run(QUERY)
    run.call("get_contact", {"name": "Rosa"}, output={"id": 1})
    result = Planner(retriever).plan(run)
    assert result.plan.calls[0] == run.calls[0]
    assert {step.selected.outcome for step in result.steps} == {"plan"}
    failed = Run(QUERY)
    failed.call("get_contact", {"name": "Rosa"}, output=output, status=status)
    result = Planner(retriever, max_steps=4).plan(failed)
    assert {step.selected.outcome for step in result.steps} == {"retriever"}
    assert result.steps[0].selected.tool == retriever.rank(failed).best


def test_a_model_that_learned_no_plans_says_so():
    found = create("random").fit(whole_calls.DEMONSTRATIONS, whole_calls.TOOLS)
    with pytest.raises(InputError, match="fitted without whole plans"):
        Planner(found, select="plan")
    assert Planner(found).selector.method == "retriever"


NOTE = Tool("note", "Writes a note", (Parameter("title", "string"), Parameter("text", "string")))
MAIL = Tool("mail", "Sends a mail", (Parameter("to", "string"), Parameter("text", "string")))
SURE = CallPrediction("note", {"title": "A"}, {"title": ()}, 0.0, ("text",), {"title": 0.9})
DOUBTFUL = CallPrediction(
    "mail", {"to": {"$ref": "1"}, "text": "x"}, {"to": (), "text": ()}, 0.1, (),
    {"to": 0.9, "text": 0.2},
)  # fmt: skip


def fill(prediction, *answers, **options):
    llm = ScriptedLLM(arguments=list(answers), **options)
    calls = [ToolCall("1", "find", {"name": "Ann"})]
    filler = Filler((NOTE, MAIL), llm=llm, is_learned=True)
    return filler.fill("Note A for Ann", calls, prediction.tool, prediction)


def test_the_llm_is_asked_for_what_is_unknown_and_what_is_doubtful():
    note = fill(SURE, "text='Hi'")
    assert note.arguments == {"title": "A", "text": "Hi"}
    assert (note.llm_calls, note.unknown) == (1, ())
    assert fill(DOUBTFUL, "text=out_1").arguments == {"to": {"$ref": "1"}, "text": {"$ref": "1"}}


def test_what_the_answer_lacks_stays_unknown_or_as_it_was_learned():
    note = fill(SURE, "?", "?")
    assert note.unknown == ("text",)
    assert note.problems
    mail = fill(DOUBTFUL, "text=out_9", "text=out_9")
    assert mail.arguments["text"] == "x"
    assert "out_9 does not exist" in mail.problems[0]
    assert fill(SURE, "?", context=5).problems == ("prompt too long",)


def test_a_plan_is_filled_call_by_call_with_references_to_earlier_calls(retriever):
    llm = ScriptedLLM()
    result = Planner(retriever, llm, select="plan").plan(QUERY)
    assert [step.selected.outcome for step in result.steps] == ["plan"] * len(result.steps)
    assert result.plan == Planner(retriever).plan(QUERY).plan
    assert len(list(result.plan.edges())) == 2
