"""Whole plans: which tools are called, each how often, and what depends on what."""

import json
import math
import random
import time
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtdr
from dtdr import Run
from dtdr.cli import run as run_command
from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.errors import InputError, ModelError
from dtdr.evaluate.plan_accuracy import PlanScore, PlanScores, greedy_plan, score_plans
from dtdr.predict.plans.best_first import KEPT, MOST_CALLS, RANKINGS, Candidate, PlanSearch
from dtdr.predict.plans.held_out import (
    Check,
    HeldOutPlan,
    PlanConfidence,
    fit_ranker,
    rank_held_out,
)
from dtdr.predict.plans.plan_model import form_chains
from dtdr.predict.plans.plan_ranker import PlanRanker, describe_plans, find_plans
from dtdr.predict.plans.prediction import PlanPrediction
from dtdr.predict.plans.spans import MAX_SPANS, read_spans
from dtdr.rankers.ranking import Ranking
from tests.helpers import change_config
from tests.whole_calls import NAMES


def invitation(number):
    """Two to four guests, whose addresses are looked up; or a note, in another sentence."""
    drawn = random.Random(number)
    guests = drawn.sample(NAMES, drawn.randint(2, 4))
    calls = [
        ToolCall(str(place), "get_address", {"name": name})
        for place, name in enumerate(guests, start=1)
    ]
    references = [{"$ref": call.id} for call in calls]
    calls.append(ToolCall(str(len(calls) + 1), "invite", {"guests": references}))
    query = f"Invite {', '.join(guests[:-1])} and {guests[-1]} to the party"
    if drawn.random() < 0.3:
        query += " and write a note about it"
        calls.append(ToolCall(str(len(calls) + 1), "write_note", {}))
    return Demonstration(str(number), query, Plan(tuple(calls)))


INVITATIONS = tuple(map(invitation, range(80)))


@pytest.fixture(scope="module")
def model():
    return dtdr.fit(INVITATIONS, ranker="dr", arguments=True, plans=True)


@pytest.fixture(scope="module")
def factored():
    return dtdr.fit(INVITATIONS, plans=True)


@pytest.mark.parametrize("guests", [2, 4])
def test_each_name_of_the_query_is_looked_up_once(model, factored, guests):
    names = ["Yusuf", "Wanda", "Zoe", "Ursula"][:guests]
    query = f"Invite {', '.join(names[:-1])} and {names[-1]} to the party"
    for planner in (model, factored):
        best = planner.plans(query)[0]
        assert sorted(best.tools) == ["get_address"] * guests + ["invite"]
    best = model.plans(query)[0]
    assert best.is_complete
    assert 0 < best.exact_probability <= best.probability
    looked_up = [call.arguments["name"] for call in best.calls[:-1]]
    assert sorted(looked_up) == sorted(names)
    plan = best.to_plan()
    assert plan.dependencies[-1] == frozenset(range(guests))


def test_plans_differ_in_their_tools_and_fall_in_probability(model):
    plans = model.plans("Invite Wanda and Yusuf to the party", top_k=5)
    multisets = [tuple(sorted(plan.tools)) for plan in plans]
    assert len(set(multisets)) == len(plans) > 1
    probabilities = [plan.probability for plan in plans]
    assert probabilities == sorted(probabilities, reverse=True)
    assert all(0 <= value <= 1 for value in probabilities)
    assert plans[:2] == model.plans("Invite Wanda and Yusuf to the party", top_k=2)


def test_after_calls_a_plan_is_what_is_left_to_do(model):
    session = model.session("Invite Wanda, Zoe and Yusuf to the party")
    session.call("get_address", {"name": "Wanda"})
    best = session.plans(1)[0]
    assert sorted(best.tools) == ["get_address", "get_address", "invite"]
    assert best.ids == ("2", "3", "4")
    assert {call.arguments.get("name") for call in best.calls} == {"Zoe", "Yusuf", None}
    guests = best.calls[-1].arguments["guests"]
    assert sorted(item["$ref"] for item in guests) == ["1", "2", "3"]
    before = session.rank().probabilities
    session.plans(3)
    assert np.array_equal(session.rank().probabilities, before), "predicting changes no session"
    for name in ("Zoe", "Yusuf"):
        session.call("get_address", {"name": name})
    session.call("invite", {"guests": [{"$ref": "1"}, {"$ref": "2"}, {"$ref": "3"}]})
    best = session.plans(1)[0]
    assert best.to_plan() == Plan(())
    assert best.is_complete


def test_a_fit_is_deterministic(tmp_path):
    files = [tmp_path / name / "model.safetensors" for name in ("one", "two")]
    for file in files:
        dtdr.fit(INVITATIONS[:40], ranker="dr", arguments=True, plans=True).save(file.parent)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("name", ["model", "factored"])
def test_a_loaded_model_plans_as_the_saved_one(name, request, tmp_path):
    model = request.getfixturevalue(name)
    model.save(tmp_path / "model")
    query = "Invite Wanda, Zoe and Yusuf to the party"
    expected = [plan.tools for plan in model.plans(query)]
    loaded = dtdr.load(tmp_path / "model")
    assert [plan.tools for plan in loaded.plans(query)] == expected
    for one, other in zip(loaded.plans(query), model.plans(query), strict=True):
        assert one.probability == pytest.approx(other.probability, abs=0.02)  # half precision


def test_a_damaged_plan_model_is_one_error(model, tmp_path):
    model.save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_bytes())["plans"]
    for changed in (
        {**config, "tools": config["tools"][:1]},
        {**config, "tools": [*config["tools"], config["tools"][0]]},
        {**config, "tools": [1, 2, 3]},
        {**config, "longest": "3"},
        {**config, "lengths": [5.0, 0.0]},
        {**config, "confidence": [-1e9, 1.0, 0.0]},
        {"tools": config["tools"]},
    ):
        change_config(tmp_path / "model", plans=changed)
        with pytest.raises(ModelError, match="no usable model"):
            dtdr.load(tmp_path / "model")


def test_what_cannot_be_planned_or_scored_is_said(model):
    unplanned = dtdr.fit(INVITATIONS, ranker="dr", plans=False)
    with pytest.raises(InputError, match="plans=True"):
        unplanned.plans("Invite Wanda")
    with pytest.raises(InputError, match="k is 0"):
        model.plans("Invite Wanda", top_k=0)
    with pytest.raises(InputError, match="no held-out plans"):
        score_plans(model, [])


def test_an_update_brings_further_tools_into_plans(factored):
    model = copy(factored)  # changes replace what it holds
    query = "Water the plants in the garden, please"
    calls = (ToolCall("1", "open_tap"), ToolCall("2", "water"), ToolCall("3", "close_tap"))
    model.update([Demonstration(f"n{number}", query, Plan(calls)) for number in range(40)])
    assert sorted(model.plans(query)[0].tools) == ["close_tap", "open_tap", "water"]
    before = factored.plans("Invite Wanda and Yusuf to the party")[0].tools
    assert model.plans("Invite Wanda and Yusuf to the party")[0].tools == before


def test_renamed_and_removed_tools_keep_plans_working(factored):
    model = copy(factored)
    query = "Invite Wanda, Zoe and Yusuf to the party"
    model.rename_tool("get_address", "find_address")
    best = model.plans(query)[0]
    assert sorted(best.tools) == ["find_address"] * 3 + ["invite"]
    model.remove_tools(["invite"])
    model.add_tools([Tool("dance", "Dance at a party")])
    for plan in model.plans(query):
        assert "invite" not in plan.tools


# -- bad input -------------------------------------------------------------------------------------


class Loop:
    """A state that always wants the same next tool; ``end`` is as likely as it is told to be."""

    def __init__(self, tools, end):
        self.tools, self.end = tools, end
        self.calls = 0

    def call(self, tool, call=None):
        self.calls += 1

    def rank(self):
        rest = np.full(self.tools, (1 - self.end) / self.tools)
        names = [*map(str, range(self.tools)), END]
        return Ranking(names, np.append(rest, self.end))

    def copy(self):
        state = Loop(self.tools, self.end)
        state.calls = self.calls
        return state


@pytest.mark.parametrize("longest", [1, 60, 10_000])
def test_a_search_that_never_ends_stops_without_a_plan(longest):
    search = PlanSearch(Loop(5, 0.0), longest, may_be_empty=False)
    assert search.follow_best() is None
    assert search.run() == {}
    assert len(search._ranked) <= MOST_CALLS + 1 + RANKINGS
    assert find_plans(Loop(5, 0.0), np.zeros((2, 6)), (), longest, may_be_empty=False) is None


def test_a_search_keeps_few_plans_and_adds_up_orders_of_the_same_calls():
    plans = PlanSearch(Loop(3_000, 0.2), 60, may_be_empty=True).run()
    assert () in plans
    assert len(plans) <= KEPT
    plans = PlanSearch(Loop(2, 0.2), 3, may_be_empty=False).run()
    assert (0, 1) in plans
    assert plans[0, 1].total == pytest.approx(np.log(2 * 0.4 * 0.4 * 0.2))
    plans = PlanSearch(Loop(25, 0.2), 60, may_be_empty=False).run()
    assert {len(plan) for plan in plans} <= {1, 2}, "three calls have a probability of 0.0002"


def test_unknown_calls_do_no_harm(model):
    run = Run("Invite Wanda and Yusuf to the party")
    run.call("unheard_of", {"x": 1})
    assert sorted(model.plans(run)[0].tools) == ["get_address", "get_address", "invite"]


@pytest.mark.parametrize("count", [1, 3, 25])
def test_few_demonstrations_are_enough_to_plan(count):
    model = dtdr.fit(INVITATIONS[:count], ranker="dr", plans=True)
    query = INVITATIONS[0].query
    assert set(model.plans(query)[0].tools) <= {"get_address", "invite", "write_note"}


def test_demonstrations_without_calls_make_an_empty_plan():
    empty = [Demonstration(str(number), "Thanks a lot", Plan(())) for number in range(12)]
    model = dtdr.fit([*empty, *INVITATIONS[:12]], plans=True)
    assert model.plans("Thanks a lot")[0].calls == ()


@given(st.text(max_size=200), st.lists(st.sampled_from(["invite", "get_address", "x"]), max_size=5))
def test_any_query_and_history_gives_bounded_plans(model, query, history):
    run = Run(query or "x")
    for name in history:
        run.call(name)
    for plan in model.plans(run):
        assert len(plan.calls) <= MOST_CALLS
        assert 0 <= plan.probability <= 1
        plan.to_plan()


# -- evaluation ------------------------------------------------------------------------------------


def test_scores_say_how_many_whole_plans_are_right(model):
    scores = score_plans(model, INVITATIONS[:40])
    told = scores.to_dict()
    right = [
        sorted(model.plans(item.query)[0].tools) == sorted(item.plan.tools)
        for item in INVITATIONS[:40]
    ]
    assert told["tools"] == pytest.approx(sum(right) / 40)
    assert told["tools"] <= told["tools@5"] <= 1
    assert told["log"] <= told["tools"]
    assert told["dag"] <= told["tools"]
    assert told["intervals"]["tools"][0] <= told["tools"] <= told["intervals"]["tools"][1]
    assert told["plans"] == 40


def planned(is_right, probability=None):
    return PlanScore({"tools": is_right, "greedy": False}, probability, 1.0)


def test_the_calibration_error_of_the_first_plans():
    halves = (PlanScores((planned(True, 0.9),)), PlanScores((planned(False, 0.9), planned(False))))
    assert PlanScores.join(halves).ece == pytest.approx(0.4)
    assert math.isnan(PlanScores((planned(False),)).ece)


# -- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "forms"),
    [
        ("Mail Ann, then Jean-Luc Picard at 9:30", ["ann", "jean-luc picard", "9:30"]),
        ("Send 'My plan' to a.b@c.org. Open Été.pdf", ["my plan", "a.b@c.org"]),
        ("It's Bo's. “Quoted” 3.5 iPhone", ["bo", "quoted", "3.5"]),
        ("Open the map", []),
    ],
)
def test_names_quotations_numbers_and_addresses_are_spans(query, forms):
    assert [span.form for span in read_spans(query)][: len(forms) or 9] == forms


@pytest.mark.parametrize(
    "text", ["a" * 10_000, "'" * 10_000, "A " * 5_000, '"x' * 5_000, "1:" * 5_000]
)
def test_spans_of_long_queries_are_read_in_bounded_time(text):
    started = time.process_time()
    assert len(read_spans(text)) <= MAX_SPANS
    assert time.process_time() - started < 60  # only work that has no bound reaches it


def errand(number):
    """One or two things that are asked for in sentences of their own."""
    mail = f"Mail {NAMES[number % 20]} the report."
    maps = f"Open the map of {NAMES[(number + 7) % 20]} and zoom in on it."
    asked = ((mail,), (maps,), (mail, maps), (maps, mail))[number % 4]
    calls = []
    for one in asked:
        calls += ["write", "send"] if one is mail else ["map", "zoom"]
    tools = tuple(ToolCall(str(place), tool) for place, tool in enumerate(calls))
    return Demonstration(str(number), " ".join(asked), Plan(tools))


def test_the_parts_of_a_query_say_which_tools_are_called():
    errands = dtdr.fit(map(errand, range(80)), [Tool("sing", "Sing a song aloud")], plans=True)
    query = "Mail Ursula the report. Open the map of Rome and zoom in on it."
    assert sorted(errands.plans(query)[0].tools) == ["map", "send", "write", "zoom"]


@pytest.mark.parametrize("joint", [" and ", ". ", ", then "])
def test_a_request_for_two_things_has_a_plan_for_both(joint):
    things = [("Mail {} the report", ("write", "send")), ("Open the map of {}", ("map", "zoom"))]
    single = [
        Demonstration(
            str(number),
            things[number % 2][0].format(NAMES[number % 20]),
            Plan(tuple(ToolCall(tool, tool) for tool in things[number % 2][1])),
        )
        for number in range(40)
    ]
    model = dtdr.fit(single, ranker="dr", plans=True)
    query = joint.join(("Mail Ursula the report", "Open the map of Rome"))
    plans = [sorted(plan.tools) for plan in model.plans(query, top_k=28)]
    assert ["map", "send", "write", "zoom"] in plans
    assert len(set(map(tuple, plans))) == len(plans)


def test_the_best_tool_of_each_step_comes_first_where_ranked_plans_are_not_better(
    factored, tmp_path, capsys
):
    model = factored.plans_
    assert model.check.is_ahead
    behind = replace(
        model,
        lengths=model.lengths._replace(mean=1_000.0),  # each query makes one request
        ranker=replace(model.ranker, dense=-model.ranker.dense, greedy_first=True),
        check=model.check._replace(greedy=model.check.plans),
    )
    changed = copy(factored)
    changed.plans_ = behind
    for item in INVITATIONS[:10]:
        plans = changed.plans(item.query)
        assert sorted(plans[0].tools) == sorted(greedy_plan(changed, item))
        assert plans[0].probability == max(plan.probability for plan in plans)
    changed.save(tmp_path / "model")
    loaded = dtdr.load(tmp_path / "model")
    assert (
        loaded.plans(INVITATIONS[0].query)[0].tools == changed.plans(INVITATIONS[0].query)[0].tools
    )
    assert run_command(["inspect", str(tmp_path / "model")]) == 0
    assert "the best tool of each step:" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("ranked", "greedy", "is_ahead"), [(0, 0, False), (1, 0, True), (3, 3, False), (2, 3, False)]
)
def test_the_ranker_chooses_where_more_held_out_plans_are_right(ranked, greedy, is_ahead):
    plans: dict[tuple[int, ...], Candidate] = {
        (0,): Candidate((0,), -2.0),
        (1,): Candidate((1,), -1.0),
    }
    found = describe_plans(plans, Loop(2, 0.3), np.zeros((2, 2)), 0)
    held_out = [HeldOutPlan(found, (1,), 0)] * ranked + [HeldOutPlan(found, (0,), 1)] * greedy
    ranker = PlanRanker.fit([], [], 2)  # by the search: the second plan
    check = Check.of(held_out, [ranker, ranker])
    assert check.is_ahead is is_ahead
    assert check == (ranked + greedy, ranked, greedy)


def test_the_ranker_learns_which_tools_are_called_more_often_than_it_seems():
    candidates = {plan: Candidate(plan, total) for plan, total in [((0,), -1.0), ((0, 0), -2.0)]}
    found = describe_plans(candidates, Loop(2, 0.3), np.zeros((3, 2)), 0)
    plans = [HeldOutPlan(found, (0, 0), number % 2) for number in range(30)]
    assert fit_ranker(plans, 2).probabilities(found).argmax() == 1
    rankers = rank_held_out(plans, 2)
    confidence = PlanConfidence.fit(plans, rankers)
    first, other = confidence.of(rankers[0].probabilities(found)[::-1], is_under_way=False)
    assert other < 0.1 < 0.9 < first


def test_arguments_are_filled_when_they_are_looked_at(model, monkeypatch):
    filled = []
    fill = model.arguments_.fill

    def count(tool, state):
        filled.append(tool)
        return fill(tool, state)

    copied = copy(model)
    copied.arguments_ = copy(model.arguments_)
    monkeypatch.setattr(copied.arguments_, "fill", count)
    session = copied.session("Invite Wanda, Zoe and Yusuf to the party")
    best, *others = session.plans()
    session.call("get_address", {"name": "Zoe"})
    assert not filled
    assert best == PlanPrediction.from_dict(model.plans(session.query)[0].to_dict())
    assert len(filled) == len(best.tools), "as it was before the session went on"
    assert [plan.calls for plan in others]
    everything = sum(len(plan.tools) for plan in (best, *others))
    assert len(filled) < everything, "plans that begin alike share calls"


def test_calls_depend_on_the_one_before_where_demonstrated_calls_do():
    calls = tuple(ToolCall(str(number), tool) for number, tool in enumerate("abc"))
    chain, free = Plan(calls, (("0", "1"), ("1", "2"))), Plan(calls)
    assert form_chains([chain, chain, free])
    assert not form_chains([chain, free])
    assert not form_chains([])
    assert not form_chains(item.plan for item in INVITATIONS), "those are references"
    items = [Demonstration(str(number), f"Do abc {number}", chain) for number in range(12)]
    plan = dtdr.fit(items, ranker="dr", plans=True).plans("Do abc")[0]
    assert plan.links == ((0, 1), (1, 2))


def test_plans_call_only_what_is_offered(model):
    session = model.session("Invite Wanda and Yusuf to the party and write a note about it")
    assert any("write_note" in plan.tools for plan in session.plans())
    session.rank(offered=["get_address", "invite"])
    plans = session.plans()
    assert plans
    assert {tool for plan in plans for tool in plan.tools} <= {"get_address", "invite"}
