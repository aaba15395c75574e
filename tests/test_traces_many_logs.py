"""Many logs imported side by side: a folder of Parquet, the same whatever runs it."""

import json

import pytest

from dtdr.cli import run
from dtdr.data.demonstration_files import read_demonstrations, save_demonstrations
from synthetic_runs import generate

pytest.importorskip("pyarrow", reason="Parquet needs the extra 'parquet'")

SOME = list(generate(40, seed=9))


@pytest.fixture
def logs(tmp_path):
    """Four logs, of which the third repeats some of the first, and the last has nothing new."""
    paths = [tmp_path / f"{name}.jsonl" for name in "abcd"]
    parts = [SOME[:15], SOME[15:30], [*SOME[30:], *SOME[3:6]], SOME[2:4]]
    for path, items in zip(paths, parts, strict=True):
        save_demonstrations(path, items)
    return list(map(str, paths))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_logs_side_by_side_give_what_one_process_gives(tmp_path, logs, capsys):
    for workers in (1, 2):
        output = tmp_path / f"runs{workers}"
        assert run(["import", "dtdr", *logs, "-o", str(output), "--workers", str(workers)]) == 0
        assert "held by another log" in capsys.readouterr().out
    assert files(tmp_path / "runs1") == files(tmp_path / "runs2")
    assert sorted(files(tmp_path / "runs1")) == [
        *(f"part-0000{place}.parquet" for place in range(3)),
        "tools.json",
    ]
    assert run(["import", "dtdr", *logs, "-o", str(tmp_path / "one.jsonl"), "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert list(read_demonstrations(tmp_path / "runs1")) == list(
        read_demonstrations(tmp_path / "one.jsonl")
    )
    again = ["import", "dtdr", *logs, "-o", str(tmp_path / "runs1"), "--workers", "1", "--json"]
    assert run(again) == 1
    assert "pass --force" in capsys.readouterr().err
    assert run([*again, "--force"]) == 0
    many = json.loads(capsys.readouterr().out)
    assert (many["kept"], many["runs"], many["files"]) == (one["kept"], one["runs"], 4)
    assert sum(many["dropped"].values()) == sum(one["dropped"].values()) == 5


def test_a_folder_that_no_import_wrote_is_left_alone(tmp_path, logs, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("Dear Ann")
    command = ["import", "dtdr", *logs, "-o", str(tmp_path / "mine"), "--workers", "1", "--force"]
    assert run(command) == 1
    assert (tmp_path / "mine" / "letter.txt").exists()


def test_bad_records_are_named_or_counted(tmp_path, logs, capsys):
    with open(logs[1], "a", encoding="utf-8") as stream:
        stream.write("not JSON\n")
    command = ["import", "dtdr", *logs, "-o", str(tmp_path / "runs"), "--workers", "1"]
    assert run(command) == 2
    assert "b.jsonl:16" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    assert run([*command, "--skip-bad", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["bad_records"] == 1
    assert "left out" in captured.err
