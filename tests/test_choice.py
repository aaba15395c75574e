"""What dtdr-f chooses by itself: blocks and folds."""

from typing import Any

import numpy as np
import pytest

from dtdr import Demonstration, Tool, load
from dtdr.cli import run
from dtdr.errors import InputError
from dtdr.retrievers.factored import choice
from dtdr.retrievers.factored.choice import (
    SETS,
    Trial,
    are_grouped,
    best_of,
    candidate_sets,
    plan_budget,
)
from dtdr.retrievers.factored.retriever import DTDRFactored
from tests import small_data
from tests.helpers import change_config

DATA = small_data.dataset(40)


def fit(**options):
    return DTDRFactored(width=8, **options).fit(DATA.demonstrations, DATA.tools)


@pytest.fixture(scope="module")
def chosen():
    return fit(tune_seconds=3)


def trial(mrr, *blocks):
    return Trial(blocks, np.array(mrr), 10)


def test_of_sets_of_blocks_one_is_taken_that_is_clearly_better_and_else_the_first():
    first = trial([0.5, 0.6, 0.5, 0.6], "a")
    noisy = trial([1.0, 0.1, 1.0, 0.2], "b")
    better, best = trial([0.6, 0.7, 0.6, 0.8], "c"), trial([0.8, 0.9, 0.8, 1.0], "d")
    assert best_of([first, noisy]) is first
    assert best_of([first, better, best, noisy]) is best
    assert best_of([first]) is first


def test_what_is_compared_follows_from_sizes_and_grows_with_the_time_given():
    sizes: dict[str, Any] = {"plans": 1_000, "candidates": 20, "features": 35}
    assert plan_budget(0, **sizes).sets == ()
    assert plan_budget(None, **{**sizes, "plans": 99}).sets == ()
    usual = plan_budget(None, **sizes)
    assert usual.sets == SETS
    assert 500 <= usual.steps <= 1_200
    little, much = plan_budget(1.5, **sizes), plan_budget(60, **sizes)
    assert 2 <= len(little.sets) < len(much.sets) == len(SETS)
    assert little.steps < usual.steps < much.steps
    assert plan_budget(9, 1_000, 64, 35).steps < plan_budget(9, 1_000, 16, 35).steps


def test_how_many_words_are_known_is_judged_by_folds_of_groups_only():
    assert any("coverage" in blocks for blocks in candidate_sets(grouped=True))
    assert not any("coverage" in blocks for blocks in candidate_sets(grouped=False))
    assert candidate_sets(grouped=False)[0] == SETS[0]


def test_folds_keep_groups_together_where_most_demonstrations_share_one():
    def grouped(names):
        plan = small_data.demonstration(0).plan
        return are_grouped(
            [Demonstration(str(at), "q", plan, group=name) for at, name in enumerate(names)]
        )

    assert grouped("abcdabcd")
    assert not grouped("abcdefgh")
    assert not grouped(["a", "b"] * 4)
    assert not grouped([*"abcdabcd", *[""] * 20])


def test_the_choice_is_the_same_each_time_and_stays_through_all_changes(chosen, tmp_path):
    made = chosen.training_.choice
    assert made["grouped"] is False
    assert next(one["blocks"] for one in made["measured"]) == ",".join(
        name for name in SETS[0] if name not in ("conversation", "situation", "rhythm", "clauses")
    )
    assert all(0 < one["mrr"] <= 1 and one["steps"] > 50 for one in made["measured"])
    again = fit(tune_seconds=3)
    assert again.training_.choice == made
    again.update([small_data.demonstration(at) for at in range(40, 75)])
    again.rename_tool("weather", "forecast")
    again.add_tools([Tool("fly", "Fly somewhere")])
    assert again.training_.choice == made
    again.save(tmp_path / "model")
    restored: Any = load(tmp_path / "model")
    assert restored.training_.choice == made
    blocks = [block.name for block in restored.model_.blocks.blocks]
    assert ",".join(blocks) == made["blocks"]
    query = DATA.demonstrations[0].query
    np.testing.assert_array_equal(restored.rank(query).scores, again.rank(query).scores)


def test_a_set_of_blocks_that_wins_is_the_one_that_ranks(monkeypatch):
    monkeypatch.setattr(choice, "best_of", lambda trials: trials[1])
    taken = fit(tune_seconds=3)
    names = [block.name for block in taken.model_.blocks.blocks]
    assert names == taken.training_.choice["blocks"].split(",")
    assert "query_position" in names
    alone = fit(blocks=names, grouped=False)
    assert alone.training_.choice is None
    query, history = DATA.demonstrations[1].query, ["find_contact"]
    np.testing.assert_array_equal(
        alone.rank(query, history).scores, taken.rank(query, history).scores
    )


def test_what_is_named_is_not_chosen():
    named = fit(blocks="next_tool,history", grouped=False)
    assert named.training_.choice is None
    assert fit(tune_seconds=0).training_.choice["measured"] == []
    with pytest.raises(InputError, match="tune_seconds"):
        DTDRFactored(tune_seconds=-1)


def test_inspect_says_what_was_chosen_and_what_that_measured(chosen, tmp_path, capsys):
    chosen.save(tmp_path / "model")
    assert run(["inspect", str(tmp_path / "model")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "chosen by fit blocks next_tool, history" in out
    assert "folds at random" in out
    assert "with the standard blocks" in out
    assert "with markov" in out
    assert "held-out steps" in out
    change_config(tmp_path / "model", training_data={**vars(chosen.training_), "choice": {"x": 1}})
    assert run(["inspect", str(tmp_path / "model")]) == 1
    assert "choice is damaged" in capsys.readouterr().err


def test_the_command_takes_the_time_for_choosing(tmp_path, capsys):
    data = small_data.write(tmp_path)
    common = ["fit", str(data), "-o", str(tmp_path / "model"), "--no-arguments", "--no-plans"]
    assert run([*common, "--tune-seconds", "0", "--set", "width=8"]) == 0
    assert load(tmp_path / "model").get_params()["tune_seconds"] == 0
    assert run([*common, "--force", "--retriever", "dr", "--tune-seconds", "1"]) == 2
    assert "nothing to choose" in capsys.readouterr().err
