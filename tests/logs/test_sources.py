"""Logs in object storage are read as those on disk."""

import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="URLs need fsspec")

import fsspec

from dtdr.cli import run
from dtdr.errors import InputError
from dtdr.logs import FileImporter, find_format, import_file_by_file, open_demonstrations
from dtdr.logs.sources import find_logs
from tests.command_line import is_one_sentence
from tests.logs.test_file_tasks import messages, run_tasks

CHAT = "".join(json.dumps(messages(f"Ask {n}", "find", "send")) + "\n" for n in range(3)).encode()
OTHER = json.dumps([messages("Ask once", "list")], indent=1).encode()


@pytest.fixture
def logs(tmp_path):
    """The same logs in a folder and at a URL: lines, compressed lines and a document."""
    folder, memory = tmp_path / "logs", fsspec.filesystem("memory")
    files = {"a.jsonl": CHAT, "sub/b.jsonl.gz": gzip.compress(CHAT.replace(b"Ask", b"Tell"))}
    files |= {"c.json": OTHER, ".hidden.jsonl": b"{", "picture.png": b"\x89PNG"}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        memory.pipe(f"/store/logs/{name}", content)
    yield folder, "memory://store/logs"
    memory.store.clear()


@pytest.mark.parametrize("name", ["", "/a.jsonl", "/sub/b.jsonl.gz", "/c.json", "/sub"])
def test_a_url_gives_the_bytes_of_the_same_file_or_folder(logs, name, tmp_path):
    written = []
    for number, place in enumerate(logs):
        output = tmp_path / str(number) / "runs.jsonl"
        assert run(["import", f"{place}{name}", "-o", str(output)]) == 0
        written.append([path.read_bytes() for path in sorted(output.parent.iterdir())])
    assert written[0] == written[1]
    assert b'"query"' in written[0][0]


def test_a_pattern_of_urls_is_expanded(logs, tmp_path):
    assert run(["import", f"{logs[1]}/*.json*", "-o", str(tmp_path / "runs.jsonl")]) == 0
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["query"] for line in lines) == [
        "Ask 0",
        "Ask 1",
        "Ask 2",
        "Ask once",
    ]


def test_other_commands_take_logs_at_a_url(logs):
    there = {each.query for each in open_demonstrations(logs[1])}
    assert there == {each.query for each in open_demonstrations(logs[0])}
    assert len(there) == 7


def test_tasks_of_an_engine_open_urls_themselves(logs, tmp_path):
    written = []
    for number, place in enumerate((logs[0], Path(logs[1]))):
        importer = FileImporter(find_format("messages"), find_logs(place), run_tasks=run_tasks)
        output = tmp_path / f"{number}.parquet"
        import_file_by_file(importer, output)
        written.append(output.read_bytes())
    assert written[0] == written[1]


def test_messages_name_the_url_as_it_was_written(logs, tmp_path, capsys):
    memory = fsspec.filesystem("memory")
    memory.pipe("/store/bad/x.jsonl", CHAT + b'{"messages": [\n')
    assert run(["import", "messages", "memory://store/bad/x.jsonl", "-o", str(tmp_path / "x")]) == 2
    assert "memory://store/bad/x.jsonl:4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://store/none.jsonl", "cannot read memory://store/none.jsonl: no such file"),
        ("memory://store/empty", "no such file"),
        ("nowhere://bucket/logs", "cannot read nowhere://bucket/logs: Protocol not known"),
    ],
)
def test_a_url_that_cannot_be_read_is_one_sentence(url, said, tmp_path, capsys):
    assert run(["import", url, "-o", str(tmp_path / "x.jsonl")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert is_one_sentence(error)


def test_storage_that_fails_while_it_is_listed_is_named(logs, monkeypatch):
    def away(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "find", away)
    with pytest.raises(InputError, match="cannot read memory://store/logs: no route to host"):
        list(open_demonstrations(logs[1]))


def test_a_format_of_your_own_needs_files_of_this_machine(logs, tmp_path, capsys, monkeypatch):
    (tmp_path / "own_reader.py").write_text("def read(path):\n    yield from ()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    url = f"{logs[1]}/a.jsonl"
    assert run(["import", url, "--format", "own_reader:read", "-o", str(tmp_path / "x")]) == 2
    assert f"copy {url} to it first" in capsys.readouterr().err
