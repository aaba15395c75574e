import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr import Ranking
from dtdr.errors import InputError
from dtdr.ranking import Guide

NAMES = ("a", "b", "c", "end")


def ranking(*probabilities, **more):
    return Ranking(NAMES, np.array(probabilities), **more)


def test_tools_come_best_first_and_ties_keep_the_vocabulary_order():
    result = ranking(0.1, 0.4, 0.4, 0.1)
    assert result.tools == ("b", "c", "a", "end")
    assert result.best == "b"
    assert result.confidence == 0.4
    assert next(iter(result)) == ("b", 0.4)
    assert result.top(2) == [("b", 0.4), ("c", 0.4)]


def test_probability_of_an_unknown_tool_is_zero():
    assert ranking(0.7, 0.1, 0.1, 0.1).probability("a") == 0.7
    assert ranking(0.7, 0.1, 0.1, 0.1).probability("z") == 0.0


def test_selection_by_threshold_renormalises():
    chosen = ranking(0.6, 0.3, 0.06, 0.04).select(threshold=0.2)
    assert chosen.tools == ("a", "b")
    assert chosen.probability("a") == pytest.approx(2 / 3)


def test_selection_is_never_empty():
    assert ranking(0.25, 0.25, 0.25, 0.25).select(threshold=0.9).tools == ("a",)


def test_the_retrievers_threshold_is_the_default():
    assert ranking(0.6, 0.3, 0.06, 0.04, threshold=0.5).select().tools == ("a",)
    assert len(ranking(0.6, 0.3, 0.06, 0.04).select()) == 4


@pytest.mark.parametrize(
    "arguments",
    [{"top_k": 0}, {"threshold": 1.0}, {"threshold": -0.1}, {"coverage": 1}, {"token_budget": 0}],
)
def test_a_selection_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(InputError):
        ranking(0.7, 0.1, 0.1, 0.1).select(**arguments)


@given(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), st.integers(1, 4), st.floats(0, 0.99))
def test_a_selection_is_a_prefix_of_the_ranking(weights, top_k, threshold):
    weights = np.array(weights) / sum(weights)
    result = ranking(*weights)
    chosen = result.select(top_k=top_k, threshold=threshold)
    assert 1 <= len(chosen) <= top_k
    assert chosen.tools == result.tools[: len(chosen)]
    assert chosen.probabilities.sum() == pytest.approx(1)


def test_selection_by_coverage_keeps_what_the_held_out_steps_ask_for():
    # 19 held-out scores: for 90 % coverage the second lowest, .02, is the cut.
    guide = Guide(held_out=np.arange(1, 20) / 100)
    assert guide.probability_for(0.9) == 0.02
    chosen = ranking(0.6, 0.37, 0.02, 0.01, guide=guide).select(coverage=0.9)
    assert chosen.tools == ("a", "b", "c")


def test_coverage_beyond_what_the_held_out_steps_can_promise_shows_all_tools():
    guide = Guide(held_out=np.array([0.5, 0.6, 0.7]))
    assert len(ranking(0.97, 0.01, 0.01, 0.01, guide=guide).select(coverage=0.99)) == 4


@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.8, 0.9, 0.95]))
def test_coverage_holds_on_exchangeable_scores(seed, coverage):
    scores = np.random.default_rng(seed).beta(4, 1, size=6000)
    cut = Guide(held_out=np.sort(scores[:3000])).probability_for(coverage)
    assert abs((scores[3000:] >= cut).mean() - coverage) < 0.05


def test_selection_by_tokens_fills_the_budget_with_the_best_tools():
    guide = Guide(tokens=np.array([10, 20, 30, 5]))
    result = ranking(0.6, 0.3, 0.06, 0.04, guide=guide)
    assert result.select(token_budget=30).tools == ("a", "b")
    assert result.select(token_budget=65).tools == ("a", "b", "c", "end")
    assert result.select(token_budget=1).tools == ("a",)


def test_an_unfamiliar_query_shows_all_tools_up_to_the_hard_limits():
    guide = Guide(
        held_out=np.arange(1, 20) / 20, tokens=np.array([10, 10, 10, 10]), familiarity_floor=0.3
    )
    strange = ranking(0.9, 0.06, 0.03, 0.01, guide=guide, familiarity=0.1)
    assert not strange.is_familiar
    assert len(strange.select(threshold=0.5)) == 4
    assert len(strange.select(coverage=0.9)) == 4
    assert len(strange.select(coverage=0.9, top_k=2)) == 2
    assert len(strange.select(coverage=0.9, token_budget=30)) == 3
    assert len(strange.select(threshold=0.5, fallback=False)) == 1
    known = ranking(0.9, 0.06, 0.03, 0.01, guide=guide, familiarity=0.5)
    assert len(known.select(threshold=0.5)) == 1


def test_confidence_is_calibrated_where_the_guide_says_how():
    guide = Guide(confidence=np.array([[0.0, 0.5, 1.0], [0.0, 0.9, 1.0]]))
    assert ranking(0.5, 0.3, 0.1, 0.1, guide=guide).confidence == pytest.approx(0.9)


def test_what_a_retriever_was_not_calibrated_for_is_refused():
    plain = ranking(0.5, 0.3, 0.1, 0.1)
    with pytest.raises(InputError, match="no calibrated coverage"):
        plain.select(coverage=0.9)
    with pytest.raises(InputError, match="does not know what tools cost"):
        plain.select(token_budget=100)


@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from([3, 20, 10_000]))
def test_the_first_few_of_many_tools_are_those_of_the_whole_order(seed, k, levels):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, levels, 300).astype(float)  # few levels: many ties
    names = [str(number) for number in range(300)]
    whole, few = (Ranking(names, weights / weights.sum()) for _ in range(2))
    expected = [names[position] for position in whole.order[:k]]
    assert [name for name, _ in few.top(k)] == expected
    assert few.best == expected[0]
    assert list(few.select(top_k=k).tools) == expected
    assert [name for name, _ in whole.top(k)] == expected
