"""A cache in which somebody put something else in place of what a lab keeps."""

import contextlib
import functools
import io
import json
import os
import shutil
import time
import warnings
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.cli import run as run_command
from dtdr.errors import InputError
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.run_log_file import read_run_log
from tests.command_line import is_one_sentence
from tests.crafted import CHANGES, change, change_array
from tests.lab.labs import in_this_process, run, write_data


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A lab with run logs and results."""
    folder = tmp_path_factory.mktemp("lab")
    store = Store(folder / "lab")
    with in_this_process():
        run(store, write_data(folder), "retrieval", "prompts", seeds=1)
    return folder / "lab"


@functools.cache
def deep_zip(size):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("header.npy", "plan.npy"):
            with file.open(name, "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(
                    member, {"descr": "<i4", "fortran_order": False, "shape": (size // 4,)}
                )
                for _ in range(size // 1_000_000):
                    member.write(b"\0" * 1_000_000)
    return content.getvalue()


WHOLE = {
    "nothing": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"hello"),
    "list": lambda path: path.write_bytes(b"[]"),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "not utf-8": lambda path: path.write_bytes(b'{"format": "\xff"}'),
    "many digits": lambda path: path.write_bytes(b'{"format": ' + b"9" * 10_000 + b"}"),
    "large": lambda path: os.truncate(path, 10**12),
    "unfolds as zip": lambda path: path.write_bytes(deep_zip(300_000_000)),
    "says too much": lambda path: path.write_bytes(
        deep_zip(1_000_000).replace(b"(250000,)", b"(10**11,)").replace(b"250000", b"999999")
    ),
}
PLACES = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
    "lost link": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
}


def kinds_of(folder):
    """A file of each kind that a lab keeps."""
    return {
        "manifest": next((folder / "labs").rglob("retrieval.json")),
        "manifest of results": next((folder / "labs").rglob("prompts.json")),
        "log": next((folder / "runs").rglob("*.npz")),
        "result": next((folder / "runs").rglob("*.json")),
    }


def report_is_fine_or_one_sentence(folder):
    """The report is written, or there is one sentence; soon and in little memory either way."""
    started = time.process_time()
    said = io.StringIO()
    with (
        TemporaryDirectory() as place,
        contextlib.redirect_stderr(said),
        warnings.catch_warnings(action="error", category=RuntimeWarning),
    ):
        code = run_command(["lab", "report", "--cache", str(folder), "-o", place])
    seconds = time.process_time() - started
    assert code in (0, 2), said.getvalue()
    if code:
        assert is_one_sentence(said.getvalue()), said.getvalue()
    assert seconds < 100  # of the processor; only work that has no bound reaches it


@pytest.mark.parametrize("damage", [*WHOLE, *PLACES])
@pytest.mark.parametrize(
    "kind",
    [
        "manifest",
        "log",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("manifest of results", "result", "failure")
        ),
    ],
)
def test_a_report_of_a_damaged_cache_is_made_or_one_sentence(cache, tmp_path, kind, damage):
    folder = Path(shutil.copytree(cache, tmp_path / "lab"))
    if kind == "failure":
        log = kinds_of(folder)["log"]
        log.unlink()
        path = folder / "failures" / f"{log.stem}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}")
    else:
        path = kinds_of(folder)[kind]
    if damage in PLACES:
        path.unlink()
        PLACES[damage](path)
    else:
        WHOLE[damage](path)
    report_is_fine_or_one_sentence(folder)


def change_json(path, data):
    """Put something else, or nothing, in a few places of a JSON file."""
    path.write_bytes(json.dumps(change(json.loads(path.read_bytes()), data.draw)).encode())


def change_log(path, data):
    """Change one array of a run log, or its header."""
    with np.load(path) as members:
        arrays = dict(members)
    name = data.draw(st.sampled_from(sorted(arrays)))
    if name == "header":
        header = change(json.loads(arrays[name].tobytes()), data.draw)
        arrays[name] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    else:
        kind = data.draw(st.sampled_from(CHANGES))
        changed = change_array(arrays.pop(name), kind, data.draw)
        arrays |= {} if changed is None else {name: changed}
        if kind == "empty" and data.draw(st.booleans()):
            arrays |= {key: item[:0] for key, item in arrays.items() if key != "header"}
    np.savez_compressed(path, **arrays)


@given(data=st.data())
def test_a_crafted_cache_gives_a_report_or_one_sentence(cache, data):
    with TemporaryDirectory() as place:
        folder = Path(shutil.copytree(cache, Path(place) / "lab"))
        files = kinds_of(folder)
        kind = data.draw(st.sampled_from(sorted(files)))
        (change_log if kind == "log" else change_json)(files[kind], data)
        report_is_fine_or_one_sentence(folder)


@given(st.binary(max_size=200), st.integers(0, 10**6), st.booleans())
def test_any_bytes_in_a_run_log_are_read_or_refused(cache, inserted, place, is_replaced):
    content = bytearray(kinds_of(cache)["log"].read_bytes())
    place %= len(content)
    content[place : place + len(inserted) * is_replaced] = inserted
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            read_run_log(path)


@pytest.mark.parametrize("left_out", [5, None, [[1]], [{"a": 1}]])
def test_a_damaged_list_of_what_was_left_out_is_one_sentence(cache, tmp_path, left_out):
    folder = Path(shutil.copytree(cache, tmp_path / "lab"))
    path = kinds_of(folder)["manifest"]
    path.write_text(json.dumps({**json.loads(path.read_text()), "left_out": left_out}))
    report_is_fine_or_one_sentence(folder)
