import pytest
from hypothesis import given

from dtdr.errors import InputError
from dtdr.evaluate.lab.summary import against_best, mean_of, plan_means, summarize
from dtdr.evaluate.metrics import mean_score
from dtdr.evaluate.statistics import Interval, holm, over_splits, paired_p_value
from tests.runs import logs, make_log, make_step


@given(logs())
def test_the_curve_is_the_share_of_next_tools_at_every_depth(log):
    found = summarize(log)
    for k in range(1, len(found.next_shown) + 1):
        assert found.next_shown[k - 1] == pytest.approx(mean_score(log, f"tool_recall@{k}"))


def test_a_log_without_steps_has_no_summary():
    with pytest.raises(InputError, match="no steps"):
        summarize(make_log([]))


def test_a_plan_that_is_held_out_twice_counts_with_its_mean():
    first = make_log([make_step([0, 1, 2, 3, 4], ["alpha"], plan="a")])
    second = make_log([make_step([1, 0, 2, 3, 4], ["alpha"], plan=name) for name in "ab"])
    assert plan_means([summarize(first), summarize(second)], "mrr") == {"a": 0.75, "b": 0.5}


def test_a_mean_over_splits_has_students_interval():
    found = over_splits([0.5, 0.6, 0.7])
    # t(.975, 2) = 4.3027, standard deviation .1
    assert found.value == pytest.approx(0.6)
    assert found.half_width == pytest.approx(4.3027 * 0.1 / 3**0.5, abs=1e-4)
    assert over_splits([0.5, 0.5]) == Interval(0.5)


def test_one_run_has_an_interval_over_its_plans():
    steps = [make_step([0, 1, 2, 3, 4], ["alpha" if n % 2 else "beta"], plan=f"p{n}")
             for n in range(40)]  # fmt: skip
    found = mean_of([summarize(make_log(steps))], "mrr")
    assert found.value == pytest.approx(0.75)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.75 < found.high


def test_holm_multiplies_the_smallest_most_and_never_falls():
    # Holm (1979): sorted p times m, m - 1, ..., made monotone.
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    )
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


def test_a_method_that_is_always_better_is_told_from_one_that_is_not():
    good = [make_step([0, 1, 2, 3, 4], ["alpha"], plan=f"p{n}") for n in range(30)]
    bad = [make_step([1, 0, 2, 3, 4], ["alpha"], plan=f"p{n}") for n in range(30)]
    runs = {"bad": [summarize(make_log(bad))], "good": [summarize(make_log(good))]}
    best, adjusted = against_best(runs, "mrr")
    assert best == "good"
    assert adjusted["bad"] < 0.001
    same = plan_means(runs["good"], "mrr")
    assert paired_p_value(same, same) == 1.0


def test_runs_without_a_common_plan_are_not_compared():
    assert paired_p_value({"a": 1.0}, {"b": 0.0}) is None
