import json
import math

import pytest

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError
from dtdr.evaluate.planning.harness import choose_plans, choose_steps, run_plans, run_selections
from dtdr.evaluate.planning.planning_metrics import (
    function_selection_accuracy,
    success_rate,
)
from dtdr.evaluate.planning.run_log import read_planning_log
from dtdr.evaluate.statistics import proportion
from dtdr.llm.backends import LLMError
from dtdr.llm.planning import Planner
from dtdr.predict import create
from dtdr.rankers.selection import Selection
from tests import small_data
from tests.helpers import RANKER_ONLY
from tests.scripted_llm import ScriptedLLM

DATASET = small_data.dataset()
NOTE = Parameter("note", "str")
NOTES = (Tool("read", "", (NOTE,)), Tool("write", "", (NOTE,)))
STEPS = choose_steps(DATASET.demonstrations[:3])


@pytest.fixture(scope="module")
def model():
    return create("random").fit(DATASET.demonstrations, DATASET.tools, **RANKER_ONLY)


def planner(model, llm, **options) -> Planner:
    return Planner(model, llm, mask=Selection(top_k=9), **options)


def gold_names(steps) -> list[str]:
    return [sorted(item.plan.acceptable_next(range(step)))[0] for item, step in steps]


def test_a_perfect_llm_has_accuracy_one_and_costs_are_counted(model, tmp_path):
    llm = ScriptedLLM(gold_names(STEPS))
    log = run_selections(planner(model, llm), STEPS, tmp_path / "run.jsonl")
    assert len(log.records) == log.header["size"] == len(STEPS)
    assert function_selection_accuracy(log).value == 1
    for record in log:
        assert record["llm_calls"] == 1
        assert min(record["prompt_tokens"], record["seconds"]) > 0


def test_wrong_invalid_and_too_long_answers_are_counted_apart(model, tmp_path):
    steps = STEPS[:4]
    item, step = steps[3]
    acceptable = item.plan.acceptable_next(range(step))
    wrong = next(tool.name for tool in small_data.TOOLS if tool.name not in acceptable)
    names = [gold_names(steps)[0], "fly", "", wrong]
    llm = ScriptedLLM(names)
    log = run_selections(planner(model, llm, select="greedy"), steps, tmp_path / "a.jsonl")
    assert function_selection_accuracy(log).value == pytest.approx(0.25)
    assert [record["selected"] is None for record in log] == [False, True, True, False]
    short = ScriptedLLM(names, context=2)
    log = run_selections(planner(model, short), steps, tmp_path / "b.jsonl")
    assert {record["outcome"] for record in log} == {"too long"}
    assert function_selection_accuracy(log).value == 0


class Breaking(ScriptedLLM):
    """Fails after some answers, as a server that goes away does."""

    left = 3

    def complete(self, *arguments, **options):
        if self.left == 0:
            raise LLMError("the server went away")
        self.left -= 1
        return super().complete(*arguments, **options)


def test_an_interrupted_run_goes_on_without_losing_or_repeating_a_step(model, tmp_path):
    path = tmp_path / "run.jsonl"
    names = gold_names(STEPS)
    with pytest.raises(LLMError):
        run_selections(planner(model, Breaking(names)), STEPS, path)
    assert len(read_planning_log(path).records) == 3
    with path.open("a") as stream:
        stream.write('{"plan": "d0", "st')
    llm = ScriptedLLM(names[3:])
    log = run_selections(planner(model, llm), STEPS, path)
    assert len(llm.prompts) == len(STEPS) - 3
    assert read_planning_log(path).records == log.records
    assert function_selection_accuracy(log).value == 1
    run_selections(planner(model, ScriptedLLM()), STEPS, path)
    assert len(path.read_text().splitlines()) == len(STEPS) + 1


@pytest.mark.parametrize("lost", [1, 9])
def test_a_log_cut_at_its_end_loses_no_step(model, tmp_path, lost):
    path = tmp_path / "run.jsonl"
    names = gold_names(STEPS)
    run_selections(planner(model, ScriptedLLM(names)), STEPS, path)
    path.write_bytes(path.read_bytes()[:-lost])
    log = run_selections(planner(model, ScriptedLLM(names[-1:])), STEPS, path)
    assert len(log.records) == len(STEPS)
    assert read_planning_log(path).records == log.records
    assert path.read_bytes().count(b"\n") == len(STEPS) + 1


def test_a_log_cut_in_its_first_line_is_begun_again(model, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"format": "dtdr-planning-run", "format_ver')
    run_selections(planner(model, ScriptedLLM(gold_names(STEPS))), STEPS, path)
    assert len(read_planning_log(path).records) == len(STEPS)


def test_a_log_holds_half_a_character(model, tmp_path):
    path = tmp_path / "run.jsonl"
    names = ["\ud83d", *gold_names(STEPS)[1:]]
    log = run_selections(planner(model, ScriptedLLM(names), select="greedy"), STEPS, path)
    assert next(iter(log))["answer"] == "\ud83d"
    assert read_planning_log(path).records == log.records


def test_a_log_of_plans_made_in_another_way_is_not_continued(model, tmp_path):
    path = tmp_path / "run.jsonl"
    plans = DATASET.demonstrations[:2]

    def run(**options):
        return run_plans(planner(model, ScriptedLLM(["end"] * 9), **options), plans, path)

    run()
    with pytest.raises(InputError, match="another max steps"):
        run(max_steps=3)
    with pytest.raises(InputError, match="another icl"):
        run(icl="none")
    with pytest.raises(InputError, match="another examples sha256"):
        run(demonstrations=DATASET.demonstrations[3:])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: ["{}"], "not a planning run log"),
        (lambda lines: [lines[0].replace('"format_version": 1', '"format_version": 7')], "version"),
        (lambda lines: [lines[0], "{}", *lines[2:]], "damaged"),
        (lambda lines: [lines[0], "oops", *lines[2:]], "damaged"),
    ],
)
def test_damaged_logs_name_file_and_line(model, tmp_path, damage, said):
    path = tmp_path / "run.jsonl"
    run_selections(planner(model, ScriptedLLM(["end"] * 20)), STEPS, path)
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")
    with pytest.raises(InputError, match=said):
        read_planning_log(path)


def test_samples_are_seeded_and_nested():
    found = DATASET.demonstrations
    assert choose_steps(found, 5) == choose_steps(found, 9)[:5]
    assert choose_steps(found, 9, seed=1) != choose_steps(found, 9)
    assert len(choose_steps(found)) == sum(len(item.plan) + 1 for item in found)
    assert [item.id for item in choose_plans(found, 3)] == [i.id for i in choose_plans(found)[:3]]


NOTE_TOOLS = tuple(Tool(name, "", (Parameter("note", "str"),)) for name in ("read", "write"))


def read_and_write(identifier, note):
    """A plan that reads a note and writes what it has read."""
    calls = (
        ToolCall("n7", "read", {"note": note}),
        ToolCall("n8", "write", {"note": {"$ref": "n7"}}),
    )
    return Demonstration(identifier, f"query {identifier}", Plan(calls))


def test_whole_plans_succeed_by_names_and_by_strict_arguments(tmp_path):
    demonstrations = [read_and_write(f"p{n}", "Weekly Report") for n in range(4)]
    model = create("random").fit(demonstrations, NOTE_TOOLS, **RANKER_ONLY)
    names = ["read", "write", "end"] * 3 + ["read", "end"]
    arguments = [
        *("note='Weekly Report'", "note=out_1"),
        *("note='weekly report.'", "note=out_1"),
        *("note='Holiday'", "note=out_1"),
        "note='Weekly Report'",
    ]
    llm = ScriptedLLM(names, arguments)
    log = run_plans(planner(model, llm), demonstrations, tmp_path / "run.jsonl")
    assert success_rate(log, "names").value == pytest.approx(0.75)
    assert success_rate(log, "strict").value == pytest.approx(0.25)
    again = read_planning_log(tmp_path / "run.jsonl")
    assert success_rate(again) == success_rate(log)


def test_along_the_gold_plan_a_mistake_does_not_change_the_next_prompt(tmp_path, model):
    item = DATASET.demonstrations[0]
    names = ["read_file", "weather", "find_contact", "send_mail", "end"]
    logs = {}
    for gold in (True, False):
        llm = ScriptedLLM(names)
        logs[gold] = run_plans(
            planner(model, llm), [item], tmp_path / f"{gold}.jsonl", gold_history=gold
        )
        (record,) = logs[gold]
        assert [call["tool"] for call in record["calls"]] == names[:4]
        third = [prompt for prompt in llm.prompts if prompt.cue == "Next function:"][2]
        assert ("summarize(" in third.variable) is gold
        assert ("weather(" in third.variable) is not gold
        assert success_rate(logs[gold], "names").value == 0
    right = ScriptedLLM([*item.plan.tools, "end"])
    made = planner(model, right).plan_along(item.query, item.plan.calls)
    assert made.stopped == "end"
    assert made.plan.tools == item.plan.tools
    with pytest.raises(InputError, match="another select"):
        run_plans(planner(model, right), [item], tmp_path / "True.jsonl")


def test_along_the_gold_plan_outputs_are_those_of_the_gold_calls():
    item = read_and_write("p", "Report")
    calls = item.plan.calls
    model = create("random").fit([item], NOTE_TOOLS, **RANKER_ONLY)
    # The first argument is wrong; the second prompt still shows the gold one, as out_1.
    llm = ScriptedLLM(["read", "write", "end"], ["note='Rapport'", "note=out_1"])
    made = planner(model, llm).plan_along("query", calls)
    assert made.plan.calls[1].arguments == {"note": {"$ref": "1"}}
    assert made.plan.is_isomorphic(item.plan)
    assert not made.plan.is_isomorphic(item.plan, arguments=True)
    assert any("out_1 = read(note='Report')" in prompt.text for prompt in llm.prompts)
    beyond = ScriptedLLM(["read", "write", "write"], ["note='Report'", "note=out_1", "note=out_2"])
    made = planner(model, beyond).plan_along("query", calls)
    assert (made.stopped, made.plan.tools) == ("step limit", ("read", "write", "write"))


def test_without_filled_parameters_functions_alone_are_compared(tmp_path, model):
    item = DATASET.demonstrations[0]
    assert any(item.plan.dependencies)
    llm = ScriptedLLM([*item.plan.tools, "end"])
    log = run_plans(planner(model, llm, fill="none"), [item], tmp_path / "run.jsonl")
    assert success_rate(log, "names").value == 1
    assert success_rate(log, "strict").value == 0


def test_a_plan_that_did_not_end_is_no_success(tmp_path, model):
    item = DATASET.demonstrations[2]
    llm = ScriptedLLM([*item.plan.tools, "fly"])
    log = run_plans(planner(model, llm), [item], tmp_path / "run.jsonl")
    assert success_rate(log, "names").value == 0


def test_the_interval_is_wilsons():
    found = proportion([True] * 9 + [False])
    assert (found.low, found.high) == pytest.approx((0.5958, 0.9821), abs=1e-4)
    assert proportion([True] * 5).high == pytest.approx(1)
    assert math.isnan(proportion([]).value)


def test_logs_are_plain_json_without_folders(model, tmp_path):
    path = tmp_path / "run.jsonl"
    llm = ScriptedLLM(["end"] * 20)
    llm.name = f"gguf:{tmp_path}/model.gguf"
    run_selections(planner(model, llm), STEPS, path)
    header = json.loads(path.read_text().splitlines()[0])
    assert header["llm"] == "gguf:model.gguf"
    assert str(tmp_path) not in path.read_text()
