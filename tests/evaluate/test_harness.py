from dataclasses import replace

import pytest

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.plan import Plan
from dtdr.errors import InputError
from dtdr.evaluate import harness, mean_score, run
from dtdr.evaluate.datasets.splits import Split, group_folds
from dtdr.predict import create
from tests import small_data
from tests.helpers import RANKER_ONLY
from tests.runs import records_of


@pytest.fixture
def dataset():
    return small_data.dataset()


@pytest.fixture
def log(dataset):
    return run(create("random"), dataset, small_data.split())


def test_every_step_of_every_held_out_plan_is_logged_once(log, dataset):
    held_out = dataset.demonstrations[8:]
    expected = [
        (item.id, number, len(item.plan), called, sorted(step.acceptable))
        for item in held_out
        for number, (step, called) in enumerate(
            zip(item.plan.steps(), [*item.plan.tools, "end"], strict=True)
        )
    ]
    found = [
        tuple(step[key] for key in ("plan", "step", "plan_length", "called", "acceptable"))
        for step in records_of(log)
    ]
    assert found == expected


def test_the_log_has_the_rankings_of_the_fitted_ranker(log, dataset):
    model = create("random").fit(dataset.demonstrations[:8], dataset.tools, **RANKER_ONLY)
    plans = {item.id: item for item in dataset.demonstrations}
    for step in records_of(log):
        item = plans[step["plan"]]
        expected = model.rank(item.query, item.plan.tools[: step["step"]])
        assert step["best"] == expected.best
        assert step["best_probability"] == pytest.approx(expected.probabilities[0], abs=1e-6)
        assert step["ranks"] == [expected.tools.index(name) + 1 for name in step["acceptable"]]
        probabilities = [expected.probability(name) for name in step["acceptable"]]
        assert step["probabilities"] == pytest.approx(probabilities, abs=1e-6)


def test_header_says_what_was_run_on_what(log):
    header = log.header
    assert (header.dataset, header.synthetic, header.ranker) == ("small", True, "random")
    assert [header.split[name] for name in ("name", "train", "test")] == ["last-third", 8, 4]
    assert (header.encoder, header.parameters, header.tools[-1]) == (None, {"seed": 0}, "end")
    assert header.training_data["demonstrations"] == 8
    assert min(header.fit_seconds, header.rank_microseconds_median) > 0
    assert set(header.versions) >= {"python", "dtdr", "numpy"}


def test_batches_change_no_ranking(dataset, log, monkeypatch):
    monkeypatch.setattr(harness, "STEPS_AT_ONCE", 3)
    again = run(create("random"), dataset, small_data.split())
    assert records_of(again) == records_of(log)


def test_split_hash_tells_which_demonstrations_are_on_which_side(dataset, log):
    same = run(create("random", seed=1), dataset, small_data.split())
    assert same.header.split["sha256"] == log.header.split["sha256"]
    swapped = Split("last-third", (0, 1, 2, 3, 4, 5, 6, 8), (7, 9, 10, 11))
    other = run(create("random"), dataset, swapped)
    assert other.header.split["sha256"] != log.header.split["sha256"]


def test_tool_that_no_training_plan_calls_is_a_miss_and_no_error(dataset):
    strange = replace(dataset.demonstrations[11], plan=Plan((ToolCall("1", "teleport"),)))
    data = replace(dataset, demonstrations=[*dataset.demonstrations[:11], strange], tools=())
    log = run(create("random"), data, small_data.split())
    last = [step for step in records_of(log) if step["plan"] == strange.id]
    assert [step["acceptable"] for step in last] == [["teleport"], ["end"]]
    assert [step["called"] for step in last] == ["teleport", "end"]
    assert last[0]["ranks"] == [None]


def test_failed_demonstrations_are_learned_from_and_not_tested(dataset):
    failed = [
        replace(item, outcome="failure") if item.id in {"d0", "d11"} else item
        for item in dataset.demonstrations
    ]
    log = run(create("random"), replace(dataset, demonstrations=failed), small_data.split())
    assert log.header.training_data["demonstrations"] == 8
    assert set(log.plan_ids) == {"d8", "d9", "d10"}


def test_plan_without_calls_is_one_step_that_accepts_the_end(dataset):
    empty = replace(dataset.demonstrations[11], plan=Plan(()))
    data = replace(dataset, demonstrations=[*dataset.demonstrations[:11], empty])
    log = run(create("random"), data, small_data.split())
    steps = [step for step in records_of(log) if step["plan"] == empty.id]
    assert [(step["step"], step["acceptable"]) for step in steps] == [(0, ["end"])]


@pytest.mark.parametrize(
    ("side", "split"), [("train", Split("s", (), (1, 2))), ("test", Split("s", (1, 2), ()))]
)
def test_empty_side_of_a_split_is_an_error(dataset, side, split):
    with pytest.raises(InputError, match=f"split 's' leaves nothing on its {side} side"):
        run(create("random"), dataset, split)


def demonstrate_parallel():
    before = (Message("user", "Hello"), ToolCall("e", "log", output="ok", status="ok"))
    calls = (
        ToolCall("1", "read_file", {"path": "a"}, "text", "ok", 1),
        ToolCall("2", "summarize", {}, "short", "ok", 2),
        ToolCall("3", "send_mail", {}, None, "error", 2),
    )
    return Demonstration("p", "Go on", Plan(calls, (), before[1:]), before=before)


def test_a_step_knows_what_the_agent_knew():
    item = demonstrate_parallel()
    first, second, third = item.plan.calls
    told = ToolCall("2", "summarize", step=2)  # it had not returned when the third was made
    known = [(), (first,), (first, told), (first, second, third)]
    runs = [harness.run_before(item, done) for done in range(4)]
    assert [run.calls for run in runs] == [[*calls] for calls in known]
    assert all(run.before == item.before for run in runs)
    assert harness.run_before(item, 3, history=1).history == ("send_mail",)


def test_folds_hold_out_everything_once_and_no_group_twice(dataset):
    demonstrations = [
        replace(item, group=f"g{number % 7}") for number, item in enumerate(dataset.demonstrations)
    ]
    folds = group_folds(demonstrations, 3, seed=1)
    assert sorted(index for fold in folds for index in fold.test) == [*range(len(demonstrations))]
    for fold in folds:
        assert sorted((*fold.train, *fold.test)) == [*range(len(demonstrations))]
        sides = [{demonstrations[i].group for i in side} for side in (fold.train, fold.test)]
        assert not sides[0] & sides[1]
    assert folds == group_folds(demonstrations, 3, seed=1)
    with pytest.raises(InputError, match="8 folds need as many groups"):
        group_folds(demonstrations, 8)
    with pytest.raises(InputError, match="at least 2"):
        group_folds(demonstrations, 1)


def test_the_log_of_folds_is_those_of_its_splits_together(dataset):
    folds = group_folds(dataset.demonstrations, 3)
    whole = run(create("dtdr-c"), dataset, *folds)
    parts = [run(create("dtdr-c"), dataset, fold) for fold in folds]
    assert len(whole) == sum(map(len, parts))
    for name in ("mrr", "f1", "log_mrr", "recall@5"):
        total = sum(mean_score(part, name) * len(part) for part in parts)
        assert mean_score(whole, name) == pytest.approx(total / len(whole))
    assert whole.header.split["test"] == len(dataset.demonstrations)
    assert whole.header.tools[-1] == "end"


def test_tools_that_a_fold_has_not_learned_are_not_ranked_there(dataset):
    calls = (ToolCall("1", "teleport"), ToolCall("2", "read_file"))
    odd = Demonstration("odd", "Beam it", Plan(calls), group="odd")
    data = replace(dataset, demonstrations=[*dataset.demonstrations, odd], tools=())
    log = run(create("dr"), data, *group_folds(data.demonstrations, 2))
    (step,) = [one for one in records_of(log) if one["called"] == "teleport"]
    assert dict(zip(step["acceptable"], step["ranks"], strict=True))["teleport"] is None
