"""Filling parameters: with what was learned, with an LLM, and with both."""

import functools
from dataclasses import replace
from typing import ClassVar

import pytest

from dtdr.data.calls import ToolCall
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError
from dtdr.llm.backends.server import OpenAIServer, json_schema
from dtdr.llm.planning import Filler, Planner, fill
from dtdr.llm.prompting import FillingPrompts, filling_form
from dtdr.predict import create
from dtdr.predict.arguments.prediction import CallPrediction
from dtdr.predict.model import Model
from dtdr.rankers.random import RandomRetriever
from tests import whole_calls
from tests.fake_llm_server import fake_server
from tests.helpers import RANKER_ONLY
from tests.scripted_llm import ScriptedLLM

QUERY = 'Create an event "Final Demo" with Rosa and Kim'
MAIL = Tool(
    "send_mail",
    "Send a mail",
    (Parameter("to", "string"), Parameter("subject", "string"), Parameter("body", "string")),
)


def with_body(item):
    """The demonstration with a text in its mail that stands nowhere else, and without outputs."""
    first, *_, last = item.plan.calls
    if last.tool != "send_mail":
        return item
    more = {"to": {"$ref": "1"}, "body": f"Thanks {7919 * int(item.id)} times"}
    mail = replace(last, arguments={**last.arguments, **more})
    return replace(item, plan=Plan((replace(first, output=None), mail)))


class InOrder(RandomRetriever):
    """Ranks the calls of one plan first, one after the other."""

    plan: ClassVar[tuple[str, ...]] = ("get_contact", "get_contact", "create_event")

    def _row(self, prepared, history):
        row = super()._row(prepared, history) * 0
        row[self._index[(*self.plan, "end")[min(len(history), len(self.plan))]]] = 1
        return row


class Mails(InOrder):
    plan = ("find_user", "send_mail")


@functools.cache
def fitted(kind=InOrder, tools=(), **options):
    demonstrations = whole_calls.DEMONSTRATIONS
    if tools:
        demonstrations = tuple(map(with_body, demonstrations))
    options = RANKER_ONLY | options
    return Model(kind()).fit(demonstrations, (*whole_calls.TOOLS, *tools), **options)


@pytest.fixture(scope="module")
def learned():
    return fitted(arguments=True)


def test_a_plan_without_an_llm_holds_learned_arguments_and_their_sources(learned):
    result = Planner(learned).plan(QUERY)
    assert result.stopped == "end"
    event = {"title": "Final Demo", "guests": [{"$ref": "1"}, {"$ref": "2"}]}
    assert [*map(dict, (call.arguments for call in result.plan.calls))] == [
        *({"name": "Rosa"}, {"name": "Kim"}, event),
    ]
    assert list(result.plan.edges()) == [(0, 2), (1, 2)]
    (source,) = result.steps[0].filled.sources["name"]
    assert (source.kind, source.span) == ("query", (QUERY.index("Rosa"), QUERY.index(" and")))
    assert all(step.llm_calls == 0 for step in result.steps)
    record = result.to_dict()["steps"][2]["fill"]
    assert [item["call"] for item in record["sources"]["guests"]] == ["1", "2"]


def test_the_llm_is_asked_for_unknown_parameters_alone_and_reads_the_known_ones():
    model = fitted(Mails, (MAIL,), arguments=True)
    query = 'Look up Rosa and send them a mail with the subject "Final Demo"'
    llm = ScriptedLLM(arguments=["body='See you there'"])
    examples = map(with_body, whole_calls.DEMONSTRATIONS)
    planner = Planner(model, llm, select="retriever", demonstrations=examples)
    result = planner.plan(query)
    (prompt,) = llm.prompts
    assert "Already filled: to=out_1, subject='Final Demo', folder='Outbox'\n" in prompt.variable
    listed = prompt.variable.split("Its other parameters:\n")[1]
    assert listed == "- body (string, required)"
    assert prompt.example is not None
    assert "folder='Outbox'\nIts other parameters:" in prompt.example[0]
    assert prompt.example[1].startswith("body='Thanks ")
    arguments = result.plan.calls[1].arguments
    assert (arguments["body"], arguments["folder"]) == ("See you there", "Outbox")
    assert result.steps[1].filled.unknown == ()


def test_a_sure_call_asks_nothing(learned):
    llm = ScriptedLLM()
    Planner(learned, llm, select="retriever").plan(QUERY)
    assert llm.prompts == []
    planner = Planner(fitted(Mails, arguments=True), llm, select="retriever")
    result = planner.plan("Look up Rosa and send them a mail")
    # A tool without a signature is asked about for the one value that is not sure.
    assert result.steps[1].filled.arguments["to"] == {"$ref": "1", "path": "/mail"}
    assert [step.filled.llm_calls for step in result.steps] == [0, 2, 0]
    asked = llm.prompts[0]
    assert asked.variable.endswith("Its other parameters:\n- subject (any type, required)")


def test_the_paper_s_prompts_stay_as_they_were_whatever_was_learned(learned):
    """Recorded answers are found by their prompts, which rankings by names decide too."""
    seen = []
    for model in (learned, fitted()):
        llm = ScriptedLLM(["get_contact", "create_event", "end"], ["name='Rosa'", "title='x'"])
        planner = Planner(model, llm, fill="llm", demonstrations=whole_calls.DEMONSTRATIONS)
        planner.plan(QUERY)
        seen.append(llm.prompts)
        assert all(call["form"] is None for call in llm.calls)
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fill": "learned"}, "fitted without arguments"),
        ({"fill": "both", "llm": ScriptedLLM()}, "fitted without arguments"),
        ({"fill": "llm"}, "fill 'llm' asks an LLM"),
        ({"fill": "guess"}, "unknown filling method 'guess'; choose one of both"),
        ({"select": "plan"}, "fitted without whole plans"),
    ],
)
def test_a_method_that_lacks_what_it_needs_is_one_sentence(options, said):
    with pytest.raises(InputError, match=said):
        Planner(fitted(), **options)


def test_what_there_is_decides_who_fills_and_selects(learned):
    assert Planner(learned).filler.method == "learned"
    assert Planner(learned, ScriptedLLM()).filler.method == "both"
    assert Planner(fitted(), ScriptedLLM()).filler.method == "llm"
    assert Planner(fitted()).filler.method == "none"
    assert Planner(fitted()).selector.method == "retriever"


PARAMETERS = (
    Parameter("to", "list[str]"),
    Parameter("text", "string"),
    Parameter("count", "integer", "", False),
    Parameter("urgent", "bool", "", False),
)


def test_a_grammar_keeps_order_and_types_and_lets_optional_parameters_out():
    grammar = filling_form(PARAMETERS, 2).grammar
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    assert rules["root"] == "first-0"
    assert rules["pair-0"] == '"to=" (list | output)'
    assert rules["pair-2"] == '"count=" (integer | output)'
    assert rules["output"] == '"out_" ("1" | "2") ("/" [A-Za-z0-9_.~-]+)*'
    assert rules["later-0"] == '", " pair-0 later-1'
    assert rules["first-2"] == "pair-2 later-3 | first-3"
    assert rules["later-4"] == '""'
    used = {word for rule in rules.values() for word in rule.replace("(", " ").split()}
    assert {f"pair-{number}" for number in range(4)} <= used
    assert rules["part"].endswith('| "{" output "}"')
    assert "output" not in filling_form(PARAMETERS, 0).grammar


def test_a_schema_is_one_that_strict_servers_take_and_its_answers_are_read():
    schema = filling_form(PARAMETERS, 1).schema
    assert schema["required"] == ["to", "text", "count", "urgent"]
    assert {"type": "null"} in schema["properties"]["count"]["anyOf"]
    assert schema["properties"]["text"] == {"type": "string"}
    answer = '{"to": ["a@x.org", "out_1"], "text": "Hi", "count": 2, "urgent": null}'
    tool, calls = Tool("send", "", PARAMETERS), (ToolCall("1", "find_user"),)
    prompts = FillingPrompts([tool])
    found = fill(ScriptedLLM(arguments=[answer]), prompts, QUERY, calls, tool, {})
    assert found.problems == ()
    assert found.arguments == {"to": ["a@x.org", {"$ref": "1"}], "text": "Hi", "count": 2}


@pytest.mark.parametrize("fault", ["", "no schemas"])
def test_a_server_is_asked_with_a_schema_and_without_where_it_knows_none(fault):
    form = filling_form((Parameter("text", "string"),), 0)
    prompt = FillingPrompts([MAIL]).prompt(QUERY, (), MAIL, {})
    with fake_server() as server, OpenAIServer("any", server.url, pause=0) as llm:
        server.faults = [fault] * 9
        for _ in range(2):
            llm.complete(prompt, max_tokens=20, form=form)
        formats = [request.get("response_format") for request in server.requests]
    schema = json_schema("arguments", form.schema)
    assert schema in formats
    assert formats[-2:] == ([None, None] if fault else [schema, schema])


# -- whole plans -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned():
    options = {"arguments": True, "plans": True}
    return create("dtdr-l").fit(whole_calls.DEMONSTRATIONS, whole_calls.TOOLS, **options)


@pytest.mark.parametrize("options", [{}, {"llm": ScriptedLLM(), "select": "plan"}])
def test_a_plan_by_plans_is_the_most_probable_whole_plan(planned, options):
    planner = Planner(planned, **options)
    assert planner.selector.method == "plan"
    result = planner.plan(QUERY)
    (expected,) = planned.plans(QUERY, top_k=1)
    assert result.stopped == "end"
    assert [(call.id, call.tool, call.arguments) for call in result.plan.calls] == [
        (id, call.tool, call.arguments)
        for id, call in zip(expected.ids, expected.calls, strict=True)
    ]
    assert [step.selected.outcome for step in result.steps] == ["plan"] * len(result.steps)
    assert len(list(result.plan.edges())) == 2
    steps = list(planner.iter_steps(QUERY))
    assert planner.result_of(QUERY, steps).plan == result.plan


@pytest.mark.parametrize(
    ("output", "status", "outcome"),
    [
        ({"id": 1}, "ok", "plan"),
        *(("no such person", "error", "retriever"), ([], "empty", "retriever")),
        ({}, None, "retriever"),
    ],
)
def test_a_plan_goes_on_after_a_run_and_by_steps_after_a_call_that_failed(
    planned, output, status, outcome
):
    run = Run(QUERY)
    run.call("get_contact", {"name": "Rosa"}, output=output, status=status)
    result = Planner(planned, max_steps=4).plan(run)
    assert result.plan.calls[0] == run.calls[0]
    assert {step.selected.outcome for step in result.steps} == {outcome}
    assert outcome == "plan" or result.steps[0].selected.tool == planned.rank(run).best


SURE = CallPrediction("note", {"title": "A"}, {"title": ()}, 0.0, ("text",), {"title": 0.9})
DOUBTFUL = CallPrediction(
    "mail", {"to": {"$ref": "1"}, "text": "x"}, {"to": (), "text": ()}, 0.1, (),
    {"to": 0.9, "text": 0.2},
)  # fmt: skip


def fill_both(prediction, *answers, **options):
    llm = ScriptedLLM(arguments=list(answers), **options)
    calls = [ToolCall("1", "find", {"name": "Ann"})]
    given = tuple(Parameter(name, "string") for name in ("title", "to", "text"))
    tools = (Tool("note", "", given[::2]), Tool("mail", "", given[1:]))
    filler = Filler(tools, llm=llm, is_learned=True)
    return filler.fill("Note A for Ann", calls, prediction.tool, prediction)


def test_what_the_answer_lacks_stays_unknown_or_as_it_was_learned():
    assert fill_both(DOUBTFUL, "text=out_1").arguments["text"] == {"$ref": "1"}
    note = fill_both(SURE, "?", "?")
    assert (note.unknown, bool(note.problems)) == (("text",), True)
    mail = fill_both(DOUBTFUL, "text=out_9", "text=out_9")
    assert mail.arguments["text"] == "x"
    assert "out_9 does not exist" in mail.problems[0]
    assert fill_both(SURE, "?", context=5).problems == ("prompt too long",)
