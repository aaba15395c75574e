"""``dtdr erase``: what belongs to a group goes, all else stays as it was."""

import dataclasses
import gzip
import json
import logging
import os
import subprocess
import sys
import tempfile

import pytest

pytest.importorskip("pyarrow", reason="Parquet needs the extra 'parquet'")

from dtdr import load
from dtdr.agents.recording import Recorder
from dtdr.cli import run
from dtdr.data import erasure
from dtdr.data.demonstration_files import read_demonstrations, save_demonstrations
from dtdr.data.erasure import erase_groups
from dtdr.data.files import replace_file
from dtdr.data.partials import TemporaryFolder
from dtdr.errors import InputError
from dtdr.serve.feedback.file_log import FileLog
from dtdr.serve.server import Settings, create_app
from synthetic_runs import generate

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
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    assert run(["erase", str(data), "--group", "ann", "--group", "bob", "--dry-run"]) == 0
    assert "demonstrations would be erased from 3 of 3 files" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before
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


def test_a_link_leads_to_the_erased_file_which_stays_private(data):
    file, link = data / "a.jsonl", data.parent / "link.jsonl"
    file.chmod(0o600)
    link.symlink_to(file)
    assert run(["erase", str(link), "--group", "ann"]) == 0
    assert all(item.group != "ann" for item in read_demonstrations(file))
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600


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
    (data / "d.jsonl.gz").write_bytes(gzip.compress(before))
    assert run(["erase", str(data / "d.jsonl.gz"), "--group", "ann"]) == 2
    assert "d.jsonl.gz is packed; unpack it with gunzip" in capsys.readouterr().err


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
    assert f"{bob} learned from them; fit it again" in " ".join(capsys.readouterr().err.split())
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


KILLED = """
import os, signal, sys
from pathlib import Path
from dtdr.data.files import replace_file, replace_folder
path = Path(sys.argv[1])
with (replace_folder if sys.argv[2] == "folder" else replace_file)(path) as target:
    if sys.argv[2] == "folder":
        (target / "config.json").write_text("secret of ann")
    else:
        target.write("secret of ann")
        target.flush()
    print("writing", flush=True)
    sys.stdin.readline() or os.kill(os.getpid(), signal.SIGKILL)
"""


def writer_of(path, kind="file"):
    """A process that writes a file, and ends at a line of input; it is killed at the end of it."""
    command = [sys.executable, "-c", KILLED, str(path), kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def left_in(folder):
    return [path.name for path in folder.rglob("*.partial")]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
@pytest.mark.parametrize(
    "command",
    [
        ["erase", "{data}", "--group", "bob"],
        ["erase", "{data}/a.jsonl", "--group", "bob"],
        ["data", "stats", "{data}"],
        ["import", "dtdr", "{data}/a.jsonl", "-o", "{data}/other.jsonl"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_the_next_command_deletes_what_killed_ones_left(data, command, capsys):
    writers = [writer_of(data / "a.jsonl"), writer_of(data / "model", "folder")]
    for process in writers:
        process.communicate()
    assert len(left_in(data)) == 2
    assert run([part.format(data=data) for part in command]) == 0
    assert left_in(data) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_an_erasure_names_the_file_that_another_command_writes(data, capsys, monkeypatch):
    monkeypatch.setattr(erasure, "WAIT_SECONDS", 0.1)
    killed, process = writer_of(data / "a.jsonl"), writer_of(data / "new.jsonl")
    killed.communicate()
    erase = ["erase", str(data), "--group", "ann"]
    assert run([*erase, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unfinished"] == 2
    assert run(erase) == 2
    shown = capsys.readouterr().err
    assert "another command is writing" in shown
    assert ".new.jsonl." in shown.replace("\n", "")
    assert [name[:5] for name in left_in(data)] == [".new."]
    assert run(["erase", str(data / "a.jsonl"), "--group", "bob"]) == 0, "it is of another file"
    process.communicate("go on\n")
    assert (data / "new.jsonl").read_text() == "secret of ann"
    (data / "new.jsonl").unlink()
    assert run(erase) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_processes_that_write_one_file_at_once_all_end(tmp_path):
    writers = [writer_of(tmp_path / "a.jsonl") for _ in range(4)]
    for process in writers:
        process.communicate("go on\n")
        assert process.returncode == 0
    assert (tmp_path / "a.jsonl").read_text() == "secret of ann"
    assert left_in(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_a_temporary_folder_of_a_killed_process_is_deleted_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, tempfile; tempfile.tempdir = os.environ['FOLDER']\n"
        "from dtdr.data.partials import TemporaryFolder\n"
        "folder = TemporaryFolder('dtdr-x-')\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "FOLDER": str(tmp_path)})
    assert len(list(tmp_path.glob("dtdr-x-*"))) == 1
    folder = TemporaryFolder("dtdr-x-")
    assert list(tmp_path.glob("dtdr-x-*")) == [folder.path]
    other = TemporaryFolder("dtdr-x-")
    assert folder.path.exists(), "it is in use"
    del folder, other
    assert list(tmp_path.glob("dtdr-x-*")) == []


def test_a_folder_that_was_taken_away_to_be_replaced_is_put_back(tmp_path):
    former = tmp_path / ".model.abcd1234.former"
    former.mkdir()
    (former / "config.json").write_text("{}")
    with replace_file(tmp_path / "other.json") as stream:
        stream.write("{}")
    assert (tmp_path / "model" / "config.json").read_text() == "{}"


def test_files_of_runs_can_be_read_by_their_owner_alone(data, tmp_path):
    paths = [data / "a.jsonl", data / "b.parquet", tmp_path / "new.jsonl"]
    assert run(["import", "dtdr", str(paths[0]), "-o", str(paths[2])]) == 0
    Recorder(tmp_path / "learned.jsonl")
    FileLog(tmp_path / "feedback.jsonl").append(SOME[:1])
    paths += [tmp_path / "learned.jsonl", tmp_path / "feedback.jsonl"]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
