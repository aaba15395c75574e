import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.errors import InputError
from dtdr.evaluate import metrics
from tests.runs import TOOLS, Step, logs, make_log, make_step, records_of, steps_of_plans

EVERY = ("mrr", "f1", "top1", "recall@1", "recall@2", "recall@5", "hit@1", "hit@3")


@pytest.fixture(scope="module")
def many():
    """2,000 steps with random rankings and one to four acceptable tools, some of them unknown."""
    draw = random.Random(0)
    names = (*TOOLS, "unknown")
    return [
        make_step(
            draw.sample(range(len(TOOLS)), len(TOOLS)),
            draw.sample(names, draw.randint(1, 4)),
            plan=f"p{number}",
        )
        for number in range(2_000)
    ]


def score(step, name):
    """One metric of one step."""
    (value,) = metrics.metric(name)(make_log([step]))
    return value


def ranx_mean(steps, metric):
    """What ranx makes of the same rankings and acceptable tools."""
    from ranx import Qrels, Run, evaluate

    run = {
        step["plan"]: {
            TOOLS[place]: float(len(TOOLS) - order) for order, place in enumerate(step["ranking"])
        }
        for step in steps
    }
    qrels = {step["plan"]: dict.fromkeys(step["acceptable"], 1) for step in steps}
    return evaluate(Qrels(qrels), Run(run), metric, threads=1)


# What ranx 0.3 makes of ``many``; by its name for each metric.
RANX = {
    "mrr": ("mrr", 0.61885),
    "top1": ("precision@1", 0.4125),
    "recall@2": ("recall@2", 0.3314583333),
    "recall@5": ("recall@5", 0.8335833333),
    "hit@3": ("hit_rate@3", 0.806),
}
RANX_F1 = {1: 0.185546875, 2: 0.3138832998, 3: 0.4897959184, 4: 0.6691616766}
"""F1 at k of the steps with k acceptable tools."""


def steps_that_accept(k, steps):
    return [step for step in steps if len(step["acceptable"]) == k]


@pytest.mark.parametrize("name", RANX)
def test_metric_agrees_with_ranx(name, many):
    assert metrics.mean_score(make_log(many), name) == pytest.approx(RANX[name][1])


@pytest.mark.parametrize("k", RANX_F1)
def test_f1_agrees_with_ranx_at_the_number_of_acceptable_tools(k, many):
    log = make_log(steps_that_accept(k, many))
    assert metrics.mean_score(log, "f1") == pytest.approx(RANX_F1[k])


@pytest.mark.slow  # ranx compiles its metrics first
@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaTypeSafetyWarning")
def test_values_of_ranx_are_still_what_ranx_gives(many):
    for theirs, value in RANX.values():
        assert ranx_mean(many, theirs) == pytest.approx(value)
    for k, value in RANX_F1.items():
        assert ranx_mean(steps_that_accept(k, many), f"f1@{k}") == pytest.approx(value)


@given(log=logs(), name=st.sampled_from(EVERY))
def test_scores_are_between_0_and_1(log, name):
    values = metrics.metric(name)(log)
    assert values.shape == (len(log),)
    assert ((values >= 0) & (values <= 1)).all()


@given(data=st.data())
def test_order_of_the_lines_changes_no_score(data):
    steps = data.draw(steps_of_plans())
    log, shuffled = make_log(steps), make_log(data.draw(st.permutations(steps)))
    for name in EVERY:
        assert metrics.mean_score(log, name) == metrics.mean_score(shuffled, name)
        assert metrics.by_step(log, name) == metrics.by_step(shuffled, name)
        assert metrics.by_plan(log, name) == metrics.by_plan(shuffled, name)


@given(log=logs(), name=st.sampled_from(EVERY))
def test_means_by_step_length_and_plan_weighted_by_steps_give_the_overall_mean(log, name):
    for grouped in (metrics.by_step, metrics.by_plan_length, metrics.by_plan):
        means = grouped(log, name).values()
        assert sum(mean.steps for mean in means) == len(log)
        total = sum(mean.value * mean.steps for mean in means)
        assert total / len(log) == pytest.approx(metrics.mean_score(log, name))


def test_acceptable_tool_that_the_ranker_never_saw_is_a_miss():
    step = make_step([0, 1, 2, 3, 4], ["teleport"])
    assert [score(step, name) for name in EVERY] == [0.0] * len(EVERY)


def test_f1_counts_what_is_retrieved_when_fewer_tools_are_known_than_acceptable():
    log = make_log([make_step([0], ["alpha", "beta", "gamma"])], tools=["alpha"])
    precision, recall = 1, 1 / 3
    expected = 2 * precision * recall / (precision + recall)
    assert metrics.mean_score(log, "f1") == pytest.approx(expected)


@pytest.mark.parametrize("name", ["ndcg", "recall", "recall@", "recall@0", "recall@x", "mrr@5", ""])
def test_unknown_metric_is_an_error_that_says_what_is_expected(name):
    with pytest.raises(InputError, match=r"recall@(k|5)"):
        metrics.metric(name)


def test_of_parallel_calls_the_best_ranked_counts_for_the_log():
    more: Step = {"called": "beta", "next_in_log": ["beta", "gamma"]}
    log = make_log([make_step([2, 0, 1, 3, 4], ["alpha", "beta", "gamma"], **more)])
    assert log.log_rank.tolist() == [1]
    assert records_of(log)[0]["next_in_log"] == ["beta", "gamma"]
    assert metrics.mean_score(log, "log_top1") == 1
    other = make_log([make_step([0, 2, 1, 3, 4], ["alpha", "beta", "gamma"], **more)])
    assert metrics.mean_score(other, "top1") == 1
    assert metrics.mean_score(other, "log_top1") == 0
    assert metrics.mean_score(other, "log_mrr") == 0.5
