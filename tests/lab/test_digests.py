import numpy as np
import pytest
from hypothesis import given

from dtdr.evaluation.metrics import metric
from dtdr.evaluation.scores import by_plan, mean_score
from dtdr.lab.digest import METRICS, digest
from dtdr.lab.inference import (
    Interval,
    against_best,
    holm,
    mean_of,
    over_splits,
    paired_p_value,
    plan_means,
)
from dtdr.lab.kinds.rank import records_of
from dtdr.lab.log import LabLog
from tests.runs import logs, make_log, make_step


def digest_of(log):
    records = tuple(records_of(log.steps))
    return digest(LabLog({"tools": list(log.header.tools), "train": 1, "test": 1}, records))


@given(logs())
def test_a_digest_has_the_means_that_the_metrics_give_for_the_full_log(log):
    found = digest_of(log)
    for name in METRICS:
        assert found.means[name] == pytest.approx(mean_score(log, name))
        means = {plan: mean.value for plan, mean in by_plan(log, name).items()}
        assert dict(zip(found.plans, found.by_plan[name], strict=True)) == pytest.approx(means)
    for k in range(1, len(found.recall) + 1):
        assert found.recall[k - 1] == pytest.approx(mean_score(log, f"recall@{k}"))
        assert found.hit[k - 1] == pytest.approx(mean_score(log, f"hit@{k}"))


@given(logs())
def test_a_threshold_shows_what_selecting_by_it_would(log):
    found = digest_of(log)
    for cut, (shown, hit) in found.sweep.items():
        kept = [max(1, int((step.probabilities > cut).sum())) for step in log.steps]
        assert shown == pytest.approx(np.mean(kept))
        hits = [metric(f"hit@{k}")(step) for k, step in zip(kept, log.steps, strict=True)]
        assert hit == pytest.approx(np.mean(hits))


def test_top1_is_counted_by_plan_length():
    steps = [
        make_step([0, 1, 2, 3, 4], ["alpha"], plan="a", plan_length=1),
        make_step([1, 0, 2, 3, 4], ["alpha"], plan="b", plan_length=2),
        make_step([1, 0, 2, 3, 4], ["beta"], plan="b", step=1, plan_length=2),
    ]
    assert digest_of(make_log(steps)).top1_by_length == {1: (1, 1), 2: (1, 2)}


def test_a_mean_over_splits_has_students_interval():
    found = over_splits([0.5, 0.6, 0.7])
    # t(.975, 2) = 4.3027, standard deviation .1
    assert found.value == pytest.approx(0.6)
    assert found.half_width == pytest.approx(4.3027 * 0.1 / 3**0.5, abs=1e-4)


def test_two_splits_have_no_students_interval():
    assert over_splits([0.5, 0.5]) == Interval(0.5)


def test_one_run_has_an_interval_over_its_plans():
    steps = [make_step([0, 1, 2, 3, 4], ["alpha" if n % 2 else "beta"], plan=f"p{n}")
             for n in range(40)]  # fmt: skip
    found = mean_of([digest_of(make_log(steps))], "mrr")
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
    runs = {"bad": [digest_of(make_log(bad))], "good": [digest_of(make_log(good))]}
    best, adjusted = against_best(runs, "mrr")
    assert best == "good"
    assert adjusted["bad"] < 0.001
    same = plan_means(runs["good"], "mrr")
    assert paired_p_value(same, same) == 1.0


def test_runs_without_a_common_plan_are_not_compared():
    assert paired_p_value({"a": 1.0}, {"b": 0.0}) is None
