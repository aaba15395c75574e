"""A tool that a model hears of is never less visible than before."""

import itertools

import pytest

import dtdr
from dtdr import Tool
from dtdr.agents import ToolMask, ToolPolicy
from dtdr.agents.policy import Sticky
from dtdr.predict.new_tools import FEW_CALLS

NAMES = tuple(f"{verb}_{thing}" for verb in ("get", "check", "pay") for thing in ("claim", "bill"))
TEXTS = [
    ("Pay out the claim of {}", ["get_claim", "check_claim", "pay_claim"]),
    ("Settle the bill of {}", ["get_bill", "check_bill", "pay_bill"]),
    ("Look at the claim of {}", ["get_claim", "check_claim"]),
    ("Look at the bill of {}", ["get_bill", "check_bill"]),
]
RUNS = [
    (text.format(f"customer {number}"), calls)
    for number, (text, calls) in zip(range(60), itertools.cycle(TEXTS), strict=False)
]
DRONE = Tool("fly_drone", "Send a drone to look at a roof")
OTHERS = [Tool("send_fax", "Send a fax to an office"), Tool("book_room", "Book a hotel room")]
QUERY = "Have a drone look at the roof"


def fit(ranker="dtdr-f"):
    return dtdr.fit(RUNS, ranker=ranker, arguments=False, plans=False)


def shown(model, query=QUERY, tools=(DRONE, *OTHERS), history=(), **policy):
    run = ToolMask(model, ToolPolicy(**policy)).run(query)
    for tool in history:
        run.call(tool)
    return run.select([*NAMES, *(tool.name for tool in tools)])


@pytest.fixture(scope="module")
def model():
    return fit()


@pytest.fixture(scope="module")
def wider():
    model = fit()
    model.add_tools([DRONE, *OTHERS])
    return model


@pytest.mark.parametrize("sticky", ["none", "grow", "confidence"])
@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_adding_a_tool_does_not_hide_it(model, wider, top_k, sticky: Sticky):
    policy = {"top_k": top_k, "sticky": sticky}
    assert shown(model, **policy).reasons["fly_drone"] == "unknown"
    for history in ((), ("get_claim",), ("get_claim", "check_claim")):
        selection = shown(wider, history=history, **policy)
        assert "fly_drone" in selection.shown
        if selection.reasons["fly_drone"] == "new":
            assert len(selection.shown) <= top_k + len(history) + 1
    fitted = dtdr.fit(RUNS, [DRONE, *OTHERS], ranker="dr", arguments=False, plans=False)
    assert shown(fitted, **policy).reasons["fly_drone"] == "new"


@pytest.mark.parametrize("ranker", ["dr", "lr", "dtdr-c", "dtdr-l", "markov-1"])
def test_it_holds_for_every_ranker(ranker):
    fitted = dtdr.fit(RUNS, [DRONE, *OTHERS], ranker=ranker, arguments=False, plans=False)
    assert "fly_drone" in shown(fitted, top_k=2).shown
    assert "send_fax" in shown(fitted, "Fax this to the office", top_k=2).shown


def test_a_place_is_kept_until_the_tool_was_called_a_few_times(wider, tmp_path):
    few = [(f"Have a drone look at roof {number}", ["fly_drone"]) for number in range(FEW_CALLS)]
    assert wider.calls_["get_claim"] == 30
    assert wider.calls_.get("fly_drone", 0) == 0
    once, _ = wider.update_copy(few[:3])
    assert once.calls_["fly_drone"] == 3
    assert "fly_drone" in shown(once, "Pay out the claim, drone or not", top_k=2).shown
    often, _ = wider.update_copy(few)
    assert "fly_drone" not in often._new_tools.few
    assert shown(often, top_k=1).reasons.get("fly_drone") == "ranked"
    once.rename_tool("fly_drone", "launch_drone")
    assert once.calls_["launch_drone"] == 3
    once.remove_tools(["launch_drone"])
    assert "launch_drone" not in once.calls_
    often.save(tmp_path / "model")
    assert dtdr.load(tmp_path / "model").calls_ == {
        tool.name: often.calls_.get(tool.name, 0) for tool in often.tools_[:-1]
    }


def test_a_query_that_names_no_new_tool_shows_the_likeliest_one_that_was_never_called():
    fitted = dtdr.fit(RUNS, [DRONE, *OTHERS], ranker="dtdr-c", arguments=False, plans=False)
    selection = shown(fitted, "Pay out the claim of customer 7", history=["get_claim"], top_k=2)
    new = [name for name, reason in selection.reasons.items() if reason == "new"]
    ranking = fitted.rank("Pay out the claim of customer 7", ["get_claim"])
    unused = {DRONE.name, *(tool.name for tool in OTHERS)}
    assert new == [next(name for name in ranking.tools if name in unused)]
    assert set(ranking.calls[:2]) <= {*selection.shown}


def test_a_budget_counts_the_new_tool_first(wider):
    costs = dict.fromkeys((*NAMES, DRONE.name, *(tool.name for tool in OTHERS)), 100)
    run = ToolMask(wider, ToolPolicy(token_budget=300)).run(QUERY)
    selection = run.select([*costs], costs=costs)
    assert "fly_drone" in selection.shown
    assert len(selection.shown) == 3


@pytest.mark.parametrize("ranker", ["dr", "dtdr-c", "dtdr-l", "markov-1"])
def test_a_selection_keeps_its_last_place_for_the_new_tool(ranker):
    fitted = dtdr.fit(RUNS, [DRONE, *OTHERS], ranker=ranker, arguments=False, plans=False)
    session = fitted.session(QUERY)
    session.call("get_claim")
    for ranking in (fitted.rank(QUERY), session.rank(), session.rank([*NAMES, DRONE.name])):
        for top_k in (2, 4):
            tools = ranking.select(top_k=top_k).tools
            assert len(tools) == top_k
            assert "fly_drone" in tools
            assert set(tools) - {"fly_drone"} <= set(ranking.tools[:top_k])
        assert ranking.select(top_k=1).tools == ranking.tools[:1]
        assert "fly_drone" in ranking.select(top_k=4).select(top_k=2)
    other = fitted.rank("Pay out the claim of customer 7")
    assert other.select(top_k=2).tools == other.tools[:2]
    without = fitted.rank(QUERY).restrict(NAMES)
    assert without.select(top_k=2).tools == without.tools[:2]
