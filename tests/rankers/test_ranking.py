import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr import Ranking
from dtdr.errors import InputError
from dtdr.rankers.calibration import Calibration
from dtdr.rankers.selection import Selection, count_tokens

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


HELD_OUT = Calibration(held_out=np.arange(1, 20) / 100)
"""For 90 % coverage the second lowest of 19 scores, .02, is the cut."""
TOKENS = Calibration(tokens=np.array([10, 20, 30, 5]))


@pytest.mark.parametrize(
    ("more", "bounds", "chosen"),
    [
        ({}, {}, "a b c end"),
        ({}, {"threshold": 0.9}, "a"),
        ({"threshold": 0.5}, {}, "a"),
        ({"threshold": 1.5}, {}, "a"),
        ({"calibration": HELD_OUT}, {"coverage": 0.9}, "a b c"),
        ({"calibration": HELD_OUT}, {"coverage": 0.5}, "a b"),
        ({"calibration": HELD_OUT}, {"coverage": 0.99}, "a b c end"),
        ({"calibration": TOKENS}, {"token_budget": 30}, "a b"),
        ({"calibration": TOKENS}, {"token_budget": 65}, "a b c end"),
        ({"calibration": TOKENS}, {"token_budget": 1}, "a"),
    ],
)
def test_a_bound_keeps_the_best_tools_and_at_least_one(more, bounds, chosen):
    assert " ".join(ranking(0.6, 0.3, 0.09, 0.01, **more).select(**bounds).tools) == chosen


@pytest.mark.parametrize(
    "arguments",
    [{"top_k": 0}, {"threshold": 1.0}, {"threshold": -0.1}, {"coverage": 1}, {"token_budget": 0}],
)
def test_a_selection_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(InputError):
        ranking(0.7, 0.1, 0.1, 0.1).select(**arguments)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.7, 1.0])
def test_confidence_never_falls_as_a_query_is_more_familiar(probability):
    calibration = Calibration(
        confidence=np.array([[0.0, 1.0], [0.1, 0.9]]),
        familiarity_threshold=0.4,
    )
    known = calibration.confidence_of(probability)
    values = [calibration.confidence_of(probability, each) for each in (0, 0.1, 0.3, 0.4, 0.9)]
    assert values == sorted(values)
    assert values[0] == 0
    assert values[-2:] == [known, known]
    rows = (0.1 + probability, probability)
    assert calibration.confidence_of(rows[0], 0.1) >= calibration.confidence_of(rows[1], 0.1)


def test_confidence_falls_with_the_distance_of_a_query_too():
    calibration = Calibration(familiarity_threshold=-2.0)
    values = [calibration.confidence_of(0.8, each) for each in (-8.0, -4.0, -2.0, -0.5, 0.0)]
    assert values == pytest.approx([0.2, 0.4, 0.8, 0.8, 0.8])


def test_confidence_is_calibrated_where_the_calibration_says_how():
    calibration = Calibration(confidence=np.array([[0.0, 0.5, 1.0], [0.0, 0.9, 1.0]]))
    assert ranking(0.5, 0.3, 0.1, 0.1, calibration=calibration).confidence == pytest.approx(0.9)


def test_what_a_ranker_was_not_calibrated_for_is_refused():
    plain = ranking(0.5, 0.3, 0.1, 0.1)
    with pytest.raises(InputError, match="no calibrated coverage"):
        plain.select(coverage=0.9)
    with pytest.raises(InputError, match="does not know what tools cost"):
        plain.select(token_budget=100)


shares = st.lists(st.floats(0.01, 1), min_size=6, max_size=6)
bounds = st.fixed_dictionaries(
    {},
    optional={
        "top_k": st.integers(1, 6),
        "threshold": st.floats(0, 0.9),
        "coverage": st.floats(0.05, 0.95),
        "token_budget": st.integers(1, 80),
    },
)


def calibrated(weights, familiarity=0.5):
    weights = np.array(weights)
    calibration = Calibration(
        held_out=np.linspace(0.01, 0.9, 40),
        confidence=np.array([[0.0, 1.0], [0.0, 0.4]]),
        tokens=np.array([10, 20, 5, 30, 10, 5]),
        familiarity_threshold=0.3,
    )
    return Ranking(
        (*"abcde", "end"),
        weights / weights.sum(),
        calibration=calibration,
        familiarity=familiarity,
    )


@given(shares, bounds, st.sampled_from([0.1, 0.5]))
def test_a_selection_keeps_what_the_whole_ranking_was_told(weights, given_bounds, familiarity):
    whole = calibrated(weights, familiarity)
    chosen = whole.select(**given_bounds)
    assert chosen.confidence == whole.confidence
    assert chosen.is_familiar == whole.is_familiar == (familiarity > 0.3)
    assert chosen.familiarity == whole.familiarity
    assert chosen.threshold == whole.threshold


@given(shares, bounds.filter(bool), bounds.filter(bool), st.sampled_from([0.1, 0.5]))
def test_choosing_twice_is_choosing_by_the_stricter_of_both(weights, one, other, familiarity):
    whole = calibrated(weights, familiarity)
    twice = whole.select(**one).select(**other)
    assert twice.tools == min(whole.select(**one).tools, whole.select(**other).tools, key=len)


@given(shares, bounds, st.booleans())
def test_bounds_choose_what_a_walk_down_the_ranking_chooses(weights, given_bounds, fallback):
    whole = calibrated(weights, 0.1)
    rule = given_bounds or {"coverage": 0.95}
    costs = dict(zip((*"abcde", "end"), (10, 20, 5, 30, 10, 5), strict=True))
    expected: list[str] = []
    spent = 0
    for tool, probability in whole:
        spent += costs[tool]
        cut = rule.get("coverage")
        fits = len(expected) < rule.get("top_k", 6) and spent <= rule.get("token_budget", 1000)
        if not fallback:
            fits &= probability > rule.get("threshold", -1)
            fits &= cut is None or probability >= whole.calibration.probability_for(cut)
        if expected and not fits:
            break
        expected.append(tool)
    chosen = whole.select(**given_bounds, fallback=fallback)
    assert list(chosen.tools) == expected
    assert chosen.probabilities.sum() == pytest.approx(1)


@given(bounds, st.booleans())
def test_a_selection_is_the_same_after_a_way_through_json(given_bounds, fallback):
    selection = Selection(**given_bounds, fallback=fallback)
    assert Selection(**json.loads(json.dumps(selection.to_dict()))) == selection


def test_bounds_are_given_as_an_object_or_one_by_one():
    result = ranking(0.6, 0.3, 0.06, 0.04)
    assert result.select(Selection(top_k=2)).tools == result.select(top_k=2).tools
    with pytest.raises(InputError, match="not both"):
        result.select(Selection(top_k=2), threshold=0.5)


@given(st.integers(1, 40))
def test_a_ranking_is_a_sequence_of_pairs_that_knows_its_tools(count):
    names = [f"tool {number}" for number in range(count)]
    weights = np.random.default_rng(count).random(count)
    result = Ranking(names, weights / weights.sum())
    pairs = list(result)
    assert [result[rank] for rank in range(-count, count)] == pairs + pairs
    assert list(reversed(result)) == pairs[::-1]
    assert result[1:7:2] == pairs[1:7:2]
    assert result[:3] == result.top(3) == pairs[:3]
    assert all(name in result for name in names)
    assert "another" not in result
    with pytest.raises(IndexError):
        result[count]


def test_a_notebook_shows_names_as_data():
    shown = Ranking(["<script>alert(1)</script>", "end"], np.array([0.9, 0.1]))._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert shown.count("<tr>") == 3
    many = Ranking([str(number) for number in range(25)], np.full(25, 0.04))._repr_html_()
    assert "and 5 more" in many


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("天気", 2), ("\ud800", 1)],
)
def test_tokens_of_a_text_go_by_its_bytes(text, tokens):
    assert count_tokens(text) == tokens


def test_tokens_of_a_definition_are_those_of_its_json_without_escapes():
    definition = {"name": "天気", "description": "今日の天気"}
    assert count_tokens(definition) == count_tokens('{"name": "天気", "description": "今日の天気"}')
