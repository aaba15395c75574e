import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given

from dtdr.deprecated import renamed_key
from dtdr.errors import InputError
from dtdr.evaluate.run_log_file import read_run_log, write_run_log
from tests.runs import is_same, logs, make_log, make_step


@pytest.fixture
def log():
    return make_log(
        [
            make_step([2, 0, 1, 4, 3], ["alpha", "gamma"], step=0, confidence=0.5),
            make_step([4, 0, 1, 2, 3], ["end", "teleport"], step=1),
        ],
        encoder={"name": "lexical"},
    )


@pytest.fixture
def path(log, tmp_path):
    write_run_log(tmp_path / "run.npz", log)
    return tmp_path / "run.npz"


def rewrite(path, **changes):
    """Replace arrays of a log; None removes one."""
    with np.load(path) as members:
        arrays = {**members, **changes}
    np.savez_compressed(path, **{name: one for name, one in arrays.items() if one is not None})


def edit_header(path, change):
    """Replace a log's header by what ``change`` makes of it."""
    with np.load(path) as members:
        header = json.loads(members["header"].tobytes())
    rewrite(path, header=np.frombuffer(json.dumps(change(header)).encode(), np.uint8))


@given(log=logs())
def test_log_that_is_written_and_read_is_the_same(log, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.npz"
    write_run_log(path, log)
    assert is_same(read_run_log(path), log)


def test_names_outside_ascii_and_half_characters_survive(tmp_path):
    names = ["ü", "搜索", "half \udcff"]
    log = make_log([make_step([1, 0, 2], ["übersetze"], plan="p \udcff")], tools=names)
    write_run_log(tmp_path / "run.npz", log)
    assert is_same(read_run_log(tmp_path / "run.npz"), log)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_log_that_was_cut_short_is_refused(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=r"run\.npz: the run log is damaged or cut; run the eval"):
        read_run_log(path)


def test_a_changed_byte_is_noticed(path):
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        member = archive.getinfo("ranks.npy")
    content[member.header_offset + 60] ^= 255
    path.write_bytes(content)
    with pytest.raises(InputError, match="the run log is damaged"):
        read_run_log(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00rubbish\n", b"[]\n", b'{"format": "x"}\n'])
def test_another_file_is_not_a_run_log(tmp_path, content):
    (tmp_path / "run.npz").write_bytes(content)
    with pytest.raises(InputError, match="this is not a dtdr run log; write one with"):
        read_run_log(tmp_path / "run.npz")


def test_a_pickle_is_not_opened(path):
    rewrite(path, ranks=np.array([[object()]], dtype=object))
    with pytest.raises(InputError, match="the run log is damaged"):
        read_run_log(path)


def test_a_log_with_the_old_key_of_the_ranker_is_read(path, log):
    edit_header(path, lambda header: renamed_key(header, "ranker", "retriever"))
    assert read_run_log(path).header.ranker == log.header.ranker


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*none\.npz: no such file"):
        read_run_log(tmp_path / "none.npz")


def test_another_version_is_refused(path):
    edit_header(path, lambda header: {**header, "format_version": 99})
    with pytest.raises(InputError, match="version 99, but this dtdr reads version 4"):
        read_run_log(path)


@pytest.mark.parametrize(
    "change",
    [
        {"tools": "abc"},
        {"tools": [1]},
        {"split": 3},
        {"encoder": "x"},
        {"details": []},
        {"plan_ids": 3},
        {"split": None},
    ],
)
def test_header_of_other_types_is_refused(path, change):
    edit_header(path, lambda header: {**header, **change})
    with pytest.raises(InputError, match="damaged or cut"):
        read_run_log(path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ranks": np.array([[2, 1], [1, 6]], "<i4")}, "'ranks' is out of range"),
        ({"ranks": np.array([[2, 1]], "<i4")}, "columns differ"),
        ({"ranks": np.array([[2.0, 1.0], [1.0, 0.0]])}, "damaged"),
        ({"ranks": None}, "damaged"),
        ({"best": np.array([0, 9], "<i4")}, "'best' is out of range"),
        ({"in_log": np.full((2, 2), 2, "u1")}, "'in_log' is out of range"),
        ({"in_log": np.ones((2, 3), "u1")}, "columns differ"),
        ({"acceptable": np.full((2, 2), -1, "<i4")}, "'acceptable' must name a tool"),
        ({"acceptable": np.full((2, 2), 77, "<i4")}, "'acceptable' is out of range"),
        ({"called": np.array([0, 9], "<i4")}, "'called' is out of range"),
        ({"plan": np.array([0, 1], "<i4")}, "'plan' is out of range"),
        ({"step": np.array([-1, 0], "<i4")}, "'step' is out of range"),
        ({"step": np.array([1, 1], "<i4")}, "a step is there twice"),
        ({"probabilities": np.full((2, 2), 2_000_000, "<u4")}, "'probabilities' is out of range"),
        ({"confidence": np.array([1.5, 0.0])}, "'confidence' is out of range"),
    ],
)
def test_a_damaged_column_is_named(path, change, problem):
    rewrite(path, **change)
    with pytest.raises(InputError, match=problem):
        read_run_log(path)
