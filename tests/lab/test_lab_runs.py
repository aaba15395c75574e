import json
import os
import re
import signal
import time

import pytest

from dtdr.errors import InputError
from dtdr.evaluate.lab.report import build_report
from dtdr.evaluate.lab.report.page import to_html, to_markdown
from dtdr.evaluate.lab.store import Store
from tests.command_line import start
from tests.lab.labs import in_this_process, run, write_data

OWN = "tests.lab.own_rankers"


@pytest.fixture
def one_process():
    with in_this_process():
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A lab that has been run: its store, data and summary."""
    folder = tmp_path_factory.mktemp("lab")
    data = write_data(folder)
    store = Store(folder / "cache")
    return store, data, run(store, data, workers=2)


def report(store):
    """As Markdown, without the times that end a row of the retrieval table."""
    page, _ = build_report(store, "own")
    return re.sub(r"( [\d.,]+ \|){2}$", "", to_markdown(page), flags=re.MULTILINE)


def logs_of(store):
    return sorted((store.folder / "runs").glob("*/*.npz"))


def test_a_second_run_computes_nothing(finished):
    store, data, first = finished
    # Paper splits and splits by group, two seeds, two rankers.
    assert (first.experiments, first.computed, first.failed) == (8, 8, [])
    again = run(store, data)
    assert (again.cached, again.computed) == (8, 0)


@pytest.mark.usefixtures("one_process")
def test_a_deleted_or_damaged_entry_is_computed_again_to_the_same_report(finished):
    store, data, _ = finished
    before = report(store)
    logs_of(store)[3].unlink()
    path = logs_of(store)[0]
    path.write_bytes(path.read_bytes()[:100])
    notes: list[str] = []
    again = run(store, data, notes=notes)
    assert (again.cached, again.computed) == (6, 2)
    assert path.name in notes[0]
    assert "computed again" in notes[0]
    assert report(store) == before


@pytest.mark.usefixtures("one_process")
def test_a_changed_data_set_is_computed_anew(finished, tmp_path):
    store, _, _ = finished
    again = run(store, write_data(tmp_path, 41))
    assert again.cached == 0


def test_a_ranker_that_raises_costs_its_own_cells_only(finished, tmp_path):
    _, data, _ = finished
    store = Store(tmp_path)
    found = run(store, data, rankers=["dr", f"{OWN}:Raising"], seeds=1)
    assert found.computed == 2
    expected = r"RuntimeError: no idea what to learn \(own_rankers.py, line \d+\)"
    assert len(found.failed) == 2
    assert all(re.fullmatch(expected, reason) for _, reason in found.failed)
    with in_this_process():
        again = run(store, data, rankers=["dr", f"{OWN}:Raising"], seeds=1)
    assert (again.cached, len(again.failed)) == (2, 2)
    page, _ = build_report(store, "own")
    for text in (to_html(page), to_markdown(page)):
        assert "no idea what to learn" in text
        assert "Experiments that failed" in text


def test_a_process_that_dies_costs_its_own_cells_only(finished, tmp_path):
    _, data, _ = finished
    found = run(Store(tmp_path), data, rankers=[f"{OWN}:Dying", "dr"], seeds=1, workers=2)
    assert found.computed == 2
    assert len(found.failed) == 2
    assert "ended with EXIT(9)" in found.failed[0][1]


@pytest.mark.usefixtures("one_process")
def test_a_set_with_one_plan_is_refused_before_anything_runs_and_two_are_enough(tmp_path):
    with pytest.raises(InputError, match=r"'own'.*give at least two"):
        run(Store(tmp_path / "cache"), write_data(tmp_path, 1))
    (tmp_path / "two").mkdir()
    assert not run(Store(tmp_path / "cache"), write_data(tmp_path / "two", 2), seeds=1).failed


@pytest.mark.usefixtures("one_process")
def test_without_descriptions_those_that_need_them_are_left_out(tmp_path):
    data = write_data(tmp_path, described=False)
    found = run(Store(tmp_path / "cache"), data, rankers=["bm25", "dr"], seeds=1)
    assert found.left_out == ["bm25 on own: there are no tool descriptions"]
    assert not found.failed


def test_two_labs_at_once_share_the_work(finished, tmp_path):
    _, data, _ = finished
    cheap = ["--retriever", "random", "--retriever", "dr", "--seeds", "2", "--workers", "1"]
    labs = [
        start(["lab", "run", "--data", data, *cheap, "--json", "--cache", tmp_path, "-o", folder])
        for folder in (tmp_path / "one", tmp_path / "two")
    ]
    results = [json.loads(lab.communicate(timeout=300)[0]) for lab in labs]
    assert [result["failed"] for result in results] == [[], []]
    assert [result["experiments"] for result in results] == [8, 8]
    assert len(logs_of(Store(tmp_path))) == 8


@pytest.mark.skipif(os.name == "nt", reason="a Ctrl-C cannot be sent to one process on Windows")
@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "terminated", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_lab_goes_on_where_it_was(finished, tmp_path, sent, code, said):
    _, data, _ = finished
    store = Store(tmp_path / "cache")
    slow = ["--retriever", "dr", "--retriever", f"{OWN}:Slow", "--seeds", "2"]
    process = start(
        [
            *("lab", "run", "--data", data, *slow, "--workers", "2"),
            *("--cache", store.folder, "-o", tmp_path),
        ]
    )
    deadline = time.monotonic() + 300
    while len(logs_of(store)) < 1 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(sent)
    # Ends when the workers, which hold the pipe too, have ended.
    _, err = process.communicate(timeout=300)
    assert process.returncode == code, err.decode()
    assert said in err.decode()
    assert "Traceback" not in err.decode()
    kept = len(logs_of(store))
    assert kept >= 1
    again = run(store, data, rankers=["dr"], seeds=2)
    assert again.cached == kept
    assert again.experiments == 4
