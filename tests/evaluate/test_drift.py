"""What two sets of runs differ in, and whether that is chance."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dtdr import Demonstration, Plan, ToolCall
from dtdr.cli import run
from dtdr.errors import InputError
from dtdr.evaluate.drift import compare_runs
from synthetic_runs import generate


def runs(seed, count=120):
    return list(generate(count, seed=seed))


def shortened(some):
    """Every second run that has more than one call loses its last."""
    for number, item in enumerate(some):
        record = item.to_dict()
        if number % 2 == 0 and len(record["calls"]) > 1:
            record["calls"] = record["calls"][:-1]
            record.pop("links", None)
        yield Demonstration.from_dict(record)


def named(drift, *kinds):
    return {change.name: change for change in drift.of_kind(*kinds)}


def test_p_values_agree_with_scipy():
    from scipy import stats

    before, after = runs(1, 60), list(shortened(runs(5, 50)))
    drift = compare_runs(before, after, permutations=4_000)
    lengths = [[len(item.plan) for item in side] for side in (before, after)]
    expected = stats.permutation_test(
        lengths,
        lambda x, y, axis: np.mean(y, axis) - np.mean(x, axis),
        vectorized=True,
        n_resamples=4_000,
        rng=0,
    )
    calls = named(drift, "mean")["calls"]
    assert not drift.paired
    assert calls.change == pytest.approx(expected.statistic)
    assert calls.p_value == pytest.approx(expected.pvalue, abs=0.03)


def test_distances_are_total_variation():
    before, after = runs(1), runs(2)
    shares = []
    for side in (before, after):
        tools = [tool for item in side for tool in item.plan.tools]
        shares.append({tool: tools.count(tool) / len(tools) for tool in tools})
    names = shares[0].keys() | shares[1].keys()
    expected = sum(abs(shares[0].get(n, 0) - shares[1].get(n, 0)) for n in names) / 2
    found = named(compare_runs(before, after, permutations=99), "distance")["tool_mix"]
    assert found.change == pytest.approx(expected)
    assert found.before is None


def test_the_same_agent_on_other_queries_has_not_changed():
    drift = compare_runs(runs(1, 300), runs(2, 300), permutations=1_000)
    assert [change.name for change in drift.changes if (change.adjusted or 1) < 0.01] == []


def test_a_change_on_the_same_queries_is_found_pair_by_pair():
    before = [replace(item, query=f"{item.id}: {item.query}") for item in runs(1, 60)]
    after = list(shortened(before))[::-1]
    others = [replace(item, id=f"x{item.id}") for item in after]  # as import names changed runs
    for paired in (after, others):
        drift = compare_runs(before, paired, permutations=2_000)
        assert drift.paired
        found = named(drift, "mean", "distance")
        assert found["calls"].adjusted < 0.01
        assert found["transitions"].adjusted < 0.01
    # Unpaired, chance among other queries hides it.
    others = [replace(item, query=f"{item.query}.") for item in others]
    assert named(compare_runs(before, others, permutations=500), "mean")["calls"].p_value > 0.02


def test_failures_and_outputs_count():
    sent = ToolCall("1", "send", {"to": "ann"})
    failed = ToolCall("1", "send", {"to": "bob"}, "no such person " * 9, "error")
    again = ToolCall("2", "send", {"to": "bob", "by": {"$ref": "1"}})
    before = [Demonstration(str(i), "Mail Ann", Plan((sent,))) for i in range(8)]
    plan = Plan((failed, again))
    after = [replace(item, plan=plan, outcome="failure") for item in before]
    drift = compare_runs(before, after, permutations=999)
    found = named(drift, "mean", "tool")
    assert (found["failed_runs"].before, found["failed_runs"].after) == (0, 1)
    assert found["failed_calls"].after == 1
    assert found["tokens"].change > 30
    assert found["send"].change == 1
    assert {change.name: (change.before, change.after) for change in drift.of_kind("source")} == {
        "query": (1, 0),
        "other": (0, pytest.approx(1 / 3)),
        "output": (0, pytest.approx(1 / 3)),
        "argument": (0, pytest.approx(1 / 3)),
    }
    assert named(drift, "transition")["send → send"].after == pytest.approx(1 / 3)
    assert all(change.p_value == pytest.approx(2 / 256, abs=0.012) for change in found.values())


def test_results_are_the_same_for_one_seed():
    first, second = (compare_runs(runs(1), runs(2), seed=7, permutations=200) for _ in range(2))
    assert first == second
    assert first != compare_runs(runs(1), runs(2), seed=8, permutations=200)


def test_no_run_on_one_side_is_an_error():
    with pytest.raises(InputError, match="no run after"):
        compare_runs(runs(1, 3), [])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drift")
    before = runs(1, 80)
    sides = {"before": before, "after": list(shortened(before)), "other": runs(2, 80)}
    for name, side in sides.items():
        lines = [json.dumps(item.to_dict()) + "\n" for item in side]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return [str(folder / f"{name}.jsonl") for name in sides]


def test_a_limit_that_is_exceeded_exits_with_1_and_says_so(files, capsys):
    options = ["--permutations", "999", "--limit"]
    assert run(["compare-runs", *files[:2], *options, "calls=5%"]) == 1
    printed = capsys.readouterr()
    assert "calls changed by -" in printed.err
    assert "limit is 5%" in printed.err
    assert run(["compare-runs", *files[:2], *options, "calls=90%", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exceeded"] == []
    # A change by chance is none, unless limits alone are asked for.
    chance = ["compare-runs", files[0], files[2], *options, "tool_mix=0.01"]
    assert run(chance) == 0
    assert run([*chance, "--alpha", "1"]) == 1


def test_the_tables_fit_100_columns(cli, files):
    shown = cli("compare-runs", *files[:2], "--permutations", "199")
    assert shown.err == ""
    assert "80 runs before, 80 after; the same queries" in shown.table()


def test_tools_that_only_one_side_calls_come_first():
    def side(tools):
        records = [{"id": str(at), "query": "go", "calls": calls} for at, calls in enumerate(tools)]
        return [Demonstration.from_dict(record) for record in records]

    before = side([["look", "refund"]] * 6 + [["look"] * 3] * 24)
    drift = compare_runs(before, side([["look"]] * 29 + [["look", "void"]]), permutations=199)
    found = [(one.name, one.before, one.after) for one in drift.of_kind("tool")]
    assert found[:2] == [("refund", 6 / 30, 0), ("void", 0, pytest.approx(1 / 30))]
    assert found[2][0] == "look"
    assert [one.p_value is None for one in drift.of_kind("tool")] == [False, True, False]
