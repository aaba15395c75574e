"""Which tool given a call, causes of misses, and what another run of the same task would tell."""

import pytest

from dtdr import Demonstration, Plan, ToolCall
from dtdr.evaluate.metrics import by_plan, mean_score
from dtdr.evaluate.next_calls import (
    CAUSES,
    agreement,
    find_causes,
    next_call_tables,
    score_next_calls,
)
from tests.runs import TOOLS, make_log, make_step

ALPHA, BETA, GAMMA, DELTA, END = range(len(TOOLS))


def plan_steps():
    """A plan alpha, beta, alpha and its end, each ranked wrong for another cause but the first."""
    rankings = {
        (ALPHA, END, BETA, GAMMA, DELTA): "alpha",
        (END, BETA, ALPHA, GAMMA, DELTA): "beta",
        (BETA, GAMMA, END, ALPHA, DELTA): "alpha",
        (DELTA, END, ALPHA, BETA, GAMMA): "end",
    }
    return [
        make_step([*ranking], [tool], plan="t-1", step=step, plan_length=3)
        for step, (ranking, tool) in enumerate(rankings.items())
    ]


def test_the_end_is_set_aside_where_a_call_is_made():
    log = make_log(plan_steps())
    assert mean_score(log, "tool_top1") == pytest.approx(2 / 3)
    assert mean_score(log, "tool_recall@1") == pytest.approx(2 / 3)
    assert mean_score(log, "tool_recall@3") == 1
    assert by_plan(log, "tool_top1")["t-1"].steps == 3
    scores = score_next_calls(log)
    assert scores.end_auroc == pytest.approx(1 / 2)  # above two of three, tied with one
    assert sum(scores.causes.values()) == pytest.approx(1)


def test_each_miss_has_one_cause():
    steps = plan_steps()
    assert find_causes(make_log(steps)) == ["right", "ended_early", "repeated", "end_missed"]
    later = make_step([BETA, ALPHA, GAMMA, DELTA, END], ["alpha"], plan="t-2", plan_length=2)
    other = make_step([GAMMA, BETA, ALPHA, DELTA, END], ["beta"], plan="t-2", step=1, plan_length=2)
    assert find_causes(make_log([later, other])) == ["comes_later", "other"]
    new = {**later, "is_new": True}
    assert find_causes(make_log([new, other])) == ["never_called", "other"]
    assert score_next_calls(make_log([new, other])).new_tools == 0.5
    assert next(iter(CAUSES)) == "right"


def run_of(identifier, tools):
    calls = tuple(ToolCall(str(at), tool, step=at) for at, tool in enumerate(tools))
    return Demonstration(identifier, "do it", Plan(calls), group="task")


def test_another_run_of_the_task_is_right_where_it_went_the_same_way():
    runs = [run_of("t-1", ["alpha", "beta", "alpha"]), run_of("u-1", ["alpha", "beta"])]
    found = agreement(make_log(plan_steps()), runs)
    assert found is not None
    assert found.known == pytest.approx(3 / 4)
    assert found.other_run == pytest.approx(2 / 3)
    assert found.model == pytest.approx(1 / 3)
    scores = [score_next_calls(make_log(plan_steps()))]
    table, _ = next_call_tables([("x", scores, [found])])
    assert [cell.text for cell in table.cells()[0][-3:]] == ["0.667", "0.333", "0.500"]
    assert "at 75% of the steps" in table.caption
    assert agreement(make_log(plan_steps()), runs[:1]) is None
