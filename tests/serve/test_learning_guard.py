"""Who decides whether a model that learned from feedback is published."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="servers need the extra 'server'")

import dtdr
from dtdr.cli import run
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.serve.feedback import FileLog
from dtdr.serve.learning import LearnOptions, Trainer, Versions
from dtdr.serve.learning.guard import weigh
from dtdr.serve.learning.versions import checksum_of
from synthetic_runs import generate, tools
from tests.helpers import RANKER_ONLY
from tests.serve.test_learning import OPTIONS, feedback, model, step

__all__ = ["model"]  # a fixture
EVIL = ToolCall("1", "send_to_me")


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A dtdr-f, whose memory of its demonstrations the guard asks."""
    folder = tmp_path_factory.mktemp("learned") / "mail"
    demonstrations = list(generate(40, seed=1))
    dtdr.fit(demonstrations, tools(), ranker="dtdr-f", **RANKER_ONLY).save(folder)
    return folder


def test_no_sender_can_choose_which_demonstrations_judge(small_model, tmp_path):
    chosen = []
    for name in ("a", "b"):
        folder = Path(shutil.copytree(small_model, tmp_path / name))
        log = FileLog(tmp_path / f"{name}.jsonl")
        for trainer in (Trainer(folder, log, OPTIONS), Trainer(folder, log, OPTIONS)):
            chosen.append([trainer._is_held_out(item) for item in feedback(200)])
        assert (folder.with_name(f"{name}.versions") / "salt").stat().st_mode & 0o77 == 0
    assert chosen[0] == chosen[1], "each process of a folder decides the same"
    assert chosen[0] != chosen[2]
    assert all(30 < sum(row) < 90 for row in chosen)


def test_one_sender_has_at_most_a_share_of_the_judges():
    assert weigh(["a"] * 600 + ["b"] * 25, 0.5) == [25 / 600] * 600 + [1.0] * 25
    assert weigh(["a"] * 600 + ["b"], 0.5) == [1.0] * 601, "too few others to measure on"
    assert weigh([None] * 100 + ["a"] * 30, 0.5) == [1.0] * 130, "the operator's are not limited"
    assert weigh([""] * 10, 0.5) == [1.0] * 10


def poison(number):
    """Feedback of one key that wants its tool everywhere."""
    queries = [item.query for item in generate(number, seed=9)]
    return [Demonstration(f"p{n}", query, Plan((EVIL,))) for n, query in enumerate(queries)]


def test_a_tool_that_rises_everywhere_waits_for_a_person(model, tmp_path, capsys):
    log = FileLog(tmp_path / "f.jsonl")
    served = checksum_of(model)
    log.append(poison(90), "key1")
    options = LearnOptions(batch=8, share=0.5)
    trainer = Trainer(model, log, options)
    change = step(trainer)
    assert (change.outcome, change.version) == ("held", "000002")
    assert [*change.gains] == ["send_to_me"]
    assert change.senders == {"key1": change.demonstrations}
    assert checksum_of(model) == served
    log.append(feedback(120), "key2")
    for process in (trainer, Trainer(model, log, options)):
        outcome = process.step()
        assert outcome.change is None
        assert "waits for a person" in outcome.reason
    assert run(["learn", str(model), "--review", "list"]) == 0
    shown = capsys.readouterr().out
    assert "send_to_me" in shown
    assert f"key key1 sent {change.demonstrations} demonstrations" in shown
    assert run(["learn", str(model), "--review", "refuse"]) == 0
    assert "kept 000001 and refused" in capsys.readouterr().out
    assert run(["learn", str(model), "--review", "publish"]) == 2
    assert "waits for a review" in capsys.readouterr().err
    assert step(trainer).outcome == "published", "learning goes on with the feedback of others"
    assert "send_to_me" not in dtdr.load(model).vocabulary


def test_a_version_that_a_person_publishes_is_served_as_it_was_measured(model, tmp_path):
    log = FileLog(tmp_path / "f.jsonl")
    log.append(poison(90))
    trainer = Trainer(model, log, LearnOptions(batch=8, share=0.5))
    held = step(trainer)
    published = Versions(model).review(publish=True)
    assert (published.outcome, published.version) == ("published", held.version)
    assert checksum_of(model) == held.checksum
    assert "send_to_me" in dtdr.load(model).vocabulary
    assert trainer.step().waiting == 0, "and its feedback is not learned again"
