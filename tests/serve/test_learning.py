"""``dtdr learn``: feedback applied by one process, measured, published, rolled back."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="servers need the extra 'server'")

import dtdr
from dtdr.cli import run
from dtdr.data import files
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.partials import TemporaryFolder
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.serve.feedback import DuplicateError, FileLog, open_log, order_of
from dtdr.serve.learning import LearnOptions, Trainer, Versions, versions
from dtdr.serve.learning.versions import checksum_of
from synthetic_runs import generate, tools
from tests.helpers import mean_reciprocal_rank
from tests.server import serving

RANKER_ONLY: dict[str, Any] = {"arguments": False, "plans": False}
"""Learning them takes most of the time, and a version is published by its rankings."""
UPDATING = "tests.updating_ranker:WordCounts"
EAGER = ("--set", "share=0.3", "--set", "tolerance=1", "--set", "gain=1")
OPTIONS = LearnOptions(batch=8, seconds=60, share=0.3, tolerance=0.02)
EAGER_OPTIONS = LearnOptions(batch=8, seconds=60, share=0.3, tolerance=1.0, gain=1.0)
"""What they publish is not judged."""


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A ranker that updates fast, and that learned little so far."""
    folder = tmp_path_factory.mktemp("learned") / "mail"
    model = dtdr.fit(list(generate(40, seed=1)), tools(), ranker=UPDATING, **RANKER_ONLY)
    model.save(folder)
    return folder


@pytest.fixture
def factored(tmp_path):
    """A dtdr-f that learned from few demonstrations, and so has much to learn."""
    model = dtdr.fit(list(generate(40, seed=1)), tools(), ranker="dtdr-f", **RANKER_ONLY)
    model.save(tmp_path / "mail")
    return tmp_path / "mail"


@pytest.fixture
def model(small_model, tmp_path):
    return Path(shutil.copytree(small_model, tmp_path / "mail"))


def feedback(number, seed=2):
    return [
        Demonstration(f"f{seed}-{place}", item.query, item.plan)
        for place, item in enumerate(generate(number, seed=seed))
    ]


def step(trainer):
    """The change that a step makes."""
    change = trainer.step().change
    assert change is not None
    return change


def test_feedback_makes_the_next_version_which_is_not_worse(factored, tmp_path):
    model = factored
    log = FileLog(tmp_path / "f.jsonl")
    before = dtdr.load(model)
    trainer = Trainer(model, log, OPTIONS)
    assert trainer.step().waiting == 0
    log.append(feedback(120))
    change = step(trainer)
    assert (change.outcome, change.version) == ("published", "000002")
    assert change.demonstrations + change.held_out == 120
    assert 20 <= change.held_out < 60
    assert change.after >= change.before
    after = dtdr.load(model)
    assert after.training_.demonstrations == before.training_.demonstrations + change.demonstrations
    assert checksum_of(model) == change.checksum
    logged = dtdr.read_demonstrations(tmp_path / "f.jsonl")  # scrubbed
    held_out = [item for item in logged if trainer._is_held_out(item)]
    assert len(held_out) == change.held_out
    assert mean_reciprocal_rank(after, held_out) == pytest.approx(change.after, abs=1e-6)
    assert trainer.step().change is None, "nothing is learned twice"


def test_what_makes_the_model_worse_is_not_published(factored, tmp_path):
    model = factored
    log = FileLog(tmp_path / "f.jsonl")
    names = [tool.name for tool in tools()]
    draw = random.Random(0)
    nonsense = [
        Demonstration(
            f"n{place}",
            item.query,
            Plan(tuple(ToolCall(str(n), draw.choice(names)) for n in range(6))),
        )
        for place, item in enumerate(generate(60, seed=9))
    ]
    held_out = list(generate(60, seed=5))
    served = checksum_of(model)
    trainer = Trainer(model, log, LearnOptions(batch=8, share=0.0, tolerance=0.0), held_out)
    log.append(nonsense)
    change = step(trainer)
    assert (change.outcome, change.version) == ("refused", "000001")
    assert change.after < change.before
    assert checksum_of(model) == served
    assert trainer.step().change is None, "what was refused is not tried again"
    assert Trainer(model, log, OPTIONS, held_out).step().waiting == 0, "nor by the next process"


def test_it_waits_for_a_batch_or_for_some_time(model, tmp_path):
    log = FileLog(tmp_path / "f.jsonl")
    now = [1_000.0]
    held_out = list(generate(30, seed=5))
    options = LearnOptions(batch=8, seconds=60, share=0.0, tolerance=1.0, gain=1.0)
    trainer = Trainer(model, log, options, held_out, clock=lambda: now[0])
    log.append(feedback(3))
    outcome = trainer.step()
    assert (outcome.change, outcome.waiting) == (None, 3)
    now[0] += 59
    assert trainer.step().oldest == 59
    now[0] += 1
    assert step(trainer).demonstrations == 3


def test_without_enough_held_out_nothing_is_published_and_the_reason_is_said(model, tmp_path):
    log = FileLog(tmp_path / "f.jsonl")
    log.append(feedback(30))
    trainer = Trainer(model, log, LearnOptions(batch=8, share=0.1))
    outcome = trainer.step()
    assert outcome.change is None
    assert "20 are needed" in outcome.reason
    log.append(feedback(250, seed=3))
    assert step(trainer), "what waited is learned once there are enough"


def test_entries_that_are_no_demonstration_are_counted_and_stop_nothing(model, tmp_path):
    path = tmp_path / "f.jsonl"
    log = FileLog(path)
    log.append(feedback(10))
    with path.open("ab") as stream:
        stream.write(b'not JSON\n{"id": "x"}\n\n')
    log.append(feedback(10, seed=3))
    with path.open("ab") as stream:
        stream.write(b'{"id": "half')
    trainer = Trainer(
        model,
        FileLog(path),
        LearnOptions(batch=8, share=0.0, tolerance=1.0, gain=1.0),
        feedback(30, 4),
    )
    outcome = trainer.step()
    assert outcome.unusable == 2
    assert outcome.change is not None
    assert outcome.change.demonstrations == 20


def test_a_process_that_was_killed_between_history_and_folder_learns_the_batch_again(
    model, tmp_path, monkeypatch
):
    log = FileLog(tmp_path / "f.jsonl")
    log.append(feedback(120))
    served = checksum_of(model)
    trainer = Trainer(model, log, EAGER_OPTIONS)

    def killed(temporary, path):
        if path == model:
            raise KeyboardInterrupt
        return swap(temporary, path)

    swap = files._swap
    monkeypatch.setattr(files, "_swap", killed)
    with pytest.raises(KeyboardInterrupt):
        trainer.step()
    monkeypatch.undo()
    assert checksum_of(model) == served
    with (Versions(model).folder / "history.jsonl").open("ab") as stream:
        stream.write(b'{"version": "0000')  # half a line
    again = step(Trainer(model, log, EAGER_OPTIONS))
    assert again.outcome == "published"
    learned = dtdr.load(model).training_.demonstrations
    assert learned == 40 + again.demonstrations, "once, and not twice"
    assert Trainer(model, log, EAGER_OPTIONS).step().waiting == 0


def test_a_folder_that_another_process_replaced_at_the_last_moment_stays(
    model, tmp_path, monkeypatch
):
    log = FileLog(tmp_path / "f.jsonl")
    log.append(feedback(120))
    trainer = Trainer(model, log, EAGER_OPTIONS)
    other = dtdr.load(model)
    other.add_tools([Tool("print_pages")])
    copy = versions.copy_folder

    def replace_first(source, target, confirm=None):
        if target == model:
            other.save(model, force=True)
        copy(source, target, confirm)

    monkeypatch.setattr(versions, "copy_folder", replace_first)
    assert trainer.step().change is None
    monkeypatch.undo()
    assert "print_pages" in dtdr.load(model).vocabulary
    assert [change.outcome for change in Versions(model).history()] == ["begun"]
    assert trainer.step().waiting == 0, "the log so far is taken to be in it"


def test_versions_are_kept_listed_and_rolled_back_by_name(model, tmp_path, capsys):
    log = FileLog(tmp_path / "f.jsonl")
    options = LearnOptions(batch=8, share=0.5, tolerance=1.0, gain=1.0, keep=2)
    trainer = Trainer(model, log, options)
    checksums = [checksum_of(model)]
    for seed in (2, 3):
        log.append(feedback(80, seed))
        step(trainer)
        checksums.append(checksum_of(model))
    assert len(set(checksums)) == 3
    assert Versions(model).list_names() == ["000002", "000003"]
    assert run(["learn", str(model), "--roll-back", "000001"]) == 2
    assert "those kept are: 000002, 000003" in capsys.readouterr().err
    assert run(["learn", str(model), "--roll-back", "000002"]) == 0
    assert checksum_of(model) == checksums[1]
    assert "published 000002 again" in capsys.readouterr().out
    outcome = trainer.step()
    assert (outcome.change, outcome.waiting) == (None, 0), "a running trainer goes on from there"
    log.append(feedback(80, 5))
    command = ["learn", str(model), str(log.path), "--once", *EAGER]
    assert run(command) == 0
    assert "published 000004, with" in capsys.readouterr().out
    assert run(command) == 0
    assert "the log has no new feedback" in capsys.readouterr().err
    assert run(["learn", str(model), "--versions"]) == 0
    shown = capsys.readouterr().out
    assert "rolled back" in shown
    assert "is version 000004" in shown
    assert run(["learn", str(model), "--versions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["served"] == "000004"


def test_a_model_that_was_fitted_anew_is_taken_over(model, tmp_path):
    log = FileLog(tmp_path / "f.jsonl")
    trainer = Trainer(model, log, EAGER_OPTIONS)
    log.append(feedback(120))
    trainer.step()
    anew = dtdr.fit(list(generate(40, seed=7)), tools(), ranker=UPDATING, **RANKER_ONLY)
    anew.save(model, force=True)
    assert trainer.step().change is None, "the log so far is taken to be in it"
    history = Versions(model).history()
    assert (history[-1].outcome, history[-1].version) == ("begun", "000003")
    assert history[-1].position == history[-2].position


def test_what_cannot_go_on_is_said_in_a_sentence(model, tmp_path, capsys):
    folder, path = serving.fit(tmp_path / "linear"), tmp_path / "f.jsonl"
    log = FileLog(path)
    with Versions(model).lock():
        assert run(["learn", str(model), str(path), "--once"]) == 2
    assert "another dtdr learn" in capsys.readouterr().err
    for arguments, reason in (
        ([folder, path, "--once"], "does not support updates"),
        ([folder], "name the feedback log"),
        ([model, path, "--set", "share=1"], "share"),
        ([model, path, "--set", "batch=0"], "batch"),
        ([model, "redis://h:port", "--once"], "is not an address of Redis"),
        ([model, path, "--metrics", "nowhere", "--once"], "HOST:PORT"),
    ):
        assert run(["learn", *map(str, arguments)]) == 2
        assert reason in capsys.readouterr().err
    (tmp_path / "other.jsonl").write_text("x\n")
    assert run(["learn", str(model), str(tmp_path / "other.jsonl"), "--once"]) == 0
    assert "no new feedback; 1 line of it cannot be used" in capsys.readouterr().err
    log.append(feedback(120))
    Trainer(model, log, EAGER_OPTIONS).step()
    history = Versions(model).folder / "history.jsonl"
    whole = history.read_bytes()
    history.write_bytes(whole + b'{"nonsense": 1}\n')
    with pytest.raises(InputError, match=r"history.jsonl:3 is not a line"):
        Trainer(model, log)
    history.write_bytes(whole)
    for other in ("", path.read_text().partition("\n")[2] * 2):  # as after an erasure
        path.write_text(other)
        with pytest.raises(InputError, match="shorter than what was read"):
            Trainer(model, log, EAGER_OPTIONS).step()
    with pytest.raises(InputError, match="1700000000000-0 is not a position of"):
        log.read("1700000000000-0", 1)


@pytest.mark.slow
def test_a_trainer_that_is_killed_again_and_again_learns_each_demonstration_once(
    factored, tmp_path
):
    model = factored
    path = tmp_path / "f.jsonl"
    items = feedback(240)
    log = FileLog(path)
    command = [sys.executable, "-m", "dtdr", "learn", str(model), str(path), "--set", "share=0.3"]
    for setting in ("tolerance=1", "batch=8", "seconds=0.1", "keep=2"):
        command += ["--set", setting]
    draw = random.Random(0)
    for start in range(0, 240, 20):
        log.append(items[start : start + 20])
        trainer = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        time.sleep(draw.uniform(0.5, 4.0))
        trainer.kill()
        trainer.wait(30)
        dtdr.load(model)  # a whole one, whenever it was killed
    subprocess.run([*command, "--once"], check=True, timeout=300)
    ended = Trainer(model, log, LearnOptions(share=0.3))
    expected = [item for item in items if not ended._is_held_out(item)]
    assert dtdr.load(model).training_.demonstrations == 40 + len(expected)


# -- Redis -----------------------------------------------------------------------------------------


def test_a_log_in_redis_keeps_order_and_refuses_ids_that_were_sent(redis_server):
    log = open_log(redis_server.url, "order", redact=False)
    log.append(feedback(7))
    log.append(feedback(5, seed=3))
    first = log.read("", 4)
    rest = log.read(first[-1].position, 100)
    found = [entry.demonstration for entry in (*first, *rest)]
    assert found == [*feedback(7), *feedback(5, seed=3)]
    assert first[0].time is not None
    assert abs(time.time() - first[0].time) < 60
    assert order_of("") < order_of(first[0].position) < order_of(rest[0].position)
    with pytest.raises(DuplicateError, match="demonstration 1: its id"):
        log.append([*feedback(1, seed=4), *feedback(1)])
    with pytest.raises(DuplicateError, match="demonstration 1: its id"):
        log.append(feedback(1, seed=5) * 2)
    assert len(log.read("", 100)) == 12
    assert open_log(redis_server.url, "other").read("", 10) == []


def test_two_servers_and_a_trainer_learn_from_feedback_without_a_dropped_request(
    factored, tmp_path, redis_server
):
    """Feedback to either server is learned by the trainer, and both servers reload it."""
    model = factored  # its class is known to another process
    settings = serving.settings(model, feedback_log=redis_server.url, watch_seconds=0.2)
    learn = [sys.executable, "-m", "dtdr", "learn", str(model), redis_server.url]
    with serving.serve(settings) as first, serving.serve(settings) as second:
        trainer = subprocess.Popen(
            [*learn, *EAGER, "--set", "seconds=2", "--metrics", "0"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert trainer.stderr is not None
            assert trainer.stdout is not None
            address = trainer.stderr.readline().split("metrics on ")[1].strip()
            items = [item.to_dict() for item in feedback(120, seed=8)]
            keys = ("id", "query", "calls")
            for place in range(0, 120, 10):
                body = [{key: item[key] for key in keys} for item in items[place : place + 10]]
                served = (first, second)[place // 10 % 2]
                answer = served.post("/v1/feedback", {"demonstrations": body})
                assert answer.json()["logged"], answer.text
            repeated = second.post("/v1/feedback", {"demonstrations": body})
            assert repeated.status_code == 409
            statuses = set()

            def is_reloaded():
                for one in (first, second):
                    statuses.add(one.post("/v1/rank", {"query": items[0]["query"]}).status_code)
                described = [one.get("/v1/models/mail").json() for one in (first, second)]
                return all(item["demonstrations"] > 40 for item in described)

            assert "published 000002" in trainer.stdout.readline()
            serving.wait_until(is_reloaded)
            assert statuses == {200}
            serving.wait_until(
                lambda: "dtdr_learn_waiting_demonstrations 0.0" in first.http.get(address).text, 60
            )
            shown = first.http.get(address).text
            assert 'dtdr_learn_versions_total{outcome="published"}' in shown
            assert first.metric('dtdr_model_written_timestamp_seconds{model="mail"}') > (
                time.time() - 300
            )
        finally:
            trainer.send_signal(signal.SIGTERM)
            assert trainer.wait(120) == 143
            trainer.communicate()


def test_a_folder_is_replaced_by_one_at_a_time_and_in_a_locked_folder_too(tmp_path):
    holder = TemporaryFolder("dtdr-test-")
    target = holder.path / "model"
    with files.replace_folder(target) as new:
        (new / "name").write_text("first")
    checking, proceed = threading.Event(), threading.Event()

    def confirm():
        checking.set()
        assert proceed.wait(30)

    def replace(name, confirm=None):
        with files.replace_folder(target, confirm) as new:
            (new / "name").write_text(name)

    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(replace, "second", confirm)
        assert checking.wait(30)
        quick = pool.submit(replace, "third")
        time.sleep(0.2)
        assert not quick.done()
        assert (target / "name").read_text() == "first"
        proceed.set()
        slow.result(30)
        quick.result(30)
    assert (target / "name").read_text() == "third"
    assert [item.name for item in holder.path.iterdir()] == ["model"]
