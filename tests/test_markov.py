"""Markov chains against the paper's Algorithm 2 written with dictionaries."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.errors import ModelError
from dtdr.rankers.markov import MarkovChains

TOOLS = 5  # the last one is the end of plan
plans = st.lists(st.lists(st.integers(0, TOOLS - 2), max_size=6), min_size=1, max_size=8)
histories = st.lists(st.integers(-1, TOOLS - 2), max_size=7)


def dictionaries(all_plans, order):
    """Algorithm 2: the last ``order`` calls, padded with ``start``, to counts of what followed."""
    graph: dict[tuple, Counter] = defaultdict(Counter)
    for plan in all_plans:
        trajectory = ["start"] * order + list(plan) + [TOOLS - 1]
        for index in range(order, len(trajectory)):
            graph[tuple(trajectory[index - order : index])][trajectory[index]] += 1
    return graph


def context(history, order):
    return tuple((["start"] * order + list(history))[len(history) :])


@given(plans, st.integers(0, 4), histories)
def test_a_lookup_is_what_the_papers_algorithm_counts(all_plans, order, history):
    counts = dictionaries(all_plans, order)[context(history, order)]
    expected = np.array([counts[tool] for tool in range(TOOLS)], float)
    chain = MarkovChains.build(all_plans, order, TOOLS)
    np.testing.assert_allclose(
        chain.lookup(0, history), expected / expected.sum() if counts else expected
    )


@given(plans, st.integers(0, 4), histories, st.integers(1, 3))
def test_each_group_counts_its_own_plans_only(all_plans, order, history, groups):
    # Every group has a plan: the first ones go round.
    all_plans = [*[[0]] * groups, *all_plans]
    group_of = [number % groups for number in range(len(all_plans))]
    together = MarkovChains.build(all_plans, order, TOOLS, group_of)
    for group in range(groups):
        alone = MarkovChains.build(all_plans[group::groups], order, TOOLS)
        np.testing.assert_array_equal(together.lookup(group, history), alone.lookup(0, history))


@given(plans, histories)
def test_a_path_holds_the_counts_of_every_shorter_history(all_plans, history):
    chain = MarkovChains.build(all_plans, 3, TOOLS)
    path = chain.path(0, history)
    for order, node in enumerate(path):
        counts = dictionaries(all_plans, order)[context(history, order)]
        part = slice(chain.offsets[node], chain.offsets[node + 1])
        found = dict(zip(chain.next_tools[part].tolist(), chain.counts[part].tolist(), strict=True))
        assert found == counts
    if len(path) <= 3:
        assert not dictionaries(all_plans, len(path))[context(history, len(path))]


def test_mixing_counts_the_estimate_below_as_further_calls():
    chain = MarkovChains.build([[0, 1], [0, 2], [0, 1]], 1, TOOLS)
    below = np.array([0.1, 0.2, 0.3, 0.0, 0.4])
    node = chain.path(0, [0])[1]
    expected = (np.array([0, 2, 1, 0, 0]) + 6 * below) / 9
    np.testing.assert_allclose(chain.mix(node, below, 6.0), expected)


@given(plans, st.integers(0, 3), histories)
def test_saved_chains_come_back(all_plans, order, history):
    chain = MarkovChains.build(all_plans, order, TOOLS)
    restored = MarkovChains.restore(chain.state("x."), "x.", order=order, tools=TOOLS)
    np.testing.assert_array_equal(restored.lookup(0, history), chain.lookup(0, history))
    assert restored.path(0, history) == chain.path(0, history)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("keys", lambda keys: keys[::-1]),
        ("keys", lambda keys: keys[:-1]),
        ("offsets", lambda offsets: offsets + 1),
        ("next_tools", lambda tools: tools + TOOLS),
        ("next_tools", lambda tools: tools - TOOLS),
        ("counts", lambda counts: counts * 0),
        ("counts", lambda counts: counts[None]),
        ("shape", lambda shape: shape[:2]),
        ("shape", lambda shape: shape + 1),
    ],
)
def test_damaged_arrays_are_a_model_error(name, change):
    state = MarkovChains.build([[0, 1], [2, 1, 3]], 2, TOOLS).state("")
    state[name] = change(state[name])
    with pytest.raises(ModelError):
        MarkovChains.restore(state, "", order=2, tools=TOOLS)


def test_chains_of_another_order_are_a_model_error():
    state = MarkovChains.build([[0, 1]], 2, TOOLS).state("")
    with pytest.raises(ModelError, match="another order"):
        MarkovChains.restore(state, "", order=3, tools=TOOLS)
