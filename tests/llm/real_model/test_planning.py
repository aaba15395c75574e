from pathlib import Path

import pytest

from dtdr.data.calls import ToolCall
from dtdr.data.tools import Parameter, Tool
from dtdr.llm import backends
from dtdr.llm.planning import METHODS, Planner
from dtdr.llm.prompting import FillingPrompts, filling_form
from dtdr.llm.prompting.arguments import read_arguments
from dtdr.predict import create
from dtdr.rankers.selection import Selection
from tests import small_data
from tests.helpers import RANKER_ONLY

DATASET = small_data.dataset(6)
QUERY = "Mail Ann the summary of the notes"


@pytest.fixture(scope="module")
def model():
    return create("random").fit(DATASET.demonstrations, DATASET.tools, **RANKER_ONLY)


@pytest.fixture(scope="module")
def llm(gguf: Path):
    with backends.create(f"gguf:{gguf}", context=2048, threads=1) as found:
        yield found


@pytest.mark.parametrize("select", [name for name in METHODS if name != "plan"])
def test_every_selection_method_plans_with_a_real_model(model, llm, select):
    planner = Planner(
        model,
        llm,
        select=select,
        mask=Selection(top_k=2),
        demonstrations=DATASET.demonstrations,
        max_steps=2,
    )
    result = planner.plan(QUERY)
    known = set(model.vocabulary)
    assert all(call.tool in known for call in result.plan.calls)
    if select != "greedy":
        assert result.stopped in ("end", "step limit")
        first = result.steps[0]
        allowed = model.vocabulary if select == "retriever" else first.shown
        assert first.selected.tool in allowed


def test_a_grammar_holds_a_real_model_to_names_types_and_outputs(llm):
    parameters = (  # no texts: a small model writes those without end
        Parameter("urgent", "boolean"),
        Parameter("again", "boolean"),
        Parameter("count", "integer"),
    )
    tool = Tool("send_mail", "Send a mail several times", parameters)
    calls = (ToolCall("1", "read_file", {"name": "notes"}),)
    prompt = FillingPrompts([tool]).prompt(QUERY, calls, tool, {})
    answer = llm.complete(prompt, max_tokens=200, form=filling_form(parameters, 1)).text
    found = read_arguments(answer, tool, calls)
    assert found.problems == ()
    assert {"urgent", "again", "count"} <= set(found.arguments)
