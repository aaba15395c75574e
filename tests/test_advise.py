import json
from dataclasses import replace

import pytest

import dtdr
from dtdr.agents import ToolPolicy
from dtdr.agents.advice import WAYS, Segment, Sizes, advise, send, unused_tools
from dtdr.cli import run
from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from tests import small_data

MODEL = dtdr.fit(small_data.dataset(36).demonstrations, small_data.TOOLS, ranker="dtdr-c")
RUNS = [small_data.demonstration(number) for number in range(24, 36)]


def prompt(*parts):
    """``"a10"`` is a segment of ten tokens; ``"a10|"`` has a mark behind it."""
    return [Segment(part[0], int(part[1:].rstrip("|")), part.endswith("|")) for part in parts]


# -- the cache -----------------------------------------------------------------------------------


def test_a_request_reads_the_longest_prefix_up_to_a_mark_that_was_sent_before():
    cache: set[int] = set()
    assert send(prompt("a2000", "b20|", "c30"), cache) == (2050, 0)
    assert send(prompt("a2000", "d5|"), cache) == (2005, 0)
    assert send(prompt("a2000", "b20|", "c30|"), cache) == (2050, 2020)
    assert send(prompt("a2000", "b20|", "c30|", "e1|"), cache) == (2051, 2050)
    assert send(prompt("b20|", "a2000|"), cache) == (2020, 0)


def test_a_prefix_below_the_minimum_is_never_cached():
    cache: set[int] = set()
    for _ in range(2):
        assert send(prompt("a1023|"), cache) == (1023, 0)
    assert send(prompt("a1023|", "b1|"), cache) == (1024, 0)
    assert send(prompt("a1023|", "b1|"), cache) == (1024, 1024)


# -- the comparison ------------------------------------------------------------------------------


def by_name(costs):
    return {cost.way: cost for cost in costs}


def test_all_tools_cost_what_a_calculation_by_hand_gives():
    demonstration = Demonstration("d", "a" * 40, Plan((ToolCall("1", "weather", {}),)))
    sizes = Sizes(1000, 50, 30)
    cost = advise(MODEL, [demonstration], sizes=sizes)[0]

    call = len('{"name": "weather", "input": {}}') // 4 + 50
    first = 6 * 30 + 1000 + 10
    assert cost.tokens_per_run == first + first + call
    assert cost.cold_paid_tokens_per_run == pytest.approx(first + call + 0.1 * first)
    assert (cost.tools_shown, cost.recall) == (6, 1.0)


def test_warm_is_cold_and_the_start_that_runs_share():
    first, second = (
        Demonstration(name, name * 40, Plan((ToolCall("1", "weather", {}),))) for name in "ab"
    )
    sizes = Sizes(1000, 50, 30)
    cost = advise(MODEL, [first, second], sizes=sizes)[0]
    saved = cost.cold_paid_tokens_per_run - cost.warm_paid_tokens_per_run
    assert saved == pytest.approx(0.9 * (6 * 30 + 1000) / 2)


def test_the_recall_of_filtering_is_that_of_the_ranking():
    costs = by_name(advise(MODEL, RUNS, policy=ToolPolicy(top_k=2)))
    shares = []
    for item in RUNS:
        for step in item.plan.steps():
            if step.acceptable == {END}:
                continue
            ranking = MODEL.rank(item.query, step.history)
            shown = set([name for name in ranking.tools if name != END][:2]) | set(step.history)
            shares.append(len(step.acceptable & shown) / len(step.acceptable))
    expected = sum(shares) / len(shares)
    assert costs["filtered, each step"].recall == pytest.approx(expected)
    hits = sum(1 for share in shares if share) / len(shares)
    assert costs["filtered, each step"].hit == pytest.approx(hits)
    assert costs["allowed_tools OpenAI"].recall == pytest.approx(expected)
    assert costs["filtered, growing"].recall >= expected
    assert costs["defer_loading Anthropic"].recall == costs["filtered, growing"].recall
    assert costs["all tools"].recall == 1.0
    every, allowed = costs["all tools"], costs["allowed_tools OpenAI"]
    assert allowed.tokens_per_run == every.tokens_per_run
    assert allowed.cold_paid_tokens_per_run == every.cold_paid_tokens_per_run
    assert allowed.tools_shown < every.tools_shown


def test_an_agent_searches_for_each_tool_that_is_not_shown_once_a_run():
    costs = by_name(advise(MODEL, RUNS, policy=ToolPolicy(top_k=1)))
    deferred = costs["deferred, searched"]
    assert deferred.searches_per_run == sum(len(set(item.plan.tools)) for item in RUNS) / len(RUNS)
    assert costs["filtered, growing"].searches_per_run < deferred.searches_per_run
    assert costs["all tools"].searches_per_run == 0


def test_tools_that_the_model_does_not_know_are_always_shown():
    costs = advise(MODEL, RUNS, [Tool("brand_new")], policy=ToolPolicy(top_k=1))
    assert by_name(costs)["all tools"].tools_shown == 7
    unseen = Demonstration("d", "Do it", Plan((ToolCall("1", "never seen", {}),)))
    for cost in advise(MODEL, [unseen], policy=ToolPolicy(top_k=1))[:-1]:
        assert cost.recall == 1.0


def test_no_runs_and_negative_sizes_are_refused():
    with pytest.raises(InputError, match="no runs to count"):
        advise(MODEL, [])
    with pytest.raises(InputError, match="result_tokens is -1"):
        Sizes(result_tokens=-1)
    with pytest.raises(InputError, match="no calibrated coverage"):
        advise(MODEL, RUNS, policy=ToolPolicy(coverage=0.9))


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    MODEL.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def runs(tmp_path):
    return small_data.write(tmp_path, 12)


def test_the_table_fits_and_says_what_is_cheapest(model, runs, capsys):
    assert run(["advise", str(model), str(runs)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    for way in WAYS:
        assert way.name in out
    assert "Cold: " in out
    assert "Warm: " in out


def test_json_holds_what_the_table_shows(model, runs, capsys):
    arguments = ["--top-k", "2", "--json"]
    assert run(["advise", str(model), str(runs), *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 12
    assert [way["way"] for way in found["ways"]] == [way.name for way in WAYS]
    assert found["ways"][0]["recall"] == 1.0
    assert found["ways"][0]["cold_paid_tokens_per_run"] < found["ways"][0]["tokens_per_run"]
    assert found["ways"][1]["tools_shown"] < 6


def test_tools_that_no_run_calls_are_named_with_what_they_cost(model, tmp_path, capsys):
    idle = (Tool("idle_small", "Does it"), Tool("idle_large", "Does a great deal " * 20))
    runs = [replace(RUNS[0], before=(ToolCall("x", "weather"),)), *RUNS[3:6:3]]
    unused = unused_tools(MODEL, runs, idle)
    assert next(iter(unused)) == "idle_large"
    assert "idle_small" in unused
    assert "weather" not in unused  # it was called in an earlier turn
    assert "send_mail" not in unused
    assert set(unused_tools(MODEL, runs, idle, Sizes(tool_tokens=7)).values()) == {7}
    lines = [json.dumps(item.to_dict()) for item in RUNS]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    listed = json.dumps([tool.to_dict() for tool in (*small_data.TOOLS, *idle)])
    (tmp_path / "tools.json").write_text(listed, encoding="utf-8")
    given = ["advise", str(model), str(tmp_path / "runs.jsonl")]
    assert run([*given, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["unused_tools"]) == ["idle_large", "idle_small"]
    assert run(given) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "None of 12 runs calls idle_large, idle_small." in out


def test_runs_that_the_model_learned_from_are_pointed_out(model, tmp_path, capsys):
    seen = small_data.write(tmp_path, 36)
    assert run(["advise", str(model), str(seen)]) == 0
    assert "learned from these very runs" in capsys.readouterr().err
    assert run(["advise", str(model), str(seen), "--split", "default"]) == 0
    assert "learned from these very runs" in capsys.readouterr().err
    unseen = small_data.write(tmp_path, 12)
    assert run(["advise", str(model), str(unseen)]) == 0
    assert capsys.readouterr().err == ""
