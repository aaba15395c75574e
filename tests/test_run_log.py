import json

import numpy as np
import pytest
from hypothesis import given

from dtdr.errors import InputError, OutputError
from dtdr.evaluation.run_log import read_run_log, write_run_log
from tests.runs import logs, make_log, make_step


@pytest.fixture
def log():
    return make_log(
        [
            make_step([2, 0, 1, 4, 3], ["alpha", "gamma"], step=0),
            make_step([4, 0, 1, 2, 3], ["end"], step=1),
        ],
        encoder={"name": "lexical"},
    )


@pytest.fixture
def path(log, tmp_path):
    write_run_log(tmp_path / "run.jsonl", log)
    return tmp_path / "run.jsonl"


def edit_line(path, number, change):
    """Replace a line's JSON value by what ``change`` makes of it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[number - 1])
    lines[number - 1] = json.dumps(change(record))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@given(log=logs())
def test_log_that_is_written_and_read_is_the_same(log, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.jsonl"
    write_run_log(path, log)
    found = read_run_log(path)
    assert found.header == log.header
    assert len(found.steps) == len(log.steps)
    for mine, theirs in zip(log.steps, found.steps, strict=True):
        assert (mine.plan, mine.step, mine.plan_length) == (
            theirs.plan,
            theirs.step,
            theirs.plan_length,
        )
        assert (mine.history, mine.acceptable, mine.ranks) == (
            theirs.history,
            theirs.acceptable,
            theirs.ranks,
        )
        np.testing.assert_array_equal(mine.ranking, theirs.ranking)
        np.testing.assert_array_equal(mine.probabilities, theirs.probabilities)


def test_names_outside_ascii_survive(tmp_path):
    log = make_log(
        [make_step([1, 0], ["übersetze"], tools=["übersetze", "搜索"])], tools=["ü", "搜索"]
    )
    write_run_log(tmp_path / "run.jsonl", log)
    found = read_run_log(tmp_path / "run.jsonl")
    assert found.header.tools == ("ü", "搜索")
    assert found.steps[0].acceptable == ("übersetze",)


def test_existing_log_is_replaced_with_force_only(log, path):
    before = path.read_bytes()
    with pytest.raises(OutputError, match="--force"):
        write_run_log(path, make_log([]))
    assert path.read_bytes() == before
    write_run_log(path, make_log([]), force=True)
    assert read_run_log(path).steps == ()


def test_last_line_cut_short_is_named(path):
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"run\.jsonl:3: the run log ends here.* 2 steps"):
        read_run_log(path)


def test_missing_last_line_is_noticed(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:2]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.jsonl:2: the run log ends here"):
        read_run_log(path)


def test_line_that_is_not_json_is_named(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], lines[1][:40], lines[2]]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.jsonl:2: .*not JSON"):
        read_run_log(path)


def test_binary_rubbish_is_no_run_log(tmp_path):
    (tmp_path / "run.jsonl").write_bytes(b"\xff\xfe\x00rubbish\n")
    with pytest.raises(InputError, match="no dtdr run log"):
        read_run_log(tmp_path / "run.jsonl")


def test_empty_file_is_no_run_log(tmp_path):
    (tmp_path / "run.jsonl").touch()
    with pytest.raises(InputError, match="no dtdr run log"):
        read_run_log(tmp_path / "run.jsonl")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*none\.jsonl: no such file"):
        read_run_log(tmp_path / "none.jsonl")


def test_another_version_is_refused(path):
    edit_line(path, 1, lambda record: {**record, "format_version": 99})
    with pytest.raises(InputError, match="version 99, this dtdr reads versions 1 and 2"):
        read_run_log(path)


@pytest.mark.parametrize(
    "header", [{"tools": "abc"}, {"tools": [1]}, {"steps": "2"}, {"split": 3}, {"encoder": "x"}]
)
def test_header_of_other_types_is_refused(path, header):
    edit_line(path, 1, lambda record: {**record, **header})
    with pytest.raises(InputError, match=r"run\.jsonl:1: the header is damaged"):
        read_run_log(path)


def test_header_without_a_key_is_refused(path):
    edit_line(path, 1, lambda record: {key: record[key] for key in record if key != "split"})
    with pytest.raises(InputError, match=r"run\.jsonl:1: the header lacks 'split'"):
        read_run_log(path)


@pytest.mark.parametrize(
    "change",
    [
        {"ranking": [0, 1, 2, 3]},
        {"ranking": [0, 1, 2, 3, 3]},
        {"ranking": [0, 1, 2, 3, 9]},
        {"ranking": [0, 1, 2, 3, 4.0]},
        {"ranking": [0, 1, 2, 3, "4"]},
        {"ranking": "01234"},
        {"probabilities": [0.5, 0.5]},
        {"probabilities": [2, 0, 0, 0, 0]},
        {"probabilities": ["a", 0, 0, 0, 0]},
        {"acceptable": []},
        {"acceptable": [3]},
        {"history": ["alpha"]},
        {"step": -1},
        {"plan": 7},
    ],
)
def test_damaged_step_is_named_by_file_and_line(path, change):
    edit_line(path, 2, lambda record: {**record, **change})
    with pytest.raises(InputError, match=r"run\.jsonl:2: this line of the run log is damaged"):
        read_run_log(path)


def test_step_that_is_there_twice_is_refused(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], lines[1], lines[1]]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.jsonl:3: step 0 of plan 'p1' is there twice"):
        read_run_log(path)
