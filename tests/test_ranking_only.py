"""Ranking where only NumPy, msgspec and safetensors are installed."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtdr
from dtdr.predict import create
from dtdr.text.sparse import SparseMatrix
from tests import small_data
from tests.helpers import RANKER_ONLY

RANKERS = ("dtdr-f", "dtdr-l", "dtdr-c", "dr")
PROGRAM = """
import json, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(name)
BLOCKED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Absent())
import dtdr
from dtdr.agents import ToolMask, openai
answers = {}
for folder in sys.argv[2:]:
    model = dtdr.load(folder)
    session = model.session("Mail Ann the summary of q3.pdf")
    first = session.rank()
    session.call("read_file", {"name": "q3.pdf"}, output={"pages": 3, "text": "Sales rose."})
    ranking = session.rank()
    mask = ToolMask(model)
    request = {"model": "m", "messages": [{"role": "user", "content": "Mail Ann q3.pdf"}],
               "tools": [{"type": "function", "function": {"name": tool.name}}
                         for tool in model.tools_[:-1]]}
    answers[folder] = [list(first), list(ranking), list(ranking.select(top_k=3).tools),
                       openai.mask_request(request, mask)]
print(json.dumps(answers, default=str))
"""
BLOCKED = "scipy,sklearn,joblib,networkx,bm25s,threadpoolctl,typer,rich,openai"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    demonstrations = small_data.dataset(60).demonstrations
    for name in RANKERS:
        create(name).fit(demonstrations, small_data.TOOLS, **RANKER_ONLY).save(folder / name)
    return [str(folder / name) for name in RANKERS]


def answers(python, blocked, folders):
    command = [python, "-c", PROGRAM, blocked, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_rankings_are_the_same_to_the_last_bit_without_scipy(folders):
    assert answers(sys.executable, BLOCKED, folders) == answers(sys.executable, "none", folders)


@pytest.mark.slow
def test_three_packages_are_enough_to_rank(folders, tmp_path):
    venv.create(tmp_path / "bare", with_pip=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "numpy", "msgspec", "safetensors"]
    subprocess.run(install, check=True)
    project = Path(dtdr.__file__).parents[2]
    (site,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    (site / "dtdr.pth").write_text(str(project / "src"))
    assert answers(python, "none", folders) == answers(sys.executable, "none", folders)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_own_matrix_is_that_of_scipy(data):
    import numpy as np
    from scipy.sparse import csr_array

    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    count = data.draw(st.integers(0, 12))
    places = [
        np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count)), int)
        for size in (rows, columns)
    ]
    values = np.array(
        data.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count)), float
    )
    theirs = csr_array((values, tuple(places)), shape=(rows, columns))
    ours = SparseMatrix((values, tuple(places)), shape=(rows, columns))
    weights = np.arange(columns)[None]
    dense = np.arange(columns * 2, dtype=float).reshape(columns, 2)
    chosen = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=4))
    pairs = [
        (ours.toarray(), theirs.toarray()),
        (ours.T.toarray(), theirs.T.toarray()),
        (ours @ dense, theirs @ dense),
        ((ours @ ours.T).toarray(), (theirs @ theirs.T).toarray()),
        (ours[chosen].toarray(), theirs[chosen].toarray()),
        (ours.sum(axis=0), theirs.sum(axis=0)),
        (ours.multiply(weights).toarray(), theirs.multiply(weights).toarray()),
        ((ours * 2.5).toarray(), (theirs * 2.5).toarray()),
        ((ours > 0).toarray(), (theirs > 0).toarray()),
    ]
    for own, expected in pairs:
        np.testing.assert_array_equal(own, expected)
