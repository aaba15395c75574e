"""Splits: fixed ones as they stand in their files, the paper's, and by group."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdr import Demonstration, Plan, ToolCall
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.splits import (
    Split,
    default_split,
    fixed_split,
    group_split,
    paper_split,
    read_split,
    time_order,
    time_split,
)


@cache
def loaded(name, folder):
    """A real set, read once: the tests that follow only look at it."""
    return datasets.load(name, data_dir=folder)


FIXED = {
    ("tinyagent", None): (1058, 454),
    ("t_eval", None): (387, 166),
    ("ultratool", None): (2468, 1059),
    ("traject_bench", None): (1169, 501),
    ("traject_bench", "by_sequence"): (1140, 530),
}


def demonstration(index, tools, group=""):
    calls = tuple(ToolCall(str(position), tool) for position, tool in enumerate(tools))
    return Demonstration(str(index), f"query {index}", Plan(calls), group=group)


sets = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abcdef"), max_size=5), st.sampled_from(["", "g", "h", "i"])
    ),
    min_size=2,
    max_size=60,
).map(lambda rows: [demonstration(index, *row) for index, row in enumerate(rows)])


def covers(split, size):
    return sorted((*split.train, *split.test)) == list(range(size))


@pytest.mark.parametrize(("name", "variant"), FIXED)
def test_fixed_splits_cover_their_sets(name, variant, data_dir):
    dataset = loaded(name, data_dir)
    split = fixed_split(name, data_dir, variant, records=len(dataset))
    assert (len(split.train), len(split.test)) == FIXED[name, variant]
    assert covers(split, len(dataset))


@given(sets, st.integers(0, 5), st.sampled_from([0.1, 0.3, 0.5]))
@settings(max_examples=settings().max_examples)
def test_paper_split_covers_the_set_once_and_leaves_no_side_empty(demonstrations, seed, test):
    split = paper_split(demonstrations, seed, test)
    assert covers(split, len(demonstrations))
    assert split.train
    assert split.test
    assert split == paper_split(demonstrations, seed, test)


@given(sets, st.integers(0, 5))
@settings(max_examples=settings().max_examples)
def test_group_split_never_puts_a_group_on_both_sides(demonstrations, seed):
    if len({item.group or item.id for item in demonstrations}) < 2:
        with pytest.raises(InputError, match="of one group"):
            group_split(demonstrations, seed)
        return
    split = group_split(demonstrations, seed)
    assert covers(split, len(demonstrations))
    assert split.train
    assert split.test
    learned = {item.group for item in split.training(demonstrations) if item.group}
    assert learned.isdisjoint(item.group for item in split.testing(demonstrations))
    assert split == group_split(demonstrations, seed)


def test_paper_split_keeps_the_share_of_every_tool(data_dir):
    demonstrations = loaded("tinyagent", data_dir).demonstrations
    split = paper_split(demonstrations, seed=1)
    total = Counter(tool for item in demonstrations for tool in item.plan.tools)
    tested = Counter(tool for item in split.testing(demonstrations) for tool in item.plan.tools)
    for tool, count in total.items():
        assert tested[tool] / count == pytest.approx(0.3, abs=0.03), tool
    assert len(split.test) / len(demonstrations) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("draw", [paper_split, group_split])
def test_what_cannot_be_split_is_refused(draw):
    for test in (0, 1, -0.3):
        with pytest.raises(InputError, match="must be between 0 and 1"):
            draw([demonstration(0, "a"), demonstration(1, "b")], 0, test)
    with pytest.raises(InputError, match="give at least two"):
        draw([demonstration(0, "a")])


def test_default_split_is_the_fixed_one_and_by_group_for_the_bundled_set(data_dir):
    dataset = loaded("t_eval", data_dir)
    assert default_split(dataset) == fixed_split("t_eval", data_dir)
    bundled = datasets.load("bundled")
    split = default_split(bundled, seed=4)
    assert split == group_split(bundled.demonstrations, 4)


def test_the_fixed_split_is_of_the_published_set_only(data_dir):
    dataset = loaded("t_eval", data_dir)
    shorter = replace(dataset, demonstrations=dataset.demonstrations[:-1])
    assert default_split(shorter, data_dir, 2) == paper_split(shorter.demonstrations, 2)
    own = replace(dataset, folder=None)  # a user's file of the same name
    assert default_split(own, data_dir) == paper_split(own.demonstrations)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "a JSON object is needed"),
        ('{"train": [0]}', "'test' is missing"),
        ('{"train": [0], "test": "1"}', "'test' is str, expected list"),
        ('{"train": [], "test": [1]}', "a side is empty"),
        ('{"train": [0, 3], "test": [1]}', "3 is not a position from 0 to below 3"),
        ('{"train": [0, true], "test": [1]}', "True is not a position"),
        ('{"train": [0, 1], "test": [1]}', "a position is there twice"),
        ('{"train": [0], "test": [1], "records": 5}', "splits 5 records, but there are 3"),
    ],
)
def test_bad_split_file_says_what_is_wrong(content, reason, tmp_path):
    path = tmp_path / "split.json"
    path.write_text(content)
    with pytest.raises(InputError, match=reason) as error:
        read_split(path, records=3)
    assert str(path) in str(error.value)


def test_missing_split_files_are_named(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_split(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"no split t_eval_by_moon.json in .*choose another"):
        fixed_split("t_eval", tmp_path, "by-moon")


def test_a_split_by_time_tests_the_latest():
    first = datetime(2026, 1, 1, tzinfo=UTC)
    items = [
        Demonstration(str(day), "q", Plan(()), time=first + timedelta(days=day))
        for day in (3, 0, 2, 1)
    ]
    assert time_order(items) == [1, 3, 2, 0]
    assert time_split(items) == Split("time", (1, 2, 3), (0,))
    unknown = [Demonstration("9", "q", Plan(())), *items[1:]]
    assert time_split(unknown) == Split("time", (0, 1, 2), (3,))
    assert time_split(items[:2]).train == (1,)
