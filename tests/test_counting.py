"""Two passes over large data: counts that merge, and a sample that depends on ids alone."""

import json
import random
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtdr
from dtdr import counting
from dtdr.cli import run
from dtdr.counting import Counts, draw_sample, passes
from dtdr.counting.counts import PER_TOOL, number_of
from dtdr.datasets.synthetic import generate, tools
from dtdr.demonstrations import Demonstration
from dtdr.errors import DtdrError, InputError
from dtdr.jsonl import BadRecords, save_demonstrations, save_tools
from dtdr.plan import Plan, ToolCall

pytest.importorskip("pyarrow", reason="Parquet needs the extra 'parquet'")

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
    whole = Counts(50).count(items)
    shuffled = draw.sample(items, len(items))
    cuts = sorted(draw.randrange(len(items) + 1) for _ in range(number))
    parts = [
        Counts(50).count(shuffled[start:end])
        for start, end in zip([0, *cuts], [*cuts, len(items)], strict=True)
    ]
    while len(parts) > 1:
        one = parts.pop(draw.randrange(len(parts)))
        other = parts.pop(draw.randrange(len(parts)))
        parts.append(one.merge(other))
    assert parts[0].to_bytes() == whole.to_bytes()
    assert parts[0].chosen().tolist() == whole.chosen().tolist()


def test_what_is_counted_is_what_is_there():
    counts = Counts(50).count(SOME)
    usable = [item for item in SOME if item.outcome != "failure"]
    expected = Counter(name for item in usable for name in set(item.plan.tools))
    assert counts.tools == dict(expected)
    assert (counts.total, counts.skipped) == (len(SOME), len(SOME) - len(usable))
    assert counts.empty == sum(not item.plan.calls for item in usable)
    other = Counts(50).count([*SOME[:-1], Demonstration("x", "Another query", Plan(()))])
    assert other.digest != counts.digest
    training = counts.training(50)
    assert (training.demonstrations, training.sampled) == (len(usable), 50)


def test_a_sample_is_a_part_of_a_larger_one_and_another_seed_draws_another():
    sizes = [set(Counts(size).count(SOME).chosen().tolist()) for size in (10, 100, 400)]
    assert sizes[0] < sizes[1] < sizes[2]
    other = set(Counts(100, seed=1).count(SOME).chosen().tolist())
    assert len(other & {number_of(item.id, 1) for item in SOME}) == len(other)
    drawn = [
        {item.id for item in SOME if number_of(item.id, seed) in chosen}
        for seed, chosen in ((0, sizes[1]), (1, other))
    ]
    assert drawn[0] != drawn[1]


def test_rare_tools_keep_their_examples(tmp_path):
    folder = save_shards(tmp_path / "data", some(4_000), 3)
    counts = Counts(100).count(some(4_000))
    assert counts.tools[RARE] > PER_TOOL
    sample = draw_sample([folder], 100, workers=1)
    held = Counter(name for item in sample.demonstrations for name in set(item.plan.tools))
    assert held[RARE] == PER_TOOL
    assert all(held[tool] >= min(PER_TOOL, number) for tool, number in counts.tools.items())
    assert len(sample.demonstrations) < 100 + PER_TOOL * len(counts.tools)


@pytest.mark.parametrize("retriever", ["dtdr-l", pytest.param("dtdr-f", marks=pytest.mark.slow)])
def test_shards_and_workers_change_no_byte_of_a_model(tmp_path, retriever, capsys):
    settings = [*NAMES_ONLY, *(["--set", "width=8"] if retriever == "dtdr-f" else [])]
    kinds = [(1, 1), (7, 2), (64, 1)] if retriever == "dtdr-f" else [(1, 1), (7, 1), (64, 2)]
    some_of_them = SOME[:250] if retriever == "dtdr-f" else SOME
    shuffled = random.Random(0).sample(some_of_them, len(some_of_them))
    for number, workers in kinds:
        items = some_of_them if number == 1 else shuffled
        folder = save_shards(tmp_path / f"data{number}", items, number)
        model = tmp_path / f"model{number}"
        fit = ["fit", str(folder), "-o", str(model), "--sample", "80", "--retriever", retriever]
        assert run([*fit, "--workers", str(workers), *settings]) == 0
        assert "learned from a sample of" in capsys.readouterr().out
    for name in ("config.json", "model.safetensors"):
        found = {(tmp_path / f"model{number}" / name).read_bytes() for number, _ in kinds}
        assert len(found) == 1, name
    training = dtdr.load(tmp_path / "model7").training_
    assert training.demonstrations == sum(item.outcome != "failure" for item in some_of_them)
    assert 60 <= (training.sampled or 0) < len(some_of_them)
    assert run(["inspect", str(tmp_path / "model7")]) == 0
    assert "counted all, learned from a sample of" in " ".join(capsys.readouterr().out.split())


def test_data_that_fit_are_learned_from_as_ever(tmp_path, capsys):
    save_demonstrations(tmp_path / "d.jsonl", SOME)
    for name, more in (("a", ["--sample", "700"]), ("b", ["--sample", "0"])):
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
    fit = ["fit", str(folder), "-o", str(tmp_path / "m"), "--sample", "50", "--set", "width=8"]
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
    monkeypatch.setattr(passes, "_PART_ROWS", 120)
    parts = passes.find_parts([tmp_path / "d.parquet"])
    assert len(parts) == 5
    assert [part.first_row for part in parts] == [1, 151, 301, 451, 601]
    whole = Counts(100).count(SOME)
    counted = [passes.count_part(part, Counts(100), False)[0] for part in parts]
    assert reduce(Counts.merge, counted).to_bytes() == whole.to_bytes()
    bad = table.set_column(0, "id", arrow.array(["x" if n != 460 else "" for n in range(700)]))
    parquet.write_table(bad, tmp_path / "d.parquet", row_group_size=50)
    with pytest.raises(InputError, match=r"d\.parquet, row 461: the demonstration has no 'id'"):
        passes.count_part(parts[3], Counts(100), False)


def test_two_demonstrations_with_one_id_are_an_error(tmp_path):
    folder = save_shards(tmp_path / "data", [*SOME[:50], *SOME[:3]], 2)
    with pytest.raises(InputError, match="3 ids stand more than once"):
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
    assert run(fit) == 2
    assert "part-0" in capsys.readouterr().err
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
    with pytest.raises(InputError, match="holds no demonstrations"):
        draw_sample([tmp_path / "empty"], 10)
    failed = [Demonstration(str(n), "q", Plan(()), outcome="failure") for n in range(5)]
    save_demonstrations(tmp_path / "f.jsonl", failed)
    with pytest.raises(InputError, match="all 5 are failures"):
        draw_sample([tmp_path / "f.jsonl"], 2, workers=1)


def test_what_a_sample_cannot_do_is_said(tmp_path, capsys):
    folder = save_shards(tmp_path / "data", SOME, 1)
    fit = ["fit", str(folder), "-o", str(tmp_path / "m"), "--sample", "100"]
    assert run([*fit, "--set", "half_life=10"]) == 2
    assert "--sample 0" in capsys.readouterr().err
    assert run([*fit, "--workers", "0"]) == 2
    assert run([*fit[:-1], "-1"]) == 2


def die(part, *_):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_an_error_and_not_a_hang(tmp_path):
    folder = save_shards(tmp_path / "data", SOME[:50], 2)
    parts = passes.find_parts([folder])
    with pytest.raises(DtdrError, match="a worker process was killed"):
        list(passes.run_parts(die, parts, workers=2, label="Dying"))


def test_the_state_says_what_it_holds():
    counts = Counts(10).count(SOME[:20])
    size = int.from_bytes(counts.to_bytes()[:8], "little")
    assert json.loads(counts.to_bytes()[8 : 8 + size])["total"] == 20
    assert Path(counting.__file__).parent.name == "counting"
