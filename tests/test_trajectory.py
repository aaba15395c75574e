"""Whether a plan matches the expected one, in each mode."""

import itertools
import json
import random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr import Plan, Run, ToolCall
from dtdr.errors import InputError
from dtdr.evaluation.trajectory import Mode, as_plan, matches
from dtdr.evaluation.trajectory import mismatch as find_mismatch
from tests import strategies

pytest_plugins = ["pytester"]


def mismatch(*plans, **options):
    return find_mismatch(*plans, **options) or ""


MAIL = {
    "calls": [
        {"id": "a", "tool": "find_email", "arguments": {"name": "Ann"}},
        {"id": "b", "tool": "open_file", "arguments": {"path": "q3.pdf"}},
        {
            "id": "c",
            "tool": "send",
            "arguments": {"to": {"$ref": "a"}, "text": {"$ref": "b", "path": "/text"}},
        },
    ]
}


@pytest.mark.parametrize(
    ("actual", "right"),
    [
        (["find_email", "open_file", "send"], "strict unordered subset superset dependencies"),
        (["open_file", "find_email", "send"], "unordered subset superset dependencies"),
        (["open_file", "send", "find_email"], "unordered subset superset"),
        (["open_file", "send"], "subset"),
        (["find_email", "open_file", "send", "send"], "superset"),
        (["find_email", "find_email", "open_file", "send"], "superset"),
        (["delete", "open_file"], ""),
        ([], "subset"),
    ],
)
def test_each_mode_accepts_what_it_says(actual, right):
    modes = ["strict", "unordered", "subset", "superset", "dependencies"]
    assert [mode for mode in modes if matches(actual, MAIL, cast(Mode, mode))] == right.split()


def test_a_dag_is_the_same_in_another_order_and_not_with_another_edge():
    swapped = {"calls": [MAIL["calls"][1], MAIL["calls"][0], MAIL["calls"][2]]}
    assert matches(swapped, MAIL, "dag", arguments=True)
    loose = [{**call, "arguments": {}} for call in MAIL["calls"]]
    assert "in another way" in mismatch(loose, MAIL, "dag")
    assert mismatch(["send"], MAIL, "dag").startswith("missing: find_email")


def test_references_are_compared_by_the_call_that_they_mean():
    renamed = [
        {"id": "1", "tool": "open_file", "arguments": {"path": "q3.pdf"}},
        {"id": "2", "tool": "find_email", "arguments": {"name": "Ann"}},
        {
            "id": "3",
            "tool": "send",
            "arguments": {"to": {"$ref": "2"}, "text": {"$ref": "1", "path": "/text"}},
        },
    ]
    assert matches(renamed, MAIL, arguments=True)
    wrong = [*renamed[:2], {**renamed[2], "arguments": {"to": {"$ref": "1"}, "text": "x"}}]
    assert matches(wrong, MAIL, "unordered")
    assert mismatch(wrong, MAIL, arguments=True).splitlines() == [
        'not expected: send {"to": {"$ref": "1"}, "text": "x"}',
        'missing: send {"to": {"$ref": "a"}, "text": {"$ref": "b", "path": "/text"}}',
    ]


def test_arguments_are_compared_as_the_caller_says():
    made = [{"tool": "find_email", "arguments": {"name": " ann"}}]
    wanted = [{"tool": "find_email", "arguments": {"name": "Ann"}}]
    assert not matches(made, wanted, arguments=True)

    def loosely(left, right):
        return left["name"].strip().lower() == right["name"].strip().lower()

    assert all(matches(made, wanted, mode, arguments=loosely) for mode in ("strict", "dag"))


def test_two_calls_of_one_tool_are_assigned_so_that_most_fit():
    either = lambda left, right: right["x"] in left["x"]  # noqa: E731
    made = [{"tool": "f", "arguments": {"x": "ab"}}, {"tool": "f", "arguments": {"x": "a"}}]
    wanted = [{"tool": "f", "arguments": {"x": "a"}}, {"tool": "f", "arguments": {"x": "b"}}]
    assert matches(made, wanted, "unordered", arguments=either)


def test_a_run_a_plan_and_names_are_all_plans():
    run = Run("q", calls=[ToolCall("1", "f"), ToolCall("2", "g")])
    assert as_plan(run).tools == as_plan(["f", "g"]).tools == as_plan(as_plan(["f", "g"])).tools


@pytest.mark.parametrize("value", ["send", 3, [1], {"calls": "send"}])
def test_what_is_not_a_plan_is_named(value):
    with pytest.raises(InputError):
        matches(value, [])


def test_an_unknown_mode_names_those_there_are():
    with pytest.raises(InputError, match="'loose'; choose one of dag, dependencies"):
        matches([], [], cast(Mode, "loose"))


@given(strategies.plans(max_calls=5))
def test_dependencies_accept_just_the_topological_orders(plan):
    orders = {
        tuple(plan.calls[i].tool for i in order)
        for order in itertools.permutations(range(len(plan)))
        if all(order.index(parent) < order.index(child) for parent, child in plan.edges())
    }
    for order in set(itertools.permutations(plan.tools)):
        assert matches(list(order), plan) == (order in orders)


@given(strategies.plans(max_calls=4), strategies.plans(max_calls=4), st.randoms())
def test_dags_are_the_same_where_some_assignment_of_calls_keeps_tools_and_edges(plan, other, rng):
    if rng.random() < 0.7:  # the same calls in another order, maybe with one edge less
        order = list(range(len(plan)))
        rng.shuffle(order)
        calls = [ToolCall(str(i), plan.calls[i].tool) for i in order]
        edges = list(plan.edges())
        links = [(str(a), str(b)) for a, b in edges if len(edges) < 2 or rng.random() < 0.9]
        other = Plan.in_order(calls, links)
    wanted, others = set(plan.edges()), set(other.edges())
    same = len(plan) == len(other) and any(
        all(plan.calls[i].tool == other.calls[j].tool for i, j in enumerate(places))
        and {(places[a], places[b]) for a, b in wanted} == others
        for places in itertools.permutations(range(len(plan)))
    )
    assert matches(plan, other, "dag") is same


@given(strategies.plans())
def test_every_plan_matches_itself_in_every_mode(plan):
    for mode in ("strict", "unordered", "subset", "superset", "dag", "dependencies"):
        assert mismatch(plan, plan, mode, arguments=True) == ""


def test_many_parallel_calls_of_one_tool_that_do_not_match_end():
    calls = [ToolCall(str(i), "f") for i in range(40)]
    wanted = Plan((*calls, ToolCall("last", "g", {"x": [{"$ref": str(i)} for i in range(40)]})))
    made = [*["f"] * 39, "g", "f"]
    assert "comes before" in mismatch(made, wanted)


def test_the_fixture_fails_a_test_with_what_is_missing(pytester):
    pytester.makepyfile(
        """
        def test_right(assert_plan):
            assert_plan(["a", "b"], ["b", "a"], "unordered")

        def test_wrong(assert_plan):
            assert_plan(["a"], ["a", "b"])
        """
    )
    result = pytester.runpytest_subprocess("-p", "dtdr.pytest_plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*the plan does not match (dependencies):*", "missing: b"])


def messages_of(calls):
    """A conversation in which an agent makes these calls one by one, as agentevals reads it."""
    made = [
        {"function": {"name": call["tool"], "arguments": json.dumps(call["arguments"])}}
        for call in calls
    ]
    return [{"role": "assistant", "content": "", "tool_calls": [call]} for call in made]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["strict", "unordered", "subset", "superset"])
@pytest.mark.parametrize("arguments", [False, True])
def test_four_modes_agree_with_agentevals(mode, arguments):
    match = pytest.importorskip(
        "agentevals.trajectory.match", reason="pip install agentevals compares with it"
    )
    judge = match.create_trajectory_match_evaluator(
        trajectory_match_mode=mode, tool_args_match_mode="exact" if arguments else "ignore"
    )
    kinds = [
        {"tool": "f", "arguments": {"x": 1}},
        {"tool": "f", "arguments": {"x": 2}},
        {"tool": "g", "arguments": {}},
    ]
    plans = [list(plan) for size in range(3) for plan in itertools.product(kinds, repeat=size)]
    draw = random.Random(0)
    longer = [draw.choices(kinds, k=draw.randint(3, 5)) for _ in range(24)]
    turned = [plan[::-1] for plan in longer]
    pairs = [*itertools.product(plans, plans), *zip(longer, turned, strict=True)]
    pairs += itertools.pairwise(longer)
    verdicts = set()
    for actual, expected in pairs:
        theirs = judge(outputs=messages_of(actual), reference_outputs=messages_of(expected))
        assert matches(actual, expected, mode, arguments=arguments) is bool(theirs["score"])
        verdicts.add(bool(theirs["score"]))
    assert verdicts == {True, False}
