"""Markov chains against the paper's Algorithm 2 written with dictionaries."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.errors import ModelError
from dtdr.rankers import markov
from dtdr.rankers.markov import MarkovChains, flatten

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


def build(all_plans, order, labels=None):
    return MarkovChains(flatten(all_plans, TOOLS), order, TOOLS, labels)


def context(history, order):
    return tuple((["start"] * order + list(history))[len(history) :])


@given(plans, st.integers(0, 4), histories)
def test_a_lookup_is_what_the_papers_algorithm_counts(all_plans, order, history):
    counts = dictionaries(all_plans, order)[context(history, order)]
    expected = np.array([counts[tool] for tool in range(TOOLS)], float)
    chain = build(all_plans, order)
    np.testing.assert_allclose(
        chain.lookup(0, history), expected / expected.sum() if counts else expected
    )


@given(plans, st.integers(0, 4), histories, st.integers(1, 3))
def test_each_group_counts_its_own_plans_only(all_plans, order, history, groups):
    # Every group has a plan: the first ones go round.
    all_plans = [*[[0]] * groups, *all_plans]
    group_of = [number % groups for number in range(len(all_plans))]
    together = build(all_plans, order, np.array(group_of))
    for group in range(groups):
        alone = build(all_plans[group::groups], order)
        np.testing.assert_array_equal(together.lookup(group, history), alone.lookup(0, history))


@given(plans, histories)
def test_a_path_holds_the_counts_of_every_shorter_history(all_plans, history):
    chain = build(all_plans, 3)
    path = chain.path(0, history)
    for order, node in enumerate(path):
        counts = dictionaries(all_plans, order)[context(history, order)]
        part = slice(chain.offsets[node], chain.offsets[node + 1])
        found = dict(zip(chain.next_tools[part].tolist(), chain.counts[part].tolist(), strict=True))
        assert found == counts
    if len(path) <= 3:
        assert not dictionaries(all_plans, len(path))[context(history, len(path))]


def test_mixing_counts_the_estimate_below_as_further_calls():
    chain = build([[0, 1], [0, 2], [0, 1]], 1)
    below = np.array([0.1, 0.2, 0.3, 0.0, 0.4])
    node = chain.path(0, [0])[1]
    expected = (np.array([0, 2, 1, 0, 0]) + 6 * below) / 9
    np.testing.assert_allclose(chain.mix(node, below, 6.0), expected)


@pytest.mark.parametrize(
    ("calls", "labels"),
    [
        ([], []),
        ([0, 1], [0]),
        ([0, TOOLS, TOOLS - 1], [0]),
        ([-1, TOOLS - 1], [0]),
        ([0, TOOLS - 1], [0, 0]),
        ([0, TOOLS - 1], [1]),
        ([0, TOOLS - 1], [-1]),
        ([TOOLS - 1, TOOLS - 1], [0, 2]),
        ([TOOLS - 1] * 10, [0] * 10),
    ],
)
def test_damaged_and_too_many_plans_are_a_model_error(calls, labels, monkeypatch):
    monkeypatch.setattr(markov, "MAX_COUNTED", 29)
    with pytest.raises(ModelError):
        MarkovChains(np.array(calls, np.int64), 2, TOOLS, np.array(labels, np.int64))
