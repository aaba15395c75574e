"""Counts that are kept beside a model: the same bytes, and only what changed is counted again."""

import dataclasses
import json
import shutil

import pytest

pytest.importorskip("pyarrow", reason="Parquet needs the extra 'parquet'")

import dtdr
from dtdr.cli import run
from dtdr.data.demonstration_files import save_demonstrations, save_tools
from dtdr.data.engines import ProcessEngine
from dtdr.data.jsonl import BadRecords
from dtdr.errors import OutputError
from dtdr.predict.counting import Counts, KeptCounts, draw_sample, file_parts, passes
from dtdr.predict.counting.counts import Facts
from generator import generate, tools

ONE = ProcessEngine(1)
GROUPS = ("ann", "bob", "", "eve")
SOME = [
    dataclasses.replace(item, group=GROUPS[number % 4] if number < 60 else "bob")
    for number, item in enumerate(generate(240, seed=5))
]


@pytest.fixture
def data(tmp_path):
    """Four files of 60; the group of Ann is in the first alone."""
    folder = tmp_path / "data"
    folder.mkdir()
    save_tools(folder / "tools.json", tools())
    for place, suffix in enumerate((".parquet", ".jsonl", ".parquet", ".jsonl")):
        save_demonstrations(folder / f"{place}{suffix}", SOME[60 * place : 60 * place + 60])
    return folder


@pytest.fixture
def counted(monkeypatch):
    """The files that were counted, by place."""
    places = []
    original = passes._count_part

    def count(part, *rest):
        places.append(part.shard)
        return original(part, *rest)

    monkeypatch.setattr(passes, "_count_part", count)
    return places


def fit(data, model, *more):
    arguments = ["fit", str(data), "-o", str(model), "--force", "--sample", "50", "--workers", "1"]
    more = ("--retriever", "dtdr-l", "--no-arguments", "--no-plans", *more)
    assert run([*arguments, *more]) == 0
    return {path.name: path.read_bytes() for path in model.iterdir()}


def test_a_fit_counts_what_changed_and_writes_the_same_model(data, tmp_path, counted, capsys):
    model, counts = tmp_path / "m", tmp_path / "m.counts"
    plain = fit(data, model)
    assert not counts.exists()
    assert fit(data, model, "--set", "keep_counts=true") == plain
    assert len(list(counts.iterdir())) == 4
    counted.clear()
    capsys.readouterr()
    assert fit(data, model, "--json") == plain  # the folder is there, and so it is used
    assert counted == []
    said = json.loads(capsys.readouterr().out)
    assert (said["parts"], said["parts_kept"]) == (4, 4)
    extra = list(generate(20, seed=8))
    save_demonstrations(
        data / "4.jsonl",
        [dataclasses.replace(item, id=f"x{place}") for place, item in enumerate(extra)],
    )
    (data / "1.jsonl").unlink()
    grown = fit(data, model)
    assert counted == [3]
    assert "3 of 4 parts were counted before" in capsys.readouterr().out
    assert len(list(counts.iterdir())) == 4
    assert grown == fit(data, tmp_path / "other")
    fit(data, model, "--set", "keep_counts=false")
    assert list(counts.iterdir()) == []


def test_another_seed_counts_again_and_another_size_does_not(data, tmp_path, counted):
    kept = KeptCounts(tmp_path / "k")
    for size, seed, failures, number in ((50, 0, False, 4), (20, 0, False, 0), (50, 1, False, 4)):
        counted.clear()
        with_counts = draw_sample([data], size, seed=seed, engine=ONE, kept=kept)
        assert len(counted) == number
        plain = draw_sample([data], size, seed=seed, engine=ONE)
        assert with_counts.counts.to_bytes() == plain.counts.to_bytes()
        assert with_counts.demonstrations == plain.demonstrations
        assert not failures
    counted.clear()
    draw_sample([data], 50, seed=1, failures=True, engine=ONE, kept=kept)
    assert len(counted) == 4


def test_what_is_damaged_or_foreign_is_counted_again_and_said(data, tmp_path, counted, caplog):
    kept = KeptCounts(tmp_path / "k")
    plain = draw_sample([data], 50, engine=ONE, kept=kept)
    files = sorted(kept.folder.iterdir())
    content = files[0].read_bytes()
    files[0].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    files[1].write_bytes(content[:100])
    files[2].write_bytes(b"")
    (kept.folder / "notes.txt").write_text("mine")
    counted.clear()
    again = draw_sample([data], 50, engine=ONE, kept=kept)
    assert len(counted) == 3
    assert caplog.text.count("is damaged, or not a file of counts; counted again") == 3
    assert again.counts.to_bytes() == plain.counts.to_bytes()
    assert files[0].read_bytes() == content
    assert (kept.folder / "notes.txt").exists()
    assert len(list(kept.folder.iterdir())) == 5


def test_parts_of_one_parquet_file_are_kept_one_by_one(tmp_path, monkeypatch, counted):
    import pyarrow
    from pyarrow import parquet

    save_demonstrations(tmp_path / "d.parquet", SOME)
    table = parquet.read_table(tmp_path / "d.parquet")
    parquet.write_table(table, tmp_path / "d.parquet", row_group_size=40)
    monkeypatch.setattr(file_parts, "_PART_ROWS", 80)
    found = file_parts.find_parts([tmp_path / "d.parquet"])
    assert len({file_parts.hash_part(part) for part in found}) == len(found) == 3
    kept = KeptCounts(tmp_path / "k")
    whole, _ = Counts(50).count(map(Facts.of, SOME))
    for number in (3, 0):
        counted.clear()
        sample = draw_sample([tmp_path / "d.parquet"], 50, engine=ONE, kept=kept)
        assert len(counted) == number
        assert sample.counts.to_bytes() == whole.to_bytes()
    before = [file_parts.hash_part(part) for part in found]
    times = pyarrow.array([None] * len(SOME), table.schema.field("time").type)
    other = table.set_column(table.schema.get_field_index("time"), "time", times)
    groups = pyarrow.array(["other"] * len(SOME))
    other = other.set_column(other.schema.get_field_index("group"), "group", groups)
    parquet.write_table(other, tmp_path / "d.parquet", row_group_size=40)
    changed = [
        file_parts.hash_part(part) for part in file_parts.find_parts([tmp_path / "d.parquet"])
    ]
    assert not set(before) & set(changed)  # what is looked at as a whole may be any column


def test_parts_with_bad_records_are_not_kept(data, tmp_path, counted):
    kept = KeptCounts(tmp_path / "k")
    with (data / "1.jsonl").open("ab") as stream:
        stream.write(b"{}\n")
    for number in (4, 1):
        bad = BadRecords()
        counted.clear()
        draw_sample([data], 50, bad=bad, engine=ONE, kept=kept)
        assert len(counted) == number
        assert bad.count == 1
    assert len(list(kept.folder.iterdir())) == 3


def test_a_folder_that_cannot_be_written_is_an_error(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        draw_sample([data], 50, engine=ONE, kept=KeptCounts(tmp_path / "file" / "k"))


def test_erasing_leaves_no_counts_of_what_held_the_group(data, tmp_path, counted):
    model, counts = tmp_path / "m", tmp_path / "m.counts"
    fit(data, model, "--set", "keep_counts=true")
    before = {path.name for path in counts.iterdir()}
    stale = counts / f"{'0' * 64}.counts"  # of a file as it was before something was added
    shutil.copyfile(next(counts.iterdir()), stale)
    erase = ["erase", str(data), "--group", "ann", "--model", str(model)]
    assert run([*erase, "--dry-run"]) == 0
    assert stale.exists()
    assert run(erase) == 0
    left = {path.name for path in counts.iterdir()}
    assert left < before
    assert len(left) == 3
    counted.clear()
    again = fit(data, model)
    assert counted == [0]
    assert again == fit(data, tmp_path / "other")
    assert dtdr.load(model).training_.demonstrations < 240
