import json
from dataclasses import replace

import pytest

from dtdr.agents import ToolPolicy
from dtdr.agents.advice import WAYS, Cost, Segment, Sizes, advise, send, unused_tools, verdict
from dtdr.cli import run
from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from tests import small_data
from tests.integrations.tools import shared_model

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
    cost = advise(shared_model(), [demonstration], sizes=sizes)[0]

    call = len('{"name": "weather", "input": {}}') // 4 + 50
    first = 6 * 30 + 1000 + 10
    assert cost.tokens_per_run == first + first + call
    assert cost.cold_paid_tokens_per_run == pytest.approx(first + call + 0.1 * first)
    assert (cost.tools_shown, cost.next_shown) == (6, 1.0)


def test_warm_is_cold_and_the_start_that_runs_share():
    first, second = (
        Demonstration(name, name * 40, Plan((ToolCall("1", "weather", {}),))) for name in "ab"
    )
    sizes = Sizes(1000, 50, 30)
    cost = advise(shared_model(), [first, second], sizes=sizes)[0]
    saved = cost.cold_paid_tokens_per_run - cost.warm_paid_tokens_per_run
    assert saved == pytest.approx(0.9 * (6 * 30 + 1000) / 2)


def test_the_share_that_filtering_shows_is_that_of_the_calls_of_the_next_message():
    costs = by_name(advise(shared_model(), RUNS, policy=ToolPolicy(top_k=2)))
    wanted = hits = 0
    for item in RUNS:
        for position, call in enumerate(item.plan.calls):
            history = item.plan.tools[:position]
            best = [name for name in shared_model().rank(item.query, history).tools if name != END][
                :2
            ]
            wanted += 1
            hits += call.tool in {*best, *history}
    assert costs["filtered, each step"].next_shown == pytest.approx(hits / wanted)
    assert costs["allowed_tools OpenAI"].next_shown == pytest.approx(hits / wanted)
    assert costs["filtered, growing"].next_shown >= hits / wanted
    loaded = costs["defer_loading Anthropic"].next_shown
    assert loaded == costs["filtered, growing"].next_shown
    assert costs["all tools"].next_shown == 1.0
    everything, allowed = costs["all tools"], costs["allowed_tools OpenAI"]
    assert allowed.tokens_per_run == everything.tokens_per_run
    assert allowed.cold_paid_tokens_per_run == everything.cold_paid_tokens_per_run
    assert allowed.tools_shown < everything.tools_shown


def test_parallel_calls_are_one_request_whose_every_tool_must_be_shown():
    sizes = Sizes(1000, 50, 30)
    names = ("weather", "find_contact", "send_mail")
    calls = [ToolCall(name, name, {}, step=min(at, 1)) for at, name in enumerate(names)]
    parallel = Demonstration("d", RUNS[1].query, Plan(tuple(calls)))
    (everything, filtered, *_) = advise(
        shared_model(), [parallel], policy=ToolPolicy(top_k=1), sizes=sizes
    )
    head = 6 * 30 + 1000 - (-len(RUNS[1].query) // 4)
    made = [len(json.dumps({"name": name, "input": {}})) for name in names]
    tokens = [-(-size // 4) + 50 for size in made]
    assert everything.tokens_per_run == 3 * head + 2 * tokens[0] + tokens[1] + tokens[2]
    assert everything.next_shown == 1.0
    assert filtered.next_shown < 0.7


def test_the_verdict_names_what_is_cheapest_with_and_without_a_cache():
    def cost(way, tokens, warm, share):
        return Cost(way, 50.0, tokens, tokens, warm, share, 0.2)

    costs = [
        cost("all tools", 9000.0, 900.0, 1.0),
        cost("filtered, each step", 3000.0, 1500.0, 0.97),
        cost("filtered, growing", 2000.0, 1400.0, 0.85),
        cost("deferred, searched", 4000.0, 1200.0, 0.0),
    ]
    assert verdict(costs) == (
        "For 50 tools: with a prompt cache, show all tools (900 tokens a run); without one, filter "
        "them at each step (3,000 instead of 9,000 tokens a run, 97.0% of the next tools shown)."
    )
    costs[3] = cost("deferred, searched", 1000.0, 100.0, 0.0)
    assert "let dtdr answer the agent's searches (100 instead of 900" in verdict(costs)
    assert "0.2 searches a run" in verdict(costs)


def test_an_agent_searches_for_each_tool_that_is_not_shown_once_a_run():
    costs = by_name(advise(shared_model(), RUNS, policy=ToolPolicy(top_k=1)))
    deferred = costs["deferred, searched"]
    assert deferred.searches_per_run == sum(len(set(item.plan.tools)) for item in RUNS) / len(RUNS)
    assert costs["filtered, growing"].searches_per_run < deferred.searches_per_run
    assert costs["all tools"].searches_per_run == 0


def test_tools_that_the_model_does_not_know_are_always_shown():
    costs = advise(shared_model(), RUNS, [Tool("brand_new")], policy=ToolPolicy(top_k=1))
    assert by_name(costs)["all tools"].tools_shown == 7
    unseen = Demonstration("d", "Do it", Plan((ToolCall("1", "never seen", {}),)))
    for cost in advise(shared_model(), [unseen], policy=ToolPolicy(top_k=1))[:-1]:
        assert cost.next_shown == 1.0


def test_no_runs_and_negative_sizes_are_refused():
    with pytest.raises(InputError, match="no runs to count"):
        advise(shared_model(), [])
    with pytest.raises(InputError, match="result_tokens is -1"):
        Sizes(result_tokens=-1)
    with pytest.raises(InputError, match="no calibrated coverage"):
        advise(shared_model(), RUNS, policy=ToolPolicy(coverage=0.9))


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    shared_model().save(tmp_path / "model")
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
    assert "For 6 tools: with a prompt cache, " in out


def test_json_holds_what_the_table_shows(model, runs, capsys):
    arguments = ["--top-k", "2", "--json"]
    assert run(["advise", str(model), str(runs), *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 12
    assert [way["way"] for way in found["ways"]] == [way.name for way in WAYS]
    assert found["ways"][0]["next_shown"] == 1.0
    assert found["ways"][0]["cold_paid_tokens_per_run"] < found["ways"][0]["tokens_per_run"]
    assert found["ways"][1]["tools_shown"] < 6


def test_tools_that_no_run_calls_are_named_with_what_they_cost(model, tmp_path, capsys):
    idle = (Tool("idle_small", "Does it"), Tool("idle_large", "Does a great deal " * 20))
    runs = [replace(RUNS[0], before=(ToolCall("x", "weather"),)), *RUNS[3:6:3]]
    unused = unused_tools(shared_model(), runs, idle)
    assert next(iter(unused)) == "idle_large"
    assert "idle_small" in unused
    assert "weather" not in unused  # it was called in an earlier turn
    assert "send_mail" not in unused
    assert set(unused_tools(shared_model(), runs, idle, Sizes(tool_tokens=7)).values()) == {7}
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
