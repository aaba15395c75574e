import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr import Ranking
from dtdr.errors import InputError

NAMES = ("a", "b", "c", "end")


def ranking(*probabilities, threshold=None):
    return Ranking(NAMES, np.array(probabilities), threshold=threshold)


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


@pytest.mark.parametrize("arguments", [{"top_k": 0}, {"threshold": 1.0}, {"threshold": -0.1}])
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
