"""Demonstrations as Parquet, in shards, and from object storage."""

import json
import random
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdr import Demonstration, read_demonstrations
from dtdr.cli import run
from dtdr.data.demonstration_files import save_demonstrations
from dtdr.data.jsonl import BadRecords
from dtdr.data.parquet import row_groups, write_parquet
from dtdr.errors import DtdrError, InputError
from synthetic_runs import generate
from tests import strategies
from tests.command_line import is_one_sentence

SOME = list(generate(60, seed=3))


def save_shards(folder, some, *suffixes):
    for number, suffix in enumerate(suffixes):
        save_demonstrations(folder / f"part-{number}{suffix}", some[number :: len(suffixes)])


@settings(deadline=None)
@given(st.lists(strategies.runs() | strategies.demonstrations(), min_size=1, max_size=4))
def test_parquet_gives_back_what_was_written(tmp_path_factory, some):
    some = [
        Demonstration.from_dict({**item.to_dict(), "id": str(i)}) for i, item in enumerate(some)
    ]
    path = tmp_path_factory.mktemp("p") / "runs.parquet"
    assert save_demonstrations(path, some) == len(some)
    assert list(read_demonstrations(path)) == some


def test_other_programs_read_the_file(tmp_path):
    save_demonstrations(tmp_path / "runs.parquet", SOME)
    table = pq.read_table(tmp_path / "runs.parquet")
    assert table.column("query").to_pylist() == [item.query for item in SOME]
    call = table.column("calls")[0].as_py()[0]
    assert json.loads(call["arguments"]) == SOME[0].plan.calls[0].arguments
    metadata = pq.ParquetFile(tmp_path / "runs.parquet").metadata
    assert metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("suffixes", [(".jsonl", ".parquet", ".jsonl"), (".parquet",) * 3])
def test_a_folder_a_pattern_and_a_file_mean_the_same(tmp_path, suffixes):
    (tmp_path / "sub").mkdir()
    save_shards(tmp_path / "sub", SOME, *suffixes)
    (tmp_path / "sub" / "_SUCCESS.jsonl").write_text("not data")
    (tmp_path / "sub" / ".half.parquet").write_text("not data")
    (tmp_path / "sub" / "readme.txt").write_text("not data")
    ordered = SOME[0::3] + SOME[1::3] + SOME[2::3]
    assert list(read_demonstrations(tmp_path)) == ordered
    assert list(read_demonstrations(f"{tmp_path}/sub/part-*")) == ordered
    assert list(read_demonstrations(f"{tmp_path}/**/part-0*")) == SOME[0::3]


def test_import_writes_parquet_at_once(tmp_path, capsys):
    save_demonstrations(tmp_path / "log.jsonl", SOME)
    log, lines, packed = (str(tmp_path / n) for n in ("log.jsonl", "a.jsonl", "a.parquet"))
    for output in (lines, packed):
        assert run(["import", "dtdr", log, "-o", output]) == 0
    assert list(read_demonstrations(packed)) == list(read_demonstrations(lines)) != []
    assert run(["import", "dtdr", log, "-o", packed]) == 1
    assert "pass --force" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"log.jsonl", "a.jsonl", "a.parquet"}


def test_object_storage_is_read_through_fsspec(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    save_shards(tmp_path, SOME, ".parquet", ".jsonl")
    for path in tmp_path.iterdir():
        memory.pipe(f"/bucket/runs/{path.name}", path.read_bytes())
    expected = SOME[0::2] + SOME[1::2]
    for url in ("memory://bucket/runs", "memory:/bucket/runs", "memory://bucket/runs/part-*"):
        assert list(read_demonstrations(url)) == expected
    assert list(read_demonstrations("memory://bucket/runs/part-1.jsonl")) == SOME[1::2]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://bucket/nothing.parquet", "no such file or folder"),
        ("nosuch://bucket/x", "nosuch"),
    ],
)
def test_storage_that_does_not_answer_is_one_sentence(url, said, capsys):
    assert run(["data", "stats", url]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert is_one_sentence(error)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_shard_that_storage_does_not_give_is_counted(tmp_path, monkeypatch, suffix):
    from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

    save_shards(tmp_path, SOME, suffix, suffix)
    memory = MemoryFileSystem()
    for path in tmp_path.iterdir():
        memory.pipe(f"/busy{suffix}/{path.name}", path.read_bytes())

    def breaking(read):
        def break_off(self, size):
            if "part-0" in self.path:
                raise RuntimeError("503 Slow Down")
            return read(self, size)

        return break_off

    for name in ("read", "readinto"):
        monkeypatch.setattr(MemoryFile, name, breaking(getattr(MemoryFile, name)))
    with pytest.raises(InputError, match=r"part-0\S+: .*503 Slow Down"):
        list(read_demonstrations(f"memory://busy{suffix}"))
    bad = BadRecords()
    assert list(read_demonstrations(f"memory://busy{suffix}", bad=bad)) == SOME[1::2]
    assert bad.count == 1
    assert "503 Slow Down" in bad.first[0]


def test_a_damaged_shard_is_named_and_can_be_left_out(tmp_path):
    save_shards(tmp_path, SOME, ".parquet", ".parquet")
    path = tmp_path / "part-0.parquet"
    whole = path.read_bytes()
    for damaged in (whole[:-20], whole[: len(whole) // 2], b"", b"PAR1 but text" * 9):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"part-0.parquet: it is not a whole Parquet file"):
            list(read_demonstrations(tmp_path))
        bad = BadRecords()
        assert list(read_demonstrations(tmp_path, bad=bad)) == SOME[1::2]
        assert bad.count == 1


def damaged_copies(content):
    """Copies with flipped bits, in the footer and anywhere, and with other kinds of columns."""
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    draw = random.Random(5)
    for number in range(150):
        flipped = bytearray(content)
        for _ in range(draw.choice([1, 1, 8])):
            place = draw.randrange(footer if number % 2 else 0, len(flipped))
            flipped[place] ^= 1 << draw.randrange(8)
        yield flipped
    # Thrift writes an optional column as 0x25 0x02. Required, its level histograms are too long,
    # and pyarrow ends the process if it is asked about the column.
    for place in range(footer, len(content) - 8):
        if content[place : place + 2] == b"\x25\x02":
            yield content[: place + 1] + b"\0" + content[place + 2 :]


def test_damage_never_ends_in_a_traceback_or_the_end_of_the_process(tmp_path):
    path = tmp_path / "runs.parquet"
    save_demonstrations(path, SOME)
    count = 0
    for content in damaged_copies(path.read_bytes()):
        path.write_bytes(content)
        count += 1
        try:
            list(read_demonstrations(path))
            with path.open("rb") as stream:
                row_groups(stream)
        except DtdrError as error:
            assert "Parquet" in str(error) or "runs.parquet" in str(error)  # noqa: PT017  # which of the two happens is open
    assert count > 160


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"query": ["x"], "calls": [[]]}, "no column 'id'"),
        ({"id": [None], "query": ["x"], "calls": [[]]}, "row 1: the demonstration has no 'id'"),
        ({"id": ["1"], "query": [""], "calls": [[]]}, "row 1: the demonstration has no 'query'"),
        ({"id": ["1"], "query": ["x"], "calls": ["f"]}, "row 1: the demonstration has no list"),
        ({"id": ["1"], "query": ["x"], "calls": [[{"id": "1"}]]}, "row 1: call '1' has no 'tool'"),
        (
            {"id": ["1"], "query": ["x"], "calls": [[{"id": "1", "tool": "f", "arguments": "{"}]]},
            "row 1: the arguments of call '1' must be JSON text",
        ),
        (
            {"id": ["1"], "query": ["x"], "calls": [[]], "offered": ['{"a": 1}']},
            "row 1: 'offered' must be a JSON list of names",
        ),
        ({"id": ["1", "1"], "query": ["x"] * 2, "calls": [[]] * 2}, "row 2: the id '1' was used"),
    ],
)
def test_rows_that_cannot_be_used_are_named(tmp_path, columns, said):
    path = tmp_path / "runs.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(InputError, match=said):
        list(read_demonstrations(path))


def test_two_shards_with_one_id_are_an_error(tmp_path):
    save_demonstrations(tmp_path / "a.parquet", SOME[:2])
    save_demonstrations(tmp_path / "b.jsonl", SOME[1:3])
    with pytest.raises(InputError, match=r"b\.jsonl:1: the id .* was used before"):
        list(read_demonstrations(tmp_path))


def test_a_folder_without_data_says_what_it_looked_for(tmp_path):
    for path in (tmp_path, f"{tmp_path}/*.parquet"):
        with pytest.raises(InputError, match=r"has no demonstrations; name a file"):
            read_demonstrations(path)


def write_bomb(path, calls, outputs):
    """One text of a megabyte, as the output of every call, in some kilobytes."""
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] * len(outputs), pa.int32()), pa.array([json.dumps("x" * 1_000_000)])
    )
    names = pa.array(["read"] * len(outputs))
    made = pa.StructArray.from_arrays([names, names, texts], ["id", "tool", "output"])
    ids = [str(number) for number in range(len(calls) - 1)]
    table = {"id": ids, "query": ["q"] * len(ids), "calls": pa.ListArray.from_arrays(calls, made)}
    pq.write_table(pa.table(table), path, compression="zstd")
    assert path.stat().st_size < 50_000


def test_a_file_that_unfolds_to_much_is_read_in_parts(tmp_path):
    write_bomb(tmp_path / "bomb.parquet", list(range(301)), range(300))
    tracemalloc.start()
    try:
        read = sum(len(item.plan.calls[0].output) for item in read_demonstrations(tmp_path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read == 300 * 1_000_000
    assert peak < 150_000_000  # 600 MB as a whole


def test_texts_of_which_some_are_in_a_dictionary_are_read_once_and_in_order(tmp_path):
    many = []
    for number in range(9_000):
        call = {"id": "1", "tool": "a", "output": "x" * (number % 5 * 900) + f"{number}"}
        record = {"id": str(number), "query": f"q {number % 7}", "calls": [call]}
        many.append(Demonstration.from_dict(record))
    path = tmp_path / "many.parquet"
    with path.open("wb") as stream:
        write_parquet(stream, many)
    assert list(read_demonstrations(path)) == many


def test_a_row_or_a_column_that_is_too_large_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.parquet"
    write_bomb(path, [0, 40], range(40))
    with pytest.raises(InputError, match="a row has more than 32,000,000 bytes"):
        list(read_demonstrations(path))
    monkeypatch.setenv("DTDR_MAX_LINE", "90000000")
    with pytest.raises(InputError, match="read"):  # of the row, whose calls share an id
        list(read_demonstrations(path))
    monkeypatch.setattr("dtdr.data.parquet._LARGEST_GROUP", 1_000_000)
    with pytest.raises(InputError, match="a row group is decoded to more than 1,000,000 bytes"):
        list(read_demonstrations(path))


def test_values_that_repeat_count_before_anything_is_decoded(tmp_path):
    path = tmp_path / "bomb.parquet"
    same = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000_000, pa.int32()), pa.array(["q"]))
    table = pa.table({"id": same, "query": same, "source": same})
    calls = pa.ListArray.from_arrays(pa.array([0] * 20_000_001, pa.int32()), pa.array([], "string"))
    pq.write_table(table.append_column("calls", calls), path, row_group_size=2_000_000)
    assert path.stat().st_size < 500_000
    before = pa.total_allocated_bytes()
    with pytest.raises(InputError, match="decoded to more than 200 times its size"):
        next(iter(read_demonstrations(path)))
    assert pa.total_allocated_bytes() - before < 10_000_000
