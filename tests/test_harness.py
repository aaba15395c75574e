from dataclasses import replace

import numpy as np
import pytest

from dtdr.datasets.splits import Split
from dtdr.errors import InputError, OutputError
from dtdr.evaluation import harness, mean_score, read_run_log, run
from dtdr.plan import Plan, ToolCall
from dtdr.retrievers import create
from dtdr.retrievers.random import RandomRetriever
from tests import small_data


class Oracle(RandomRetriever):
    """Knows each plan, and finds its place in it by the history that it is given."""

    def __init__(self, demonstrations):
        super().__init__()
        self.demonstrations = demonstrations

    def parameters(self):
        return {}

    def _probabilities(self, prepared, histories):
        plans = {item.query: item.plan for item in self.demonstrations}
        rows = np.zeros((len(histories), len(self.tools_)))
        for row, query, history in zip(rows, prepared, histories, strict=True):
            names = [self.vocabulary[index] for index in history]
            for tool in plans[query].acceptable_after(names):
                row[self.index(tool)] = 1
        return rows


@pytest.fixture
def dataset():
    return small_data.dataset()


@pytest.fixture
def log(dataset):
    return run(create("random"), dataset, small_data.split())


def test_every_step_of_every_held_out_plan_is_logged_once(log, dataset):
    held_out = dataset.demonstrations[8:]
    expected = [
        (item.id, number, len(item.plan), step.history, tuple(sorted(step.acceptable)))
        for item in held_out
        for number, step in enumerate(item.plan.steps())
    ]
    found = [
        (step.plan, step.step, step.plan_length, step.history, step.acceptable)
        for step in log.steps
    ]
    assert found == expected


def test_ranking_and_probabilities_are_those_of_the_fitted_retriever(log, dataset):
    retriever = create("random").fit(dataset.demonstrations[:8], dataset.tools)
    for step in log.steps:
        query = next(item.query for item in dataset.demonstrations if item.id == step.plan)
        expected = retriever.rank(query, step.history)
        assert tuple(log.header.tools[place] for place in step.ranking) == expected.tools
        np.testing.assert_allclose(step.probabilities, expected.probabilities, atol=1e-6)


def test_retriever_that_knows_the_plans_scores_1(dataset):
    log = run(Oracle(dataset.demonstrations), dataset, small_data.split())
    for metric in ("mrr", "f1", "top1", "recall@5"):
        assert mean_score(log, metric) == 1


def test_header_says_what_was_run_on_what(log):
    header = log.header
    assert (header.dataset, header.synthetic, header.retriever) == ("small", True, "random")
    assert (header.split["name"], header.split["train"], header.split["test"]) == (
        "last-third",
        8,
        4,
    )
    assert header.encoder is None
    assert header.parameters == {"seed": 0}
    assert header.training_data["demonstrations"] == 8
    assert header.tools[-1] == "end"
    assert header.steps == len(log.steps)
    assert header.fit_seconds > 0
    assert header.rank_microseconds_median > 0
    assert set(header.versions) >= {"python", "dtdr", "numpy"}


def test_written_log_is_the_returned_one(dataset, tmp_path):
    path = tmp_path / "runs" / "random.jsonl"
    log = run(create("random"), dataset, small_data.split(), path=path)
    found = read_run_log(path)
    assert found.header == log.header
    for metric in ("mrr", "f1"):
        assert mean_score(found, metric) == mean_score(log, metric)


def test_existing_log_is_not_replaced_without_force(dataset, tmp_path):
    path = tmp_path / "random.jsonl"
    path.write_text("kept", encoding="utf-8")
    with pytest.raises(OutputError, match="--force"):
        run(create("random"), dataset, small_data.split(), path=path)
    assert path.read_text(encoding="utf-8") == "kept"


def test_batches_change_no_ranking(dataset, log, monkeypatch):
    monkeypatch.setattr(harness, "STEPS_AT_ONCE", 3)
    again = run(create("random"), dataset, small_data.split())
    assert len(again.steps) == len(log.steps)
    for mine, theirs in zip(log.steps, again.steps, strict=True):
        np.testing.assert_array_equal(mine.ranking, theirs.ranking)


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
    last = [step for step in log.steps if step.plan == strange.id]
    assert [step.acceptable for step in last] == [("teleport",), ("end",)]
    assert last[0].ranks == ()
    assert last[1].history == ("teleport",)


def test_failed_demonstrations_are_neither_learned_from_nor_tested(dataset):
    failed = [
        replace(item, outcome="failure") if item.id in {"d0", "d11"} else item
        for item in dataset.demonstrations
    ]
    log = run(create("random"), replace(dataset, demonstrations=failed), small_data.split())
    assert log.header.training_data["demonstrations"] == 7
    assert {step.plan for step in log.steps} == {"d8", "d9", "d10"}


def test_plan_without_calls_is_one_step_that_accepts_the_end(dataset):
    empty = replace(dataset.demonstrations[11], plan=Plan(()))
    data = replace(dataset, demonstrations=[*dataset.demonstrations[:11], empty])
    log = run(create("random"), data, small_data.split())
    assert [(step.step, step.acceptable) for step in log.steps if step.plan == empty.id] == [
        (0, ("end",))
    ]


@pytest.mark.parametrize(
    ("side", "split"), [("train", Split("s", (), (1, 2))), ("test", Split("s", (1, 2), ()))]
)
def test_empty_side_of_a_split_is_an_error(dataset, side, split):
    with pytest.raises(InputError, match=f"split 's' leaves nothing on its {side} side"):
        run(create("random"), dataset, split)
