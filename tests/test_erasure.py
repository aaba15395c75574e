"""``dtdr erase``: what belongs to a group goes, all else stays as it was."""

import dataclasses
import json
import logging

import pytest

pytest.importorskip("pyarrow", reason="Parquet needs the extra 'parquet'")

from dtdr import load
from dtdr.cli import run
from dtdr.data import erasure
from dtdr.data.demonstration_files import read_demonstrations, save_demonstrations, save_tools
from dtdr.data.erasure import erase_groups
from dtdr.errors import InputError
from dtdr.evaluate.datasets.synthetic import generate, tools
from dtdr.serve.feedback import FileLog
from dtdr.serve.learning import Trainer, Versions
from dtdr.serve.server import Settings, create_app

GROUPS = ("ann", "bob", "", "ann-2")
SOME = [
    dataclasses.replace(item, group=GROUPS[number % 4])
    for number, item in enumerate(generate(60, seed=4))
]
LEFT = [item for item in SOME if item.group != "ann"]


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    save_demonstrations(folder / "a.jsonl", SOME[:20])
    save_demonstrations(folder / "b.parquet", SOME[20:40])
    save_demonstrations(folder / "c.jsonl", LEFT[30:])
    return folder


def test_a_group_is_taken_out_of_every_file_and_nothing_else(data, capsys):
    lines = (data / "a.jsonl").read_bytes().splitlines()
    untouched = (data / "c.jsonl").stat()
    assert run(["erase", str(data), "--group", "ann"]) == 0
    shown = capsys.readouterr()
    assert "10 demonstrations erased from 2 of 3 files" in shown.out
    assert "fit them again" in shown.err
    found = list(read_demonstrations(data / "a.jsonl")) + list(
        read_demonstrations(data / "b.parquet")
    )
    assert found == [item for item in SOME[:40] if item.group != "ann"]
    left = (data / "a.jsonl").read_bytes().splitlines()
    assert left == [line for line in lines if json.loads(line).get("group") != "ann"]
    assert (data / "c.jsonl").stat().st_ino == untouched.st_ino
    assert run(["erase", str(data), "--group", "ann", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["erased"] == 0


def test_a_dry_run_changes_nothing(data, capsys):
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    assert run(["erase", str(data), "--group", "ann", "--group", "bob", "--dry-run"]) == 0
    assert "demonstrations would be erased from 3 of 3 files" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before


def test_what_cannot_be_read_ends_it_before_anything_is_changed(data, capsys):
    before = (data / "a.jsonl").read_bytes()
    with (data / "c.jsonl").open("ab") as stream:
        stream.write(b'{"group": "ann", ')
    with pytest.raises(InputError, match=r"c\.jsonl:\d+: not a line of JSON"):
        erase_groups([data], ["ann"])
    whole = (data / "b.parquet").read_bytes()
    (data / "c.jsonl").unlink()
    (data / "b.parquet").write_bytes(whole[:-100])
    assert run(["erase", str(data), "--group", "ann"]) == 2
    assert "b.parquet: it is not a whole Parquet file" in capsys.readouterr().err
    assert (data / "a.jsonl").read_bytes() == before
    assert run(["erase", str(data), "--group", ""]) == 2
    assert run(["erase", str(data / "none.jsonl"), "--group", "ann"]) == 2


def test_a_break_leaves_whole_files_and_the_next_call_ends_it(data, monkeypatch):
    original = erasure._rewrite
    calls: list[object] = []

    def break_off(file, groups):
        if calls:
            raise KeyboardInterrupt
        calls.append(file)
        original(file, groups)

    monkeypatch.setattr(erasure, "_rewrite", break_off)
    with pytest.raises(KeyboardInterrupt):
        erase_groups([data], ["ann"])
    monkeypatch.undo()
    assert len(list(read_demonstrations(data / "b.parquet"))) == 20
    assert sum(item.erased for item in erase_groups([data], ["ann"])) == 5
    assert all(item.group != "ann" for item in read_demonstrations(data))


def test_a_model_is_marked_until_it_is_fitted_again(data, tmp_path, capsys, caplog):
    model = tmp_path / "model"
    fit = ["fit", str(data), "-o", str(model), "--retriever", "dr", "--no-arguments", "--no-plans"]
    assert run(fit) == 0
    before = (model / "model.safetensors").read_bytes()
    erase = ["erase", str(data), "--group", "ann", "--model", str(model)]
    bob = tmp_path / "bob"
    load(model).save(bob)
    assert run(["erase", str(data), "--group", "bob", "--model", str(bob)]) == 0
    assert f"--group bob --model {bob} --refit" in " ".join(capsys.readouterr().err.split())
    assert load(bob).training_.erased > 0
    assert run([*erase, "--dry-run"]) == 0
    assert load(model).training_.erased == 0
    assert run([*erase[:-1], str(tmp_path / "none")]) == 1
    assert erase_groups([data], ["ann"], dry_run=True)[0].erased == 5  # nothing was erased
    capsys.readouterr()
    assert run([*erase, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["marked"] == [str(model)]
    assert (model / "model.safetensors").read_bytes() == before
    assert run(["inspect", str(model)]) == 0
    assert "10 were erased from the data since" in " ".join(capsys.readouterr().out.split())
    with caplog.at_level(logging.WARNING, "dtdr"):
        create_app(Settings(models={"m": model}))
    assert "10 demonstrations that were erased since; fit it again" in caplog.text
    assert run(erase) == 0  # nothing of the group is left, and nothing is marked again
    marked = load(model)
    assert marked.training_.erased == 10
    marked.save(tmp_path / "copy")
    assert load(tmp_path / "copy").training_.erased == 10
    assert run([*fit, "--force"]) == 0
    assert load(model).training_.erased == 0


def test_columns_that_dtdr_does_not_know_stay_in_parquet(data):
    import pyarrow as arrow
    from pyarrow import parquet

    table = parquet.read_table(data / "b.parquet")
    marks = arrow.array(range(len(table)))
    parquet.write_table(table.append_column("mark", marks), data / "b.parquet", row_group_size=7)
    erase_groups([data / "b.parquet"], ["ann"])
    left = parquet.read_table(data / "b.parquet").to_pydict()
    assert left["mark"] == [n for n in range(20) if SOME[20 + n].group != "ann"]


@pytest.fixture
def run_data(tmp_path):
    """Files of demonstrations with tools beside them."""
    folder = tmp_path / "runs"
    folder.mkdir()
    save_tools(folder / "tools.json", tools())
    save_demonstrations(folder / "a.jsonl", SOME[:30])
    save_demonstrations(folder / "b.parquet", SOME[30:])
    return folder


FIT = ["--retriever", "dtdr-l", "--set", "epochs=3", "--seed", "3", "--workers", "1"]


@pytest.mark.parametrize("more", [["--sample", "25", "--keep-counts"], ["--value-runs", "2"]])
def test_a_model_is_fitted_again_as_it_was(run_data, tmp_path, capsys, more):
    model, other = tmp_path / "model", tmp_path / "other"
    parts = [] if "--value-runs" in more else ["--no-arguments", "--no-plans"]
    assert run(["fit", str(run_data), "-o", str(model), *FIT, *more, *parts]) == 0
    erase = ["erase", str(run_data), "--group", "ann", "--model", str(model), "--refit"]
    assert run([*erase, "--dry-run"]) == 0
    assert load(model).training_.demonstrations == 60
    capsys.readouterr()
    assert run(erase) == 0
    assert f"fitted {model} again on 45 demonstrations" in capsys.readouterr().out
    assert run(["fit", str(run_data), "-o", str(other), *FIT, *more, *parts]) == 0
    for name in ("config.json", "model.safetensors"):
        assert (model / name).read_bytes() == (other / name).read_bytes()
    capsys.readouterr()
    assert run([*erase, "--json"]) == 0  # nothing is left of the group, and nothing is fitted
    assert json.loads(capsys.readouterr().out)["refitted"] == []


def test_a_marked_model_is_fitted_again_after_a_break(run_data, tmp_path, monkeypatch, capsys):
    model = tmp_path / "model"
    fit = ["fit", str(run_data), "-o", str(model), "--retriever", "dr", "--no-arguments"]
    assert run([*fit, "--no-plans"]) == 0
    erase = ["erase", str(run_data), "--group", "ann", "--model", str(model), "--refit"]

    def break_off(self, data):
        raise KeyboardInterrupt

    monkeypatch.setattr("dtdr.cli.refit.Refit.run", break_off)
    assert run(erase) == 130
    assert load(model).training_.erased == 15
    monkeypatch.undo()
    capsys.readouterr()
    assert run([*erase, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["erased"], said["refitted"]) == (0, [str(model)])
    assert load(model).training_.erased == 0
    assert load(model).training_.demonstrations == 45


def test_what_cannot_be_fitted_again_is_refused_before_anything_is_erased(
    run_data, tmp_path, capsys
):
    before = {path.name: path.read_bytes() for path in run_data.iterdir()}
    model = tmp_path / "model"
    fit = ["fit", str(run_data), "-o", str(model), "--retriever", "dr", "--no-arguments"]
    fit = [*fit, "--no-plans", "--force"]
    erase = ["erase", str(run_data), "--group", "ann", "--refit"]
    assert run(erase) == 2
    assert "name them with --model" in capsys.readouterr().err
    assert run(fit) == 0
    erase += ["--model", str(model)]
    assert run([*erase[:1], str(run_data / "a.jsonl"), *erase[2:]]) == 2
    assert "learned from 60 demonstrations, and these files have 30" in capsys.readouterr().err
    versions = Versions(model)
    with versions.lock():
        assert run(erase) == 2
    assert "another dtdr learn is at work" in capsys.readouterr().err
    assert run([*fit, "--split", "group"]) == 0
    assert run(erase) == 2
    assert "fitted on a part of its data" in " ".join(capsys.readouterr().err.split())
    assert {path.name: path.read_bytes() for path in run_data.iterdir()} == before
    assert load(model).training_.erased == 0


@pytest.mark.slow
def test_versions_are_forgotten_and_the_log_is_not_learned_twice(run_data, tmp_path):
    model, log = tmp_path / "model", run_data / "feedback.jsonl"
    save_demonstrations(log, [dataclasses.replace(item, id=f"f{item.id}") for item in SOME[:8]])
    fit = ["fit", str(run_data), "-o", str(model), "--retriever", "dtdr-f", "--set", "width=8"]
    assert run([*fit, "--no-arguments", "--no-plans"]) == 0
    versions = Versions(model)
    Trainer(model, FileLog(log))
    first = versions.history()[-1]
    assert first.log == str(log.resolve())
    (begun,) = versions.list_names()
    learned = dataclasses.replace(first, position=str(log.stat().st_size), version="000002")
    versions.add(learned)
    assert run(["erase", str(run_data), "--group", "ann", "--model", str(model), "--refit"]) == 0
    assert begun not in versions.list_names()
    assert versions.list_names() == ["000003"]
    last = versions.history()[-1]
    assert last.position == str(log.stat().st_size) < learned.position
    trainer = Trainer(model, FileLog(log))
    assert versions.history()[-1] == last
    outcome = trainer.step()
    assert (outcome.change, outcome.waiting) == (None, 0)
