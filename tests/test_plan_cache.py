"""A cache of plans that knows how often it is right."""

from dataclasses import replace

import pytest

import dtdr
from dtdr import Run
from dtdr.data.calls import ToolCall
from dtdr.data.plan import Plan
from dtdr.errors import InputError
from dtdr.llm.planning import PlanCache, Planner
from tests.scripted_llm import ScriptedLLM
from tests.whole_calls import DEMONSTRATIONS, TOOLS

MAIL, EVENT = DEMONSTRATIONS[41], DEMONSTRATIONS[42]


@pytest.fixture(scope="module")
def retriever():
    return dtdr.fit(DEMONSTRATIONS[:24], TOOLS, arguments=True, plans=True)


def finished(item, *tools):
    """The demonstration's query with other calls."""
    calls = tuple(ToolCall(str(number), tool) for number, tool in enumerate(tools, start=1))
    return replace(item, plan=Plan(calls))


def given(cache, query):
    """The plan that the cache has; there must be one."""
    plan = cache.get(query)
    assert plan is not None
    return plan


def test_a_slot_that_no_value_is_known_for_is_named():
    calls = ToolCall("1", "find_user", {"name": "Ann"}), ToolCall("2", "note", {"text": "a b c"})
    items = [
        replace(item, query=f"{item.query} and note it", plan=Plan((calls[0], other)))
        for item, other in (
            (one, ToolCall("2", "note", {"text": f"Written down in {number} different words"}))
            for number, one in enumerate(DEMONSTRATIONS[:30])
        )
    ]
    model = dtdr.fit(items, retriever="dr", arguments=True, plans=True)
    (plan,) = model.plans("Look up Ann and note it", k=1)
    assert plan.unknown == (("2", "text"),)
    assert not plan.is_complete
    assert plan.to_dict()["calls"][1]["unknown"] == ["text"]


# -- the cache -----------------------------------------------------------------------------------


def test_a_probable_plan_is_given_and_an_improbable_one_is_not(retriever):
    plan = given(PlanCache(retriever, 0.5), MAIL.query)
    assert plan.tools == MAIL.plan.tools
    assert plan.probability >= 0.5
    cache = PlanCache(retriever, 1.0)
    assert cache.get(MAIL.query) is None
    assert (cache.statistics.asked, cache.statistics.hits) == (1, 0)


def test_nothing_is_given_for_an_unfamiliar_query(retriever):
    cache = PlanCache(retriever, 0.0)
    assert cache.get("abc xx") is None
    assert cache.statistics.unfamiliar == 1


def test_the_cache_counts_how_many_hits_were_right(retriever):
    cache = PlanCache(retriever, 0.5)
    assert cache.statistics.precision is None
    for item in (MAIL, EVENT):
        cache.get(item.query)
    cache.put(MAIL)
    cache.put(finished(EVENT, "find_user"))
    counts = cache.statistics
    assert (counts.hits, counts.right, counts.wrong) == (2, 1, 1)
    assert counts.precision == counts.hit_rate / 2 == 0.5
    assert 1 < counts.expected <= 2


def test_wrong_plans_make_further_ones_less_probable_and_right_ones_more(retriever):
    cache = PlanCache(retriever, 0.0)
    first = given(cache, MAIL.query).probability
    for item in DEMONSTRATIONS[43:49:2]:
        cache.put(finished(item, "get_contact", "create_event", "find_user"))
    lower = given(cache, MAIL.query).probability
    assert lower < first
    honest = PlanCache(retriever, 0.0)
    for item in DEMONSTRATIONS[43:49:2]:
        honest.put(item)
    assert given(honest, MAIL.query).probability > lower


def test_a_repeated_query_gets_the_plan_of_its_last_run(retriever):
    cache = PlanCache(retriever, 0.7)
    cache.put(finished(MAIL, "create_event", "find_user"))
    again = given(cache, f"  {MAIL.query.upper()} ")
    assert sorted(again.tools) == ["create_event", "find_user"]
    assert again.probability == pytest.approx(0.8)
    cache.put(finished(MAIL, "create_event", "find_user"))
    assert given(cache, MAIL.query).probability == pytest.approx(5 / 6)
    cache.put(finished(MAIL, "send_mail"))
    assert given(cache, MAIL.query).probability == pytest.approx(5 / 7)


def test_the_retriever_stays_as_it_is(retriever):
    learned = retriever.training_.demonstrations
    cache = PlanCache(retriever)
    cache.put(finished(MAIL, "brand_new"))
    assert retriever.training_.demonstrations == learned
    assert retriever.index("brand_new") < 0
    assert cache.retriever.index("brand_new") >= 0


def test_a_run_is_put_as_it_went_and_a_failed_one_is_not_learned(retriever):
    cache = PlanCache(retriever, 0.7)
    run = Run("Book a table and tell Ann")
    run.call("book_table", {"day": "Monday"}, output={"id": 3})
    cache.put(run)
    assert given(cache, run.query).tools == ("book_table",)
    failed = PlanCache(retriever, 0.7)
    failed.put({**run.to_dict(), "outcome": "failure"})
    assert failed.get(run.query) is None


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
def test_a_probability_outside_of_0_to_1_is_refused(retriever, wrong):
    with pytest.raises(InputError, match="between 0 and 1"):
        PlanCache(retriever, wrong)


def test_a_cache_needs_a_retriever_with_plans_that_learns(retriever):
    with pytest.raises(InputError, match="use dtdr-f"):
        PlanCache(dtdr.fit(DEMONSTRATIONS[:24], retriever="dr", arguments=False, plans=True))
    with pytest.raises(InputError, match="plans"):
        PlanCache(dtdr.fit(DEMONSTRATIONS[:8], retriever="dr", plans=False))
    run = Run(MAIL.query)
    run.call("find_user")
    with pytest.raises(InputError, match="before the first call"):
        PlanCache(retriever).get(run)


# -- with an LLM ---------------------------------------------------------------------------------


def test_the_planner_follows_a_cached_plan_and_asks_the_llm_for_the_others(retriever):
    llm = ScriptedLLM(["find_user", "end"])
    hit = Planner(retriever, llm, cache=PlanCache(retriever, 0.5)).plan(MAIL.query)
    assert hit.plan.tools == MAIL.plan.tools
    assert [step.selected.outcome for step in hit.steps] == ["plan"] * 3
    assert llm.prompts == []
    miss = Planner(retriever, llm, cache=PlanCache(retriever, 1.0)).plan(MAIL.query)
    assert llm.prompts or {step.selected.outcome for step in miss.steps} == {"single"}
    assert not any(step.selected.outcome == "plan" for step in miss.steps)
