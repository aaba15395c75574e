import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdr.errors import InputError
from dtdr.evaluate import compare
from dtdr.evaluate.metrics import by_plan
from tests.runs import make_log, make_step, steps_of_plans

GOOD, BAD = [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]


def plans_of(rankings, acceptable=("alpha",)):
    """A log with one step a plan, one ranking each."""
    return make_log(
        [
            make_step(ranking, list(acceptable), plan=f"p{number}")
            for number, ranking in enumerate(rankings)
        ]
    )


@settings(max_examples=30)
@given(data=st.data())
def test_a_comparison_is_bounded_and_depends_neither_on_side_nor_order(data):
    steps = data.draw(steps_of_plans())
    first, second = make_log(steps), make_log(data.draw(steps_of_plans(like=steps)))
    there, back = (compare(*pair, permutations=200) for pair in ((first, second), (second, first)))
    assert 0 < there.p_value == back.p_value <= 1
    assert -1 <= there.low <= there.high <= 1
    assert there.difference == pytest.approx(there.second_by_plan - there.first_by_plan)
    expected = (-there.difference, -there.high, -there.low)
    assert (back.difference, back.low, back.high) == pytest.approx(expected)
    shuffled = make_log(data.draw(st.permutations(steps)))
    assert compare(shuffled, second, permutations=200) == there


def test_run_compared_with_itself_shows_no_difference():
    log = plans_of([GOOD, BAD, GOOD])
    found = compare(log, log)
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_p_value_is_that_of_all_sign_flips():
    second = [GOOD, GOOD, GOOD, BAD, GOOD, GOOD, BAD, GOOD]
    first = [BAD] * 4 + [GOOD] * 4
    left, right = plans_of(first), plans_of(second)
    differences = [
        by_plan(right, "mrr")[plan].value - by_plan(left, "mrr")[plan].value
        for plan in by_plan(left, "mrr")
    ]
    observed = abs(sum(differences))
    flips = itertools.product([-1, 1], repeat=len(differences))
    exact = np.mean(
        [abs(sum(np.multiply(signs, differences))) >= observed - 1e-9 for signs in flips]
    )
    assert compare(left, right).p_value == pytest.approx(exact, abs=0.015)


def test_interval_is_close_to_the_normal_one_for_many_plans():
    draw = np.random.default_rng(0)
    rankings = [[list(draw.permutation(5)) for _ in range(400)] for _ in range(2)]
    left, right = plans_of(rankings[0]), plans_of(rankings[1])
    differences = [
        right_mean.value - left_mean.value
        for left_mean, right_mean in zip(
            by_plan(left, "mrr").values(), by_plan(right, "mrr").values(), strict=True
        )
    ]
    half = 1.96 * np.std(differences, ddof=1) / np.sqrt(len(differences))
    found = compare(left, right)
    assert found.low == pytest.approx(np.mean(differences) - half, abs=0.1 * half)
    assert found.high == pytest.approx(np.mean(differences) + half, abs=0.1 * half)


def test_steps_of_one_plan_count_as_one_observation():
    steps = [make_step(BAD, ["alpha"], plan="p", step=number, plan_length=9) for number in range(9)]
    better = [
        make_step(GOOD, ["alpha"], plan="p", step=number, plan_length=9) for number in range(9)
    ]
    found = compare(make_log(steps), make_log(better))
    assert found.plans == 1
    assert found.p_value == 1


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (plans_of([GOOD] * 3), plans_of([GOOD] * 2), "step 0 of plan 'p2' is in one"),
        (plans_of([GOOD]), plans_of([GOOD], acceptable=["beta"]), "step 0 of plan 'p0'"),
        (make_log([]), make_log([]), "nothing to compare"),
    ],
)
def test_runs_over_other_steps_are_refused(first, second, said):
    with pytest.raises(InputError, match=said):
        compare(first, second)
