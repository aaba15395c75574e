import json

import numpy as np
import pytest

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError
from dtdr.llm.planning import Planner, Selector
from dtdr.llm.prompting import Examples, SelectionPrompts
from dtdr.predict import create
from dtdr.predict.model import END_TOOL
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import Selection
from tests import small_data
from tests.helpers import RANKER_ONLY
from tests.scripted_llm import ScriptedLLM

TEXT = Parameter("text", "str")
TOOLS = (
    Tool("read_file", "Open a file", (Parameter("name", "str"),)),
    Tool("summarize", "Summarize", (TEXT,)),
    Tool("send_mail", "Send", (Parameter("to", "str"), TEXT, Parameter("cc", "str", "", False))),
    Tool("ping"),
)
QUERY = "Mail Ann the summary of q3.pdf"


@pytest.fixture(scope="module")
def model():
    calls = (
        ToolCall("1", "read_file", {"name": "a.pdf"}),
        ToolCall("2", "summarize", {"text": {"$ref": "1"}}),
        ToolCall("3", "send_mail", {"to": "Bo", "text": {"$ref": "2"}}),
    )
    return create("random").fit(
        [Demonstration("d", "Mail Bo a.pdf", Plan(calls))], TOOLS, **RANKER_ONLY
    )


NAMES = ("read_file", "summarize", "send_mail", "end")
ARGUMENTS = ("name='q3.pdf'", "text=out_1", "to='Ann', text=out_2")
ALL = Selection(top_k=9)


def make(model, llm, **options) -> Planner:
    return Planner(model, llm, **{"mask": ALL, **options})


def test_a_plan_has_arguments_references_and_a_record_of_every_step(model):
    result = make(model, ScriptedLLM(NAMES, ARGUMENTS)).plan(QUERY)
    assert result.stopped == "end"
    assert result.plan.tools == NAMES[:3]
    assert result.plan.calls[2].arguments == {"to": "Ann", "text": {"$ref": "2"}}
    assert list(result.plan.edges()) == [(0, 1), (1, 2)]
    assert [step.llm_calls for step in result.steps] == [2, 2, 2, 1]
    assert all(step.selected.prompt_tokens for step in result.steps)
    assert all(step.seconds["select"] >= 0 for step in result.steps)
    assert len(result.steps[0].ranking) == len(TOOLS) + 1
    json.dumps(result.to_dict(), allow_nan=False)


def test_streamed_plans_are_the_same(model):
    expected = make(model, ScriptedLLM(NAMES, ARGUMENTS)).plan(QUERY)
    planner = make(model, ScriptedLLM(NAMES, ARGUMENTS))
    steps = list(planner.iter_steps(QUERY))
    assert planner.result_of(QUERY, steps).plan == expected.plan
    assert planner.result_of(QUERY, steps[:2]).stopped == "cancelled"


def test_an_answer_that_names_no_tool_ends_the_plan_and_keeps_what_there_is(model):
    result = make(model, ScriptedLLM(["ping", "fly"]), select="greedy").plan(QUERY)
    assert result.stopped == "no usable answer"
    assert result.plan.tools == ("ping",)
    assert result.steps[0].llm_calls == 1, "a tool without parameters needs no filling"
    assert result.steps[1].selected.outcome == "invalid"


def test_equal_calls_are_a_loop_if_arguments_are_filled(model):
    result = make(model, ScriptedLLM(["ping"] * 50)).plan(QUERY)
    assert result.stopped == "loop"
    assert len(result.plan) < 5
    llm = ScriptedLLM([*["read_file"] * 6, "end"])
    result = make(model, llm, fill="none").plan(QUERY)
    assert (result.stopped, len(result.plan)) == ("end", 6)


def test_the_llm_is_not_asked_to_choose_among_one(model):
    llm = ScriptedLLM()
    step = make(model, llm, select="constrained", mask=Selection(top_k=1)).select(
        QUERY, [], model.rank(QUERY)
    )
    assert step.selected.tool == model.rank(QUERY).best
    assert (step.selected.outcome, step.llm_calls, llm.prompts) == ("single", 0, [])


def test_a_plan_ends_at_the_step_limit(model):
    arguments = [f"name='{number}'" for number in range(50)]
    llm = ScriptedLLM(["read_file"] * 50, arguments)
    result = make(model, llm, max_steps=4).plan(QUERY)
    assert result.stopped == "step limit"
    assert len(result.plan) == 4


def test_a_prompt_that_exceeds_the_context_is_recorded(model):
    result = make(model, ScriptedLLM(NAMES, context=3)).plan(QUERY)
    assert result.stopped == "prompt too long"
    assert result.steps[0].selected.outcome == "too long"


def test_a_malformed_answer_gets_one_repair_round(model):
    llm = ScriptedLLM(["read_file", "end"], ["file='q3.pdf'", "name='q3.pdf'"])
    result = make(model, llm).plan(QUERY)
    assert result.plan.calls[0].arguments == {"name": "q3.pdf"}
    assert result.steps[0].filled.problems == ()
    repair = next(prompt for prompt in llm.prompts if "Your answer was" in prompt.variable)
    assert "'file' is not a parameter" in repair.variable


def test_an_answer_that_stays_malformed_is_reported_and_the_plan_continues(model):
    llm = ScriptedLLM(["send_mail", "end"], ["to='Ann'", "to='Ann', text=out_8"])
    result = make(model, llm).plan(QUERY)
    assert result.stopped == "end"
    assert result.plan.calls[0].arguments == {"to": "Ann"}
    assert "text" in " ".join(result.steps[0].filled.problems)
    assert result.steps[0].llm_calls == 3
    # JSON as in a plan cannot break the plan.
    llm = ScriptedLLM(["read_file", "end"], ['{"name": {"$ref": "77"}}'] * 2)
    result = make(model, llm).plan(QUERY)
    assert result.plan.calls[0].arguments == {}


def test_the_ranker_alone_needs_no_llm(model):
    result = Planner(model, select="retriever").plan(QUERY)
    assert result.steps[0].selected.tool == model.rank(QUERY).best
    assert all(step.llm_calls == 0 for step in result.steps)
    with pytest.raises(InputError, match="asks an LLM"):
        Planner(model, select="constrained")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"icl": "firm"}, "unknown ICL method"),
        ({"select": "dice"}, "unknown selection method 'dice'; choose one of constrained"),
        ({"max_steps": 0}, "at least 1"),
    ],
)
def test_misuse_is_one_sentence(model, options, said):
    with pytest.raises(InputError, match=said):
        make(model, ScriptedLLM(), **options)
    with pytest.raises(InputError, match="query is empty"):
        make(model, ScriptedLLM()).plan("  ")


RANKING = Ranking(("ping", "send_mail", "end"), np.array([0.6, 0.3, 0.1]))
WRITER = SelectionPrompts((*small_data.TOOLS, Tool("ping"), END_TOOL), icl="hard")


def select(llm, method, ranking=RANKING):
    shown = ranking.select(top_k=2)
    prompt = WRITER.prompt(QUERY, [], shown)
    return Selector(method).select(llm, WRITER, prompt, ranking, shown)


def test_greedy_writes_no_more_than_the_longest_name_and_masked_names_are_wrong():
    llm = ScriptedLLM(["end"])
    found = select(llm, "greedy")
    assert (found.tool, found.outcome) == (None, "unlisted")
    assert llm.calls[0]["choices"] is None
    assert llm.calls[0]["max_tokens"] == 2


def test_greedy_may_write_the_longest_name_of_all_tools_where_only_the_end_is_shown():
    writer = SelectionPrompts((Tool("pick a long name"), END_TOOL), icl="hard")
    ranking = Ranking(("end", "pick a long name"), np.array([0.9, 0.1]))
    shown = ranking.select(top_k=1)
    llm = ScriptedLLM(["pick a long name"])
    answer = Selector("greedy").select(llm, writer, writer.prompt(QUERY, [], shown), ranking, shown)
    assert llm.calls[0]["max_tokens"] == 5
    assert (answer.tool, answer.outcome) == (None, "unlisted")


def test_constrained_may_only_choose_what_is_shown():
    llm = ScriptedLLM(["send_mail"])
    assert select(llm, "constrained").tool == "send_mail"
    assert llm.calls[0]["choices"] == ("ping", "send_mail")


def test_the_papers_layout_asks_once_and_takes_random_examples(model):
    demonstrations = small_data.dataset(60).demonstrations
    llm = ScriptedLLM(["read_file", "end"], ["what?", "name='a'"])
    planner = make(model, llm, layout="paper", icl="hard", fill="llm")
    result = planner.plan(QUERY)
    assert result.steps[0].llm_calls == 2, "one selection and one filling, no second try"
    assert result.steps[0].filled.problems
    asking_twice = make(model, ScriptedLLM([], ["what?"]), layout="paper", fill="llm", retry=True)
    assert asking_twice.filler.fill(QUERY, [], "read_file").llm_calls == 2
    tasks = {
        len(task.before)
        for seed in range(12)
        if (task := Examples(demonstrations, seed=seed, choice="random").task()) is not None
    }
    assert 0 in tasks
    assert len(tasks) > 1
    with pytest.raises(InputError, match="choose one of random, similar"):
        Examples(demonstrations, choice="best")
