import io
import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtdr
from dtdr.calls import END, ToolCall
from dtdr.cli import run
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError, MissingExtraError
from dtdr.evaluation.routing import StepConfidences
from dtdr.integrations import ToolPolicy
from dtdr.integrations.advice import WAYS, Sizes, Way, advise, unused_tools
from dtdr.integrations.costs import PRESETS, Prices, PromptCache, Segment, Usage, prices_of
from dtdr.integrations.renames import describe_pairs, suggest_renames
from dtdr.plan import Plan
from dtdr.tools import Tool
from tests import small_data
from tests.command_line import is_one_sentence
from tests.helpers import smoke_rows

ANY = Prices("any", 10.0, 1.0, 10.0, minimum=0)
MARKED = replace(ANY, breakpoints=True, write=12.5)
RETRIEVER = dtdr.fit(small_data.dataset(24).demonstrations, small_data.TOOLS, retriever="dtdr-c")
RUNS = [small_data.demonstration(number) for number in range(24, 36)]


def prompt(*parts):
    """``"a10"`` is a segment of ten tokens; ``"a10|"`` has a mark behind it."""
    return [Segment(part[0], int(part[1:].rstrip("|")), part.endswith("|")) for part in parts]


# -- the cache -----------------------------------------------------------------------------------


def test_a_request_reads_the_longest_prefix_that_was_sent_before():
    cache = PromptCache(ANY)
    assert cache.send(prompt("a10", "b20", "c30")) == Usage(60, 0, 60)
    assert cache.send(prompt("a10", "b20", "d5")) == Usage(35, 30, 5)
    assert cache.send(prompt("b20", "a10")) == Usage(30, 0, 30)
    assert cache.send(prompt("a10", "b20", "c30", "e1")) == Usage(61, 60, 1)


def test_with_marks_a_prefix_is_cached_up_to_a_mark_only():
    cache = PromptCache(MARKED)
    assert cache.send(prompt("a10", "b20|", "c30")) == Usage(60, 0, 30)
    assert cache.send(prompt("a10", "d5|")) == Usage(15, 0, 15)
    assert cache.send(prompt("a10", "b20|", "c30|")) == Usage(60, 30, 30)
    assert cache.send(prompt("a10", "b20|", "c30|")) == Usage(60, 60, 0)


def test_a_prefix_below_the_minimum_is_never_cached():
    cache = PromptCache(replace(ANY, minimum=50))
    assert cache.send(prompt("a49")) == Usage(49, 0, 0)
    assert cache.send(prompt("a49")) == Usage(49, 0, 0)
    assert cache.send(prompt("a49", "b1")) == Usage(50, 0, 50)
    assert cache.send(prompt("a49", "b1")) == Usage(50, 50, 0)


def test_hits_are_counted_in_steps():
    cache = PromptCache(replace(ANY, minimum=128, step=128))
    cache.send(prompt("a300"))
    assert cache.send(prompt("a300", "b10")) == Usage(310, 256, 54)


def test_dollars_are_those_of_a_million_tokens():
    assert MARKED.dollars(Usage(3_000_000, 1_000_000, 1_000_000)) == 10 + 1 + 12.5


segments = st.lists(
    st.builds(Segment, st.integers(0, 3), st.just(7), st.booleans()), min_size=1, max_size=6
)


@given(st.lists(segments, min_size=1, max_size=5), st.booleans(), st.sampled_from([0, 10, 20]))
def test_no_token_is_counted_twice_and_a_repeated_request_is_read(prompts, marks, minimum):
    cache = PromptCache(replace(ANY, breakpoints=marks, minimum=minimum))
    for sent in prompts:
        first = cache.send(sent)
        assert first.tokens == sum(segment.tokens for segment in sent)
        assert 0 <= first.read <= first.read + first.written <= first.tokens
        again = cache.send(sent)
        assert again.read == first.read + first.written
        assert again.written == 0


# -- prices --------------------------------------------------------------------------------------


def test_every_preset_names_its_source_and_its_date():
    for preset in PRESETS.values():
        assert "2026" in preset.source
        assert preset.read < preset.uncached <= preset.write
        assert preset.minimum >= 1024


def test_prices_of_a_model_come_from_genai_prices():
    pytest.importorskip("genai_prices", reason="genai-prices is not installed")
    for preset in PRESETS.values():
        found = prices_of(preset.name)
        assert (found.minimum, found.breakpoints) == (preset.minimum, preset.breakpoints)
        assert found.source.startswith("genai-prices ")
    sonnet = prices_of("claude-sonnet-4-5")
    assert (sonnet.uncached, sonnet.read, sonnet.write) == (3.0, 0.3, 3.75)
    assert prices_of("gpt-5").write == prices_of("gpt-5").uncached == 1.25


def test_an_unknown_model_is_an_error():
    pytest.importorskip("genai_prices", reason="genai-prices is not installed")
    with pytest.raises(InputError, match="unknown provider or model 'claude-nonnet'"):
        prices_of("claude-nonnet")


def test_without_genai_prices_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    with pytest.raises(MissingExtraError, match=r"dtdr\[prices\]"):
        prices_of("gpt-5")
    assert prices_of("openai") == PRESETS["openai"]


@pytest.mark.parametrize("wrong", [{"read": -1.0}, {"write": float("nan")}, {"minimum": -1}])
def test_prices_below_zero_are_refused(wrong):
    with pytest.raises(InputError, match="at least 0"):
        replace(ANY, **wrong)


# -- the comparison ------------------------------------------------------------------------------


def by_name(costs):
    return {cost.way.name: cost for cost in costs}


def test_all_tools_cost_what_a_calculation_by_hand_gives():
    demonstration = Demonstration("d", "a" * 40, Plan((ToolCall("1", "weather", {}),)))
    sizes = Sizes(system=100, result=50, tool=30)
    (cost,) = advise(RETRIEVER, [demonstration], prices=ANY, sizes=sizes, ways=WAYS[:1])

    call = len('{"name": "weather", "input": {}}') // 4 + 50
    first = 6 * 30 + 100 + 10
    assert cost.tokens == first + first + call
    assert cost.cold_read == first
    assert cost.cold_dollars == pytest.approx((10 * (first + call) + 1 * first) / 1e6)
    assert (cost.shown, cost.recall) == (6, 1.0)


def test_warm_is_cold_and_the_start_that_runs_share():
    first, second = (
        Demonstration(name, name * 40, Plan((ToolCall("1", "weather", {}),))) for name in "ab"
    )
    sizes = Sizes(system=100, result=50, tool=30)
    (cost,) = advise(RETRIEVER, [first, second], prices=ANY, sizes=sizes, ways=WAYS[:1])
    assert cost.warm_read - cost.cold_read == (6 * 30 + 100) / 2


def test_the_recall_of_filtering_is_that_of_the_ranking():
    costs = by_name(advise(RETRIEVER, RUNS, policy=ToolPolicy(top_k=2), prices=ANY))
    shares = []
    for item in RUNS:
        for step in item.plan.steps():
            if step.acceptable == {END}:
                continue
            ranking = RETRIEVER.rank(item.query, step.history)
            shown = set([name for name in ranking.tools if name != END][:2]) | set(step.history)
            shares.append(len(step.acceptable & shown) / len(step.acceptable))
    expected = sum(shares) / len(shares)
    assert costs["filtered, each step"].recall == pytest.approx(expected)
    hits = sum(1 for share in shares if share) / len(shares)
    assert costs["filtered, each step"].hit == pytest.approx(hits)
    assert costs["allowed_tools"].recall == pytest.approx(expected)
    assert costs["filtered, growing"].recall >= expected
    assert costs["defer_loading"].recall == costs["filtered, growing"].recall
    assert costs["additional_tools"].tokens == costs["filtered, growing"].tokens
    assert costs["all tools"].recall == 1.0


def test_allowed_tools_cost_what_all_tools_cost():
    costs = by_name(advise(RETRIEVER, RUNS, policy=ToolPolicy(top_k=1), prices=MARKED))
    every, allowed = costs["all tools"], costs["allowed_tools"]
    assert (allowed.tokens, allowed.cold_dollars) == (every.tokens, every.cold_dollars)
    assert allowed.shown < every.shown


def test_many_large_tools_make_deferring_pay_and_filtering_each_step_dear():
    sizes = Sizes(tool=2000)
    costs = by_name(advise(RETRIEVER, RUNS, policy=ToolPolicy(top_k=1), prices=MARKED, sizes=sizes))
    assert costs["defer_loading"].cold_dollars < costs["all tools"].cold_dollars
    assert costs["defer_loading"].tokens < costs["all tools"].tokens
    assert costs["filtered, each step"].cold_read < costs["defer_loading"].cold_read


def test_without_a_cache_what_counts_is_tokens():
    prices = replace(ANY, read=10.0)
    for cost in advise(RETRIEVER, RUNS, policy=ToolPolicy(top_k=1), prices=prices):
        assert cost.cold_dollars == pytest.approx(cost.tokens * 10 / 1e6)
        assert cost.warm_dollars == pytest.approx(cost.tokens * 10 / 1e6)


def test_tools_that_the_model_does_not_know_are_always_shown():
    costs = advise(RETRIEVER, RUNS, [Tool("brand_new")], policy=ToolPolicy(top_k=1), prices=ANY)
    assert by_name(costs)["all tools"].shown == 7
    unseen = Demonstration("d", "Do it", Plan((ToolCall("1", "never seen", {}),)))
    for cost in advise(RETRIEVER, [unseen], policy=ToolPolicy(top_k=1), prices=ANY):
        assert cost.recall == 1.0


def test_definitions_are_counted_by_their_length():
    long = Tool("weather", "Tell the weather. " * 200)
    short = by_name(advise(RETRIEVER, RUNS, prices=ANY))["all tools"]
    more = by_name(advise(RETRIEVER, RUNS, [long], prices=ANY))["all tools"]
    assert more.tokens > short.tokens + 500


def test_no_runs_and_negative_sizes_are_refused():
    with pytest.raises(InputError, match="no runs to count"):
        advise(RETRIEVER, [], prices=ANY)
    with pytest.raises(InputError, match="the tokens of 'result' are -1"):
        Sizes(result=-1)
    with pytest.raises(InputError, match="no calibrated coverage"):
        advise(RETRIEVER, RUNS, policy=ToolPolicy(coverage=0.9), prices=ANY)


def test_a_way_of_ones_own_can_be_compared():
    costs = advise(RETRIEVER, RUNS, prices=ANY, ways=[Way("mine", sticky="grow", constant=True)])
    assert [cost.way.name for cost in costs] == ["mine"]


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    RETRIEVER.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def runs(tmp_path):
    return small_data.write(tmp_path, 12)


@pytest.mark.parametrize("prices", ["anthropic", "openai"])
def test_the_table_fits_and_names_the_source_of_its_prices(model, runs, prices, capsys):
    assert run(["advise", str(model), str(runs), "--prices", prices]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    for way in WAYS:
        assert way.name in out
    assert "genai-prices 0.2.3 (November 2026)" in out
    cold, warm = (line for line in out.splitlines() if line.startswith(("Cold: ", "Warm: ")))
    other = {"anthropic": ("allowed_tools", "additional_tools"), "openai": ("defer_loading",)}
    assert not any(way in cold or way in warm for way in other[prices])


def test_json_holds_what_the_table_shows(model, runs, capsys):
    arguments = ["--read-price", "0.5", "--minimum-prefix", "0", "--top", "2", "--json"]
    assert run(["advise", str(model), str(runs), *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 12
    assert found["prices"]["dollars_per_million_tokens"]["read"] == 0.5
    assert found["prices"]["minimum_prefix_tokens"] == 0
    assert found["prices"]["source"].startswith("your own")
    assert [way["way"] for way in found["ways"]] == [way.name for way in WAYS]
    assert found["ways"][0]["recall"] == 1.0
    assert found["ways"][1]["tools_shown"] < 6


def test_tools_that_no_run_calls_are_named_with_what_they_cost(tmp_path, capsys):
    idle = (Tool("idle_small", "Does it"), Tool("idle_large", "Does a great deal " * 20))
    runs = [replace(RUNS[0], before=(ToolCall("x", "weather"),)), *RUNS[3:6:3]]
    unused = unused_tools(RETRIEVER, runs, idle)
    assert next(iter(unused)) == "idle_large"
    assert "idle_small" in unused
    assert "weather" not in unused  # it was called in an earlier turn
    assert "send_mail" not in unused
    assert set(unused_tools(RETRIEVER, runs, idle, Sizes(tool=7)).values()) == {7}
    RETRIEVER.save(tmp_path / "model")
    lines = [json.dumps(item.to_dict()) for item in RUNS]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    listed = json.dumps([tool.to_dict() for tool in (*small_data.TOOLS, *idle)])
    (tmp_path / "tools.json").write_text(listed, encoding="utf-8")
    given = ["advise", str(tmp_path / "model"), str(tmp_path / "runs.jsonl")]
    assert run([*given, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["unused_tools"]) == ["idle_large", "idle_small"]
    assert run(given) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "None of 12 runs calls idle_large, idle_small." in out


def test_steps_are_counted_from_each_confidence_on():
    steps = StepConfidences([0.9, 0.2, 0.9, 0.6], [True, False, True, False])
    low, half, most = steps.routes([0.0, 0.5, 0.95])
    assert (low.share, low.right.value) == (1.0, 0.5)
    assert (half.share, half.right.count) == (0.75, 3)
    assert most.right.count == 0
    assert most.to_dict()["right"] is None
    with pytest.raises(InputError, match="between 0 and 1"):
        steps.cheapest(1.0)


def test_a_cheaper_llm_does_from_where_the_interval_is_above_the_accuracy():
    # Of the surest 100 steps all are right, of the next 100 every other one.
    confidences = [0.9] * 100 + [0.4] * 100
    steps = StepConfidences(confidences, [True] * 100 + [True, False] * 50)
    chosen = steps.cheapest(0.95)
    assert chosen is not None
    assert (chosen.confidence, chosen.share) == (0.9, 0.5)
    assert chosen.right.low >= 0.95
    everything = steps.cheapest(0.6)
    assert everything is not None
    assert everything.confidence == 0.4
    few = StepConfidences([0.9] * 5, [True] * 5)
    assert few.cheapest(0.95) is None, "five steps prove little"


def test_confidences_are_those_of_the_rankings():
    steps = StepConfidences.of_runs(RETRIEVER, RUNS)
    ranking = RETRIEVER.rank(RUNS[0].query)
    first = next(iter(RUNS[0].plan.steps()))
    assert steps.confidences[0] == pytest.approx(ranking.confidence)
    assert steps.right[0] == (ranking.best in first.acceptable)
    assert len(steps.right) == sum(len(item.plan) + 1 for item in RUNS)


# -- renames -------------------------------------------------------------------------------------


def renamed(runs, **names):
    """The runs with tools under other names."""
    return [
        replace(
            item,
            plan=replace(
                item.plan,
                calls=tuple(
                    replace(call, tool=names.get(call.tool, call.tool)) for call in item.plan.calls
                ),
            ),
        )
        for item in runs
    ]


def test_a_rename_is_suggested_by_its_name_and_its_use():
    runs = renamed(RUNS, send_mail="mails.sendMail", weather="op_7")
    found = {rename.old: rename for rename in suggest_renames(RETRIEVER, runs)}
    assert found["send_mail"].new == "mails.sendMail"
    assert found["send_mail"].name > 0.5
    assert found["send_mail"].use is not None
    pairs = {(pair.old, pair.new): pair for pair in describe_pairs(RETRIEVER, runs)}
    own, other = pairs["weather", "op_7"], pairs["weather", "mails.sendMail"]
    assert own.use is not None
    assert other.use is not None
    assert own.use > other.use, "the model expects the tool where it is called by another name"


def test_a_tool_that_is_still_called_or_listed_was_not_renamed():
    half = len(RUNS) // 2
    changed = [*renamed(RUNS[:half], send_mail="mail_send"), *RUNS[half:]]
    assert all(pair.old != "send_mail" for pair in describe_pairs(RETRIEVER, changed))
    runs = renamed(RUNS, send_mail="mail_send")
    listed = [*small_data.TOOLS, Tool("mail_send", "Send a mail")]
    assert describe_pairs(RETRIEVER, runs, listed) == []
    assert suggest_renames(RETRIEVER, RUNS) == []


def test_tools_that_cannot_be_the_same_are_never_matched():
    half = len(RUNS) // 2
    # Only send_mail is gone for good: weather is called again after its seeming new name was.
    runs = renamed(RUNS[:half], send_mail="mail_send", weather="weather_now")
    runs += renamed(RUNS[half:], send_mail="mail_send")
    found = suggest_renames(RETRIEVER, runs, min_probability=0.0)
    assert all(rename.old != "weather" for rename in found)
    assert any((rename.old, rename.new) == ("send_mail", "mail_send") for rename in found)


def test_each_tool_is_matched_once():
    runs = renamed(RUNS, send_mail="send_mails", weather="send_mail_now")
    found = suggest_renames(RETRIEVER, runs, min_probability=0.0)
    assert len({rename.new for rename in found}) == len({rename.old for rename in found})
    assert len(found) == len({rename.new for rename in found})


@pytest.fixture(scope="module")
def changing():
    return dtdr.fit(small_data.dataset(24).demonstrations, small_data.TOOLS)


@pytest.fixture
def renamed_runs(tmp_path, changing):
    runs = renamed(RUNS, send_mail="mails.sendMail")
    lines = [json.dumps(item.to_dict()) for item in runs]
    place = tmp_path / "renamed"  # without a list of tools beside it
    place.mkdir()
    (place / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    changing.save(place / "changing")
    return [str(place / "changing"), str(place / "runs.jsonl")]


@pytest.mark.parametrize(("answer", "known"), [("y\n", True), ("n\n", False), (None, True)])
def test_renames_are_applied_once_they_are_confirmed(renamed_runs, answer, known, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(answer or ""))
    given = ["advise", *renamed_runs, "--apply-renames"]
    assert run([*given, *([] if answer else ["--yes"])]) == 0
    model = dtdr.load(renamed_runs[0])
    assert (model.index("mails.sendMail") >= 0) is known
    assert (model.index("send_mail") >= 0) is not known


def test_renames_and_routing_are_shown(renamed_runs, model, runs, capsys):
    assert run(["advise", *renamed_runs]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "send_mail seems to be called mails.sendMail now" in out
    assert "Best tool right" in out
    assert run(["advise", *renamed_runs, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [rename["new"] for rename in found["renames"]] == ["mails.sendMail"]
    assert found["routing"]["steps"][0]["share_of_steps"] == 1.0
    dtdr_c = ["advise", str(model), renamed_runs[1], "--apply-renames", "--yes"]
    assert run(dtdr_c) == 2
    assert "cannot be renamed" in capsys.readouterr().err
    assert run(["advise", str(model), str(runs), "--yes"]) == 2
    assert run(["advise", str(model), str(runs), "--accuracy", "1.5"]) == 2


def test_runs_that_the_model_learned_from_are_pointed_out(model, tmp_path, capsys):
    seen = small_data.write(tmp_path, 24)
    assert run(["advise", str(model), str(seen)]) == 0
    assert "learned from these very runs" in capsys.readouterr().err
    assert run(["advise", str(model), str(seen), "--split", "default"]) == 0
    assert "learned from these very runs" in capsys.readouterr().err
    unseen = small_data.write(tmp_path, 12)
    assert run(["advise", str(model), str(unseen)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "wrong", [["--top", "0"], ["--read-price", "-1"], ["--coverage", "2"], ["--tool-tokens", "-1"]]
)
def test_misuse_is_one_sentence(model, runs, wrong, capsys):
    assert run(["advise", str(model), str(runs), *wrong]) == 2
    assert is_one_sentence(capsys.readouterr().err)


@pytest.mark.slow
def test_the_benchmark_of_renames_runs():
    rows = smoke_rows("renames")
    assert {(row["given"], row["method"]) for row in rows} == {
        (given, method) for given in ("listed", "runs alone") for method in ("name", "advise")
    }
    assert all(0 <= row["false"] <= row["suggested"] for row in rows)
