"""Two passes over large data: counts that merge, and a sample that depends on ids alone."""

import random
from collections import Counter
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtdr
from dtdr.cli import run
from dtdr.data import parquet
from dtdr.data.calls import ToolCall
from dtdr.data.demonstration_files import read_demonstrations, save_demonstrations, save_tools
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.data.plan import Plan
from dtdr.errors import DtdrError, InputError
from dtdr.predict.counting import Counts, draw_sample, passes
from dtdr.predict.counting import counts as counts_module
from dtdr.predict.counting import file_parts as parts_module
from dtdr.predict.counting.counts import PER_TOOL, Facts, merge_all, number_of
from dtdr.predict.counting.engine import run_tasks
from dtdr.rankers.dtdr_f.encoding import encode_texts
from dtdr.rankers.dtdr_f.familiarity import hash_ngrams
from dtdr.rankers.training import TrainingData
from synthetic_runs import generate, tools
from tests import strategies

arrow_parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs the extra 'parquet'")

RARE = "calibrate_telescope"


def some(number):
    """Demonstrations of which few call a rare tool, some failed, and some call nothing."""
    items = list(generate(number, seed=3))
    for place in range(0, number, 97):
        plan = Plan((ToolCall("1", RARE, {"angle": place}),))
        items[place] = Demonstration(f"rare{place}", f"Calibrate the telescope to {place}", plan)
    for place in range(5, number, 50):
        item = items[place]
        items[place] = Demonstration(item.id, item.query, item.plan, outcome="failure")
    items[1] = Demonstration("nothing", "Do nothing", Plan(()))
    return items


SOME = some(700)
NAMES_ONLY = ("--no-plans", "--no-arguments")
"""Arguments and plans learn from the same sample, and for longer."""


def save_shards(folder, items, number, suffixes=(".parquet", ".jsonl")):
    folder.mkdir(parents=True)
    save_tools(folder / "tools.json", [*tools(), dtdr.Tool(RARE, "Turn a telescope")])
    for place in range(number):
        path = folder / f"part-{place:02}{suffixes[place % len(suffixes)]}"
        save_demonstrations(path, items[place::number])
    return folder


@given(st.randoms(use_true_random=False), st.integers(1, 9))
def test_counts_merge_in_any_order_to_the_same_bytes(draw, number):
    items = SOME[:200]
    whole, _ = Counts(50).count(map(Facts.of, items))
    shuffled = draw.sample(items, len(items))
    cuts = sorted(draw.randrange(len(items) + 1) for _ in range(number))
    parts = [
        Counts(50).count(map(Facts.of, shuffled[start:end]))[0]
        for start, end in zip([0, *cuts], [*cuts, len(items)], strict=True)
    ]
    while len(parts) > 1:
        one = parts.pop(draw.randrange(len(parts)))
        other = parts.pop(draw.randrange(len(parts)))
        parts.append(one.merge(other))
    assert parts[0].to_bytes() == whole.to_bytes()
    assert parts[0].choose().tolist() == whole.choose().tolist()


def test_what_is_counted_is_what_is_there():
    counts, numbers = Counts(50).count(map(Facts.of, SOME))
    assert numbers.tolist() == [number_of(item.id, 0) for item in SOME]
    usable = [item for item in SOME if item.outcome != "failure"]
    successes, _ = Counts(50, failures=False).count(map(Facts.of, SOME))
    for some, items in ((counts, SOME), (successes, usable)):
        expected = Counter(name for item in items for name in set(item.plan.tools))
        assert some.tools == dict(expected)
        assert (some.total, some.skipped) == (len(SOME), len(SOME) - len(items))
        assert some.empty == sum(not item.plan.calls for item in items)
        assert some.failed == len(SOME) - len(usable) > 0
    learned = TrainingData(50, 0, "5e", 1)
    training = counts.describe_training(learned)
    assert (training.demonstrations, training.sampled) == (len(SOME), 50)
    assert training.failures == counts.failed
    assert training.empty_plans == counts.empty
    others = [*SOME[:-1], Demonstration("x", "Another query", Plan(()))]
    other, _ = Counts(50).count(map(Facts.of, others))
    hashes = {training.sha256, other.describe_training(learned).sha256}
    hashes.add(counts.describe_training(TrainingData(50, 0, "5f", 1)).sha256)
    assert len(hashes) == 3


def test_a_sample_is_a_part_of_a_larger_one_and_another_seed_draws_another():
    sizes = [
        set(Counts(size).count(map(Facts.of, SOME))[0].choose().tolist())
        for size in (100, 300, 400)
    ]
    assert sizes[0] < sizes[1] < sizes[2]
    other = set(Counts(300, seed=1).count(map(Facts.of, SOME))[0].choose().tolist())
    assert len(other & {number_of(item.id, 1) for item in SOME}) == len(other)
    drawn = [
        {item.id for item in SOME if number_of(item.id, seed) in chosen}
        for seed, chosen in ((0, sizes[1]), (1, other))
    ]
    assert drawn[0] != drawn[1]


def test_rare_tools_keep_their_examples(tmp_path):
    items = some(2_200)
    folder = save_shards(tmp_path / "data", items, 3)
    counts, _ = Counts(100).count(map(Facts.of, items))
    assert counts.tools[RARE] > PER_TOOL
    sample = draw_sample([folder], 100, workers=1)
    held = Counter(name for item in sample.demonstrations for name in set(item.plan.tools))
    assert held[RARE] == PER_TOOL
    assert all(held[tool] >= min(PER_TOOL, number) for tool, number in counts.tools.items())
    assert len(sample.demonstrations) < 100 + PER_TOOL * len(counts.tools)


@pytest.mark.parametrize("ranker", ["dr", pytest.param("dtdr-f", marks=pytest.mark.slow)])
def test_shards_and_workers_change_no_byte_of_a_model(tmp_path, ranker, capsys):
    kinds = [(1, 1), (7, 2), (64, 1)] if ranker == "dtdr-f" else [(1, 1), (7, 2)]
    some_of_them = SOME[:250]
    shuffled = random.Random(0).sample(some_of_them, len(some_of_them))
    for number, workers in kinds:
        items = some_of_them if number == 1 else shuffled
        folder = save_shards(tmp_path / f"data{number}", items, number)
        model = tmp_path / f"model{number}"
        fit = ["fit", str(folder), "-o", str(model), "--sample", "80", "--retriever", ranker]
        assert run([*fit, "--workers", str(workers), *NAMES_ONLY]) == 0
        assert "learned from a sample of" in capsys.readouterr().out
    for name in ("config.json", "model.safetensors"):
        found = {(tmp_path / f"model{number}" / name).read_bytes() for number, _ in kinds}
        assert len(found) == 1, name
    training = dtdr.load(tmp_path / "model7").training_
    assert training.demonstrations == len(some_of_them)
    assert 60 <= (training.sampled or 0) < len(some_of_them)
    assert run(["inspect", str(tmp_path / "model7")]) == 0
    assert "counted all, learned from a sample of" in " ".join(capsys.readouterr().out.split())


def test_data_that_fit_are_learned_from_as_ever(tmp_path, capsys):
    save_demonstrations(tmp_path / "d.jsonl", SOME[:150])
    for name, more in (("a", ["--sample", "150", "--workers", "1"]), ("b", ["--sample", "0"])):
        fit = ["fit", str(tmp_path / "d.jsonl"), "-o", str(tmp_path / name), "--retriever", "dr"]
        assert run([*fit, *more, *NAMES_ONLY]) == 0
    assert "sample" not in capsys.readouterr().out
    assert (tmp_path / "a" / "config.json").read_bytes() == (
        tmp_path / "b" / "config.json"
    ).read_bytes()
    assert dtdr.load(tmp_path / "a").training_.sampled is None


@pytest.mark.slow
def test_queries_that_were_only_counted_are_familiar(tmp_path):
    folder = save_shards(tmp_path / "data", SOME, 2)
    fit = ["fit", str(folder), "-o", str(tmp_path / "m"), "--sample", "50"]
    assert run([*fit, *NAMES_ONLY]) == 0
    model = dtdr.load(tmp_path / "m")
    usable = [item for item in SOME if item.outcome != "failure"]
    assert all(model.rank(item.query).familiarity == 1.0 for item in usable[::20])


def test_a_large_parquet_file_is_read_in_parts(tmp_path, monkeypatch):
    import pyarrow as arrow
    from pyarrow import parquet

    save_demonstrations(tmp_path / "d.parquet", SOME)
    table = parquet.read_table(tmp_path / "d.parquet")
    parquet.write_table(table, tmp_path / "d.parquet", row_group_size=50)
    monkeypatch.setattr(parts_module, "_PART_ROWS", 120)
    parts = parts_module.find_parts([tmp_path / "d.parquet"])
    assert len(parts) == 5
    assert [part.first_row for part in parts] == [1, 151, 301, 451, 601]
    whole, numbers = Counts(100).count(map(Facts.of, SOME))
    counted = [passes.count_part(part, Counts(100), False) for part in parts]
    merged = reduce(Counts.merge, [one.counts for one in counted])
    assert merged.to_bytes() == whole.to_bytes()
    assert np.concatenate([one.numbers for one in counted]).tolist() == numbers.tolist()
    bad = table.set_column(0, "id", arrow.array(["x" if n != 460 else "" for n in range(700)]))
    parquet.write_table(bad, tmp_path / "d.parquet", row_group_size=50)
    with pytest.raises(InputError, match=r"d\.parquet, row 461: the demonstration has no 'id'"):
        passes.count_part(parts[3], Counts(100), False)


TEXTS = st.text(
    st.sampled_from("aB3 _-.'\t\n\x0b\x1c\x85\xa0\u2003\u0301\u0338\u0345éßŁﬁ´¨½一ไก้가ᄀ😀İſ")
    | st.characters(exclude_categories=["Cs"]),
    max_size=30,
)


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_phrases_of_pieces_are_the_phrases_of_the_text(texts):
    words = encode_texts(texts)["words"]
    phrases = hash_ngrams(words.values, words.starts)
    found = counts_module._add_phrases(np.empty(0, np.uint32), texts)
    assert found.tolist() == np.unique(phrases).tolist()


def count_both(path, items):
    """The counts of a Parquet file by its columns and of its demonstrations as objects."""
    empty = Counts(30, 4)
    by_columns = passes.count_part(parts_module.find_parts([path])[0], empty, False)
    counts, numbers = empty.count(map(Facts.of, items))
    assert by_columns.counts.to_bytes() == counts.to_bytes()
    assert sorted(by_columns.numbers.tolist()) == sorted(numbers.tolist())
    return counts


def test_columns_are_counted_as_demonstrations_are(tmp_path, monkeypatch):
    monkeypatch.setattr(counts_module, "_AT_ONCE", 100)
    monkeypatch.setattr(counts_module, "MAX_CHARACTERS", 40)
    monkeypatch.setattr(parquet, "_ROWS", 64)
    long = Demonstration("long", " " * 50 + "begins late", Plan((ToolCall("1", RARE),)))
    items = [*SOME, long, Demonstration("7é", "東京 へ行く zwölfte", Plan((ToolCall("a", "été"),)))]
    save_demonstrations(tmp_path / "d.parquet", items)
    counts = count_both(tmp_path / "d.parquet", items)
    assert counts.total == len(items)
    assert counts.failed > 0


@given(st.lists(strategies.runs() | strategies.demonstrations(), min_size=1, max_size=5))
@settings(deadline=None)
def test_any_demonstrations_are_counted_alike(tmp_path_factory, items):
    path = tmp_path_factory.mktemp("any") / "d.parquet"
    save_demonstrations(path, items)
    count_both(path, items)


def odd_rows():
    """Rows that a demonstration cannot be, what is said of them, and two that it can."""
    call = {"id": "1", "tool": "t", "arguments": "{}"}
    return [
        ({"id": None, "query": "q", "calls": [call]}, "has no 'id'"),
        ({"id": "", "query": "q", "calls": [call]}, "has no 'id'"),
        ({"id": "a", "query": None, "calls": [call]}, "has no 'query'"),
        ({"id": "b", "query": " \u2003", "calls": [call]}, "has no 'query'"),
        ({"id": "c", "query": "q", "calls": None}, "has no list of 'calls'"),
        ({"id": "d", "query": "q", "calls": [{**call, "tool": None}]}, "has no 'tool'"),
        ({"id": "e", "query": "q", "calls": [call, None]}, "must be a JSON object"),
        ({"id": "f", "query": "q", "calls": [{**call, "tool": "end"}]}, "is reserved"),
        ({"id": "g", "query": "q", "calls": [call], "outcome": "won"}, "unknown outcome"),
        ({"id": "h", "query": "q", "calls": [call], "outcome": None}, ""),
        ({"id": "i", "query": "\u0085 !", "calls": []}, ""),
    ]


@pytest.mark.parametrize("text", ["string", "large_string", "dictionary"])
def test_rows_that_are_no_demonstrations_are_named_and_left_out(tmp_path, text):
    import pyarrow as arrow

    kinds = {
        "string": arrow.string(),
        "large_string": arrow.large_string(),
        "dictionary": arrow.dictionary(arrow.int32(), arrow.string()),
    }
    kind = kinds[text]
    call = arrow.struct({"id": kind, "tool": kind, "arguments": kind})
    fields = {"id": kind, "query": kind, "calls": arrow.large_list(call), "outcome": kind}
    schema = arrow.schema(fields)
    rows = [row for row, _ in odd_rows()]
    arrow.parquet.write_table(arrow.Table.from_pylist(rows, schema), tmp_path / "odd.parquet")
    (part,) = parts_module.find_parts([tmp_path / "odd.parquet"])
    counted = passes.count_part(part, Counts(5), True)
    said = [reason for _, reason in odd_rows() if reason]
    assert counted.bad.count == len(said)
    for (place, reason), line in zip(enumerate(said, start=1), counted.bad.first, strict=False):
        assert f"odd.parquet, row {place}: " in line
        assert reason in line
    assert (counted.counts.total, counted.counts.tools) == (2, {"t": 1})
    with pytest.raises(InputError, match=r"row 1: the demonstration has no 'id'"):
        passes.count_part(part, Counts(5), False)


def test_ids_that_are_numbers_and_tools_of_another_shape_are_counted(tmp_path):
    import pyarrow as arrow

    rows = [{"id": 7, "query": "Do it", "calls": ["a", "b"]}, {"id": 8, "query": "x", "calls": []}]
    arrow.parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "n.parquet")
    counts = count_both(tmp_path / "n.parquet", read_demonstrations(tmp_path / "n.parquet"))
    assert counts.tools == {"a": 1, "b": 1}


def test_a_shard_whose_other_columns_are_damaged_is_found_when_it_is_sampled(tmp_path):
    folder = save_shards(tmp_path / "data", SOME, 2, (".parquet",))
    path = folder / "part-01.parquet"
    metadata = arrow_parquet.ParquetFile(path).metadata
    (place,) = (
        metadata.row_group(0).column(number)
        for number in range(metadata.num_columns)
        if metadata.row_group(0).column(number).path_in_schema.endswith("calls.list.element.id")
    )
    content = bytearray(path.read_bytes())
    content[place.data_page_offset + 30] ^= 255
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"part-01\.parquet: it is not a whole Parquet file"):
        draw_sample([folder], 100, workers=1)
    bad = BadRecords()
    sample = draw_sample([folder], 100, workers=1, bad=bad)
    assert bad.count == 1
    assert sample.counts.total == len(SOME)
    assert {item.id for item in sample.demonstrations} <= {item.id for item in SOME[::2]}


def test_a_row_that_is_counted_and_cannot_be_used_is_found_when_it_is_sampled(tmp_path):
    import pyarrow as arrow

    save_demonstrations(tmp_path / "d.parquet", SOME[:60])
    rows = arrow_parquet.read_table(tmp_path / "d.parquet").to_pylist()
    rows[3]["calls"][0]["arguments"] = "{"
    schema = arrow_parquet.read_schema(tmp_path / "d.parquet")
    arrow_parquet.write_table(arrow.Table.from_pylist(rows, schema), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"row 4: the arguments of call .* must be JSON text"):
        draw_sample([tmp_path / "d.parquet"], 60, workers=1)
    bad = BadRecords()
    sample = draw_sample([tmp_path / "d.parquet"], 60, workers=1, bad=bad)
    assert bad.count == 1
    assert SOME[3].id not in {item.id for item in sample.demonstrations}


def test_more_phrases_than_are_kept_leave_those_of_the_sample(monkeypatch):
    monkeypatch.setattr(counts_module, "MOST_PHRASES", 2_000)
    parts = [
        Counts(10).count(map(Facts.of, SOME[start : start + 100]))[0]
        for start in range(0, 700, 100)
    ]
    assert all(part.phrases is not None for part in parts)
    merged = merge_all(parts)
    assert merged is not None
    assert merged.phrases is None
    assert merged.to_bytes() == reduce(Counts.merge, reversed(parts)).to_bytes()
    model = dtdr.fit(SOME[:50], ranker="dr", arguments=False, plans=False)
    model.record_counts(merged.describe_training(model.training_), merged.phrases)
    assert model.training_.demonstrations == merged.total


def test_two_demonstrations_with_one_id_are_an_error(tmp_path):
    folder = save_shards(tmp_path / "data", [*SOME[:50], *SOME[:3]], 2)
    with pytest.raises(InputError, match="3 ids appear more than once"):
        draw_sample([folder], 10, workers=1)


def test_data_that_change_between_the_passes_are_noticed(tmp_path, monkeypatch):
    folder = save_shards(tmp_path / "data", SOME, 2)
    original = passes.collect_part

    def change(part, *arguments):
        save_demonstrations(folder / "part-01.jsonl", SOME[1::2][:20], force=True)
        return original(part, *arguments)

    monkeypatch.setattr(passes, "collect_part", change)
    with pytest.raises(InputError, match="changed while they were read"):
        draw_sample([folder], 300, workers=1)


def test_bad_shards_and_records_are_named_or_counted(tmp_path, capsys):
    folder = save_shards(tmp_path / "data", SOME, 4)
    whole = (folder / "part-02.parquet").read_bytes()
    (folder / "part-02.parquet").write_bytes(whole[: len(whole) // 2])
    lines = (folder / "part-01.jsonl").read_text().splitlines()
    lines[3] = '{"id": "x"}'
    lines[5] = "not JSON"
    (folder / "part-01.jsonl").write_text("\n".join(lines))
    fit = ["fit", str(folder), "-o", str(tmp_path / "m"), "--sample", "100", "--retriever", "dr"]
    assert run([*fit, "--workers", "0"]) == run([*fit, "--sample", "-1"]) == 2
    capsys.readouterr()
    assert run([*fit, "--workers", "1"]) == 2
    said = capsys.readouterr().err
    assert "part-0" in said
    assert "pass --skip-bad" in said
    for workers in (1, 2):
        bad = BadRecords()
        sample = draw_sample([folder], 100, workers=workers, bad=bad)
        assert bad.count == 3
        assert sample.counts.total == len(SOME) - len(SOME[2::4]) - 2
    assert run([*fit, *NAMES_ONLY, "--skip-bad", "--workers", "1"]) == 0
    said = capsys.readouterr().err
    assert "left out 3 bad records in all" in said
    assert "part-01.jsonl:4" in said


def test_an_empty_folder_and_failures_alone_are_errors(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no demonstrations"):
        draw_sample([tmp_path / "empty"], 10)
    failed = [Demonstration(str(n), "q", Plan(()), outcome="failure") for n in range(5)]
    save_demonstrations(tmp_path / "f.jsonl", failed)
    with pytest.raises(InputError, match="all 5 are failures"):
        draw_sample([tmp_path / "f.jsonl"], 2, workers=1, failures=False)


def die(part, *_):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_an_error_and_not_a_hang(tmp_path):
    folder = save_shards(tmp_path / "data", SOME[:50], 2)
    parts = parts_module.find_parts([folder])
    with pytest.raises(DtdrError, match="a worker process was killed"):
        list(run_tasks(die, parts, workers=2, label="Dying"))
