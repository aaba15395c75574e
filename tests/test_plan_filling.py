"""Plans that are made as a whole: followed, filled with one request, and left where they fail."""

import pytest

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError
from dtdr.llm.planning import Filler, Planner
from dtdr.llm.prompting import Examples, PlanFillingPrompts, plan_filling_form, read_plan_arguments
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
    with pytest.raises(InputError, match="knows no whole plans"):
        Planner(found, select="plan")
    assert Planner(found).selector.method == "retriever"


NOTE = Tool("note", "Writes a note", (Parameter("title", "string"), Parameter("text", "string")))
MAIL = Tool("mail", "Sends a mail", (Parameter("to", "string"), Parameter("text", "string")))
TOOLS = (NOTE, MAIL, Tool("find", "Finds", (Parameter("name", "string"),)))
PLANNED = [
    ("1", CallPrediction("find", {"name": "Ann"}, {"name": ()}, 0.9, (), {"name": 0.9})),
    ("2", CallPrediction("note", {"title": "A"}, {"title": ()}, 0.0, ("text",), {"title": 0.9})),
    (
        "3",
        CallPrediction(
            "mail", {"to": {"$ref": "1"}, "text": "x"}, {"to": (), "text": ()}, 0.1, (),
            {"to": 0.9, "text": 0.2},
        ),
    ),
]  # fmt: skip
SHOWN = Demonstration(
    "d",
    "Note B for Bo",
    Plan(
        (
            ToolCall("a", "note", {"title": "B", "text": "Hello"}),
            ToolCall("b", "mail", {"to": "Bo", "text": {"$ref": "a"}}),
        )
    ),
)


def fill(llm):
    prompts = PlanFillingPrompts(TOOLS, examples=Examples([SHOWN]))
    filler = Filler(TOOLS, llm=llm, plan_prompts=prompts, is_learned=True)
    return filler.fill_plan("Note A for Ann", [], PLANNED)


def test_the_llm_is_asked_once_for_all_that_is_unknown_in_a_plan():
    llm = ScriptedLLM(arguments=["out_2: text='Hi'\nout_3: text=out_2"])
    find, note, mail = fill(llm)
    (prompt,) = llm.prompts
    assert "out_2 = note(title='A', text=?)\nout_3 = mail(to=out_1, text=?)" in prompt.variable
    assert 'Missing in out_3 (mail, "Sends a mail"):\n- text (string, required)' in prompt.variable
    assert prompt.example is not None
    assert prompt.example[1] == "out_1: text='Hello'\nout_2: text=out_1"
    assert find.arguments == {"name": "Ann"}
    assert note.arguments == {"title": "A", "text": "Hi"}
    assert mail.arguments == {"to": {"$ref": "1"}, "text": {"$ref": "2"}}
    assert [item.llm_calls for item in (find, note, mail)] == [0, 1, 0]
    assert all(item.unknown == () for item in (find, note, mail))


def test_what_the_answer_lacks_stays_unknown_or_as_it_was_learned():
    _, note, mail = fill(ScriptedLLM(arguments=["out_3: text=out_9"]))
    assert note.unknown == ("text",)
    assert note.problems
    assert mail.arguments["text"] == "x"
    assert "out_9 does not exist" in mail.problems[0]
    find, note, mail = fill(ScriptedLLM(arguments=["?"], context=5))
    assert note.problems == ("prompt too long",)
    assert find.problems == ()


def test_a_json_answer_is_read_by_output_variables():
    calls = [ToolCall(id, prediction.tool) for id, prediction in PLANNED]
    asked = {2: (Parameter("text", "string"),), 3: (Parameter("text", "string"),)}
    found = read_plan_arguments(
        '{"out_2": {"text": "Hi"}, "out_3": {"text": "out_2"}, "x": 1}', calls, asked
    )
    assert {number: dict(item.arguments) for number, item in found.items()} == {
        2: {"text": "Hi"},
        3: {"text": {"$ref": "2"}},
    }


def test_a_plan_s_grammar_has_a_line_for_each_call_that_is_asked_about():
    asked = {2: (Parameter("text", "string"),), 3: (Parameter("n", "integer", "", False),)}
    form = plan_filling_form(asked, 3)
    rules = dict(line.split(" ::= ", 1) for line in form.grammar.splitlines())
    assert rules["root"] == '"out_2: " first-2-0 "\\n" "out_3: " first-3-0'
    assert rules["pair-3-0"] == '"n=" (integer | output)'
    assert rules["first-3-0"] == "pair-3-0 later-3-1 | first-3-1"
    assert form.schema["required"] == ["out_2", "out_3"]
    assert form.schema["properties"]["out_3"]["required"] == ["n"]
