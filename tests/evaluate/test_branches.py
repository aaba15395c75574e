"""Branches of an agent whose rules are known, and how often a ranking follows them."""

import json
from datetime import date, timedelta

import numpy as np
import pytest

from dtdr import Demonstration, Plan, ToolCall
from dtdr.cli import run as run_command
from dtdr.cli.evaluation import branches_table
from dtdr.evaluate.branches import find_branches
from dtdr.evaluate.known_values import round_threshold
from dtdr.serve.studio.scores import Scores
from tests.runs import make_log, make_step

TOOLS = ("approve", "get_claim", "get_limit", "letter", "mail", "pay", "remind", "end")
CALLS = 4


def make_run(number, rng, *, is_random=False):
    """A claim is read, then its limit; amounts from 1,000 on are approved, those above the limit
    paid; old claims get a reminder; the customer gets a letter or a mail.
    """
    amount, limit = (round(float(rng.uniform(200, 2_000)), 2) for _ in range(2))
    days, channel = int(rng.integers(90)), str(rng.choice(["letter", "mail"]))
    claim = {
        "claim": {"amount": amount},
        "opened": "2025-03-01",
        "due": (date(2025, 3, 1) + timedelta(days=days)).isoformat(),
        "contact": {"channel": channel},
    }
    if is_random:
        amount, limit, days, channel = 500, 900, 0, str(rng.choice(["letter", "mail"]))
    tools = [
        tool for tool, is_due in (("approve", amount >= 1_000), ("pay", amount > limit)) if is_due
    ]
    tools += [*(["remind"] if days > 30 else []), channel]
    calls = [
        ToolCall("1", "get_claim", {}, claim, "ok", 1),
        ToolCall("2", "get_limit", {}, {"limit": limit}, "ok", 2),
        *(ToolCall(str(at), tool, {}, "done", "ok", at) for at, tool in enumerate(tools, 3)),
    ]
    return Demonstration(f"run{number}", "Settle it", Plan(tuple(calls)))


def log_of(runs, best):
    """A log where ``best`` names the tool that is ranked first before a call of this tool."""
    steps = []
    for item in runs:
        for step, tool in enumerate((*item.plan.tools, "end")):
            first = TOOLS.index(best(item, tool))
            ranking = [first, *(at for at in range(len(TOOLS)) if at != first)]
            steps.append(
                make_step(ranking, [tool], plan=item.id, step=step, plan_length=len(item.plan))
            )
    return make_log(steps, tools=TOOLS)


def generate(count, *, is_random=False):
    rng = np.random.default_rng(0)
    return [make_run(number, rng, is_random=is_random) for number in range(count)]


def test_known_rules_are_named_with_their_values_and_counted():
    runs = generate(120)
    perfect = find_branches(log_of(runs, lambda _, tool: tool), runs)
    conditions = {item.tool: item.condition for item in perfect}
    assert conditions == {
        "approve": "get_claim claim.amount >= 1,000",
        "pay": "get_claim claim.amount >= get_limit limit",
        "remind": "get_claim due >= 2025-04-01",
        "letter": "get_claim contact.channel = letter",
        "mail": "get_claim contact.channel = mail",
    }
    for item in perfect:
        taken = sum(item.tool in run.plan.tools for run in runs)
        assert (item.agent, item.model, item.agent_otherwise) == (taken, taken, 0)
        assert item.cases + item.other_cases == len(runs)
        assert item.model_otherwise == 0


def test_the_branch_that_a_ranking_misses_most_comes_first():
    runs = generate(120)

    def best(item, tool):
        if tool == "approve":
            return "pay"
        return "letter" if tool == "mail" and int(item.id[3:]) % 4 == 0 else tool

    log = log_of(runs, best)
    branches = find_branches(log, runs)
    assert [item.tool for item in branches[:2]] == ["approve", "mail"]
    assert branches[0].model == 0
    assert 0 < branches[1].model < branches[1].agent
    letters = next(item for item in branches if item.tool == "letter")
    assert letters.model_otherwise == branches[1].agent - branches[1].model
    assert Scores(log, runs).branches == branches  # as the studio shows them
    table = branches_table(branches, "Branches", 1)
    (row,) = table.cells()
    assert [cell.text for cell in row][:2] == ["get_claim claim.amount >= 1,000", "approve"]
    assert row[3].text == f"0 of {branches[0].agent}"
    assert f"{len(branches) - 1} more" in table.caption


def test_values_that_decide_nothing_are_no_branches():
    runs = generate(120, is_random=True)
    branches = find_branches(log_of(runs, lambda _, tool: tool), runs)
    assert branches == []
    assert "No value" in branches_table(branches, "Branches").caption


def test_a_task_that_is_repeated_is_one_case():
    run = generate(40)[0]
    same = [Demonstration(f"run{at}", run.query, run.plan, group="a") for at in range(40)]
    other = [item for item in generate(80)[40:] if "remind" not in item.plan.tools]
    runs = [*same, *other]
    branches = find_branches(log_of(runs, lambda _, tool: tool), runs)
    assert all(item.agent != 40 for item in branches)


def test_a_value_counts_until_its_tool_is_called_again_in_later_turns_too():
    runs = []
    for at in range(60):
        state = ["open", "closed"][at % 2]
        call = ToolCall("1", "get_claim", {}, {"state": state}, "ok", 1)
        runs.append(Demonstration(f"c{at}-1", "Look it up", Plan((call,))))
        then = ToolCall("2", "remind" if state == "open" else "pay", {}, "done", "ok", 2)
        plan = Plan((then,), (), (call,))
        runs.append(Demonstration(f"c{at}-2", "Go on", plan, before=(call,)))
    branches = find_branches(log_of(runs, lambda _, tool: tool), runs)
    found = {item.tool: (item.condition, item.agent, item.cases) for item in branches}
    assert found["remind"] == ("get_claim state = open", 30, 30)
    assert found["pay"] == ("get_claim state = closed", 30, 30)


@pytest.mark.parametrize(
    ("last", "beyond", "threshold"),
    [(10_240, 9_870, 10_000), (31, 30, 31), (-0.5, 3, 0), (0.71, 0.68, 0.7), (2, 3, 2)],
)
def test_thresholds_are_round_and_separate_the_same_values(last, beyond, threshold):
    assert round_threshold(last, beyond) == threshold


def test_evaluate_shows_them_and_refuses_runs_without_outputs(tmp_path, capsys):
    path = tmp_path / "demonstrations.jsonl"
    runs = generate(60)
    path.write_text("".join(json.dumps(item.to_dict()) + "\n" for item in runs), encoding="utf-8")
    command = ["evaluate", str(path), "--retriever", "markov-1", "--folds", "2"]
    assert run_command([*command, "--show", "branches", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert "get_claim claim.amount >= 1,000" in {item["condition"] for item in result["branches"]}
    assert run_command([*command, "--show", "branches"]) == 0
    assert "Branches of the agent, ranked by markov-1" in capsys.readouterr().out
    bare = [{"id": item.id, "query": "Settle", "calls": list(item.plan.tools)} for item in runs]
    path.write_text("".join(json.dumps(item) + "\n" for item in bare), encoding="utf-8")
    assert run_command([*command, "--show", "branches"]) == 2
    assert "have no outputs" in capsys.readouterr().err
