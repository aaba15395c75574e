"""Prompts, answers and accuracies of single steps, counted again from the paper's text alone."""

import itertools
import re
from collections import Counter, defaultdict

import pytest

from dtdr.evaluate.planning.harness import choose_steps, run_selections
from dtdr.evaluate.planning.planning_metrics import function_selection_accuracy
from dtdr.llm.planning import Planner
from dtdr.predict import create
from dtdr.rankers.selection import Selection
from tests import small_data
from tests.helpers import RANKER_ONLY
from tests.scripted_llm import ScriptedLLM

ALPHA = 0.2
DATA = small_data.dataset(60)
TRAIN, TEST = DATA.demonstrations[:40], DATA.demonstrations[40:]
TOOLS = [tool.name for tool in DATA.tools]
FORMS = ("{}", "'{}'", "out_5 = {}(", "I do not know", "{}")


def retrieved(history):
    """DR: the functions that came after the last one in more than a share α of the cases."""
    after: dict[str, Counter[str]] = defaultdict(Counter)
    for item in TRAIN:
        names = ["start", *item.plan.tools, "end"]
        for one, other in itertools.pairwise(names):
            after[one][other] += 1
    counts = after[history[-1] if history else "start"]
    return {name for name, count in counts.items() if count / counts.total() >= ALPHA}


def acceptable(item, done):
    """Functions of the plan that are left and whose inputs were made; else the end of plan."""
    left = item.plan.calls[done:]
    made = {call.id for call in item.plan.calls[:done]}
    ready = {
        call.tool
        for call in left
        if all(
            value["$ref"] in made for value in call.arguments.values() if isinstance(value, dict)
        )
    }
    return ready or {"end"}


@pytest.fixture(scope="module")
def steps():
    return choose_steps(TEST)


@pytest.fixture(scope="module")
def answers(steps):
    return [
        form.format(min(acceptable(item, done)))
        for (item, done), form in zip(steps, FORMS * len(steps), strict=False)
    ]


def run(steps, answers, icl, path):
    model = create("dr").fit(TRAIN, DATA.tools, **RANKER_ONLY)
    llm = ScriptedLLM(answers)
    planner = Planner(
        model,
        llm,
        icl=icl,
        select="greedy",
        layout="paper",
        mask=Selection(threshold=ALPHA, fallback=False),
        demonstrations=TRAIN,
    )
    return llm, run_selections(planner, steps, path)


def test_only_an_exact_name_is_right_and_every_answer_may_be_as_long_as_the_longest(
    steps, answers, tmp_path
):
    llm, log = run(steps, answers, "raw", tmp_path / "log.jsonl")
    forms = [FORMS[index % len(FORMS)] for index in range(len(steps))]
    assert function_selection_accuracy(log, "exact").value == forms.count("{}") / len(steps)
    readable = len(forms) - forms.count("I do not know")
    assert function_selection_accuracy(log, "lenient").value == readable / len(steps)
    longest = max(llm.count_tokens(name) for name in [*TOOLS, "end"])
    assert {call["max_tokens"] for call in llm.calls} == {longest + 1}


def test_a_hard_mask_shows_what_was_retrieved_and_raw_the_plans_that_call_most_of_it(
    steps, answers, tmp_path
):
    hard, _ = run(steps, answers, "hard", tmp_path / "hard.jsonl")
    raw, _ = run(steps, answers, "raw", tmp_path / "raw.jsonl")
    plans = {item.query: {*item.plan.tools, "end"} for item in TRAIN}
    only_end = 0
    for (item, done), masked, shown in zip(steps, hard.prompts, raw.prompts, strict=True):
        wanted = retrieved(item.plan.tools[:done])
        assert set(re.findall(r'"function": "(\w+)"', masked.variable)) == wanted
        only_end += wanted == {"end"}
        *queries, asked = re.findall(r'^Request: "(.*)"$', shown.variable, re.MULTILINE)
        assert asked == item.query
        assert len(queries) == 5, "every plan ends, so there are always some"
        fewest = min(len(plans[query] & wanted) for query in queries)
        # Demonstrations whose query another shares have the same plan here.
        others = [tools for query, tools in plans.items() if query not in queries]
        assert all(len(tools & wanted) <= fewest for tools in others)
    assert only_end > 10
