import json
from dataclasses import replace

import pytest

from dtdr.cli import run
from dtdr.evaluate import compare, read_run_log, write_run_log
from tests import small_data
from tests.command_line import dtdr, is_one_sentence


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    path = small_data.write(folder, size=24)
    names = ["--retriever", "random", "--retriever", "dr"]
    assert run(["evaluate", str(path), *names, "--runs", str(folder / "runs")]) == 0
    return folder / "runs"


def test_comparison_in_a_process_of_its_own_fits_100_columns(runs):
    code, out, err = dtdr("compare", runs / "random.npz", runs / "dr.npz")
    assert (code, err) == (0, "")
    assert "95 % interval" in out
    assert max(map(len, out.splitlines())) <= 100


def test_json_is_what_the_library_computes(runs, capsys):
    paths = [runs / "random.npz", runs / "dr.npz"]
    assert run(["compare", *map(str, paths), "--metric", "top1", "--seed", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = compare(read_run_log(paths[0]), read_run_log(paths[1]), "top1", seed=3).to_dict()
    assert {key: found[key] for key in expected} == expected
    assert found["second_run"] == str(paths[1])


@pytest.mark.parametrize(
    ("metric", "damage", "said"),
    [
        ("ndcg", lambda content: content, "unknown metric 'ndcg'"),
        ("mrr", lambda content: content[: len(content) // 2], "the run log is damaged or cut"),
        ("mrr", lambda content: b"rubbish", "not a dtdr run log"),
    ],
)
def test_bad_input_is_one_sentence(runs, tmp_path, capsys, metric, damage, said):
    other = tmp_path / "other.npz"
    other.write_bytes(damage((runs / "dr.npz").read_bytes()))
    assert run(["compare", str(runs / "random.npz"), str(other), "--metric", metric]) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert said in error


def test_runs_over_other_plans_are_not_compared(runs, tmp_path, capsys):
    log = read_run_log(runs / "dr.npz")
    other = tmp_path / "other.npz"
    write_run_log(other, replace(log, plan_ids=tuple(f"x{name}" for name in log.plan_ids)))
    assert run(["compare", str(runs / "random.npz"), str(other)]) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert "not about the same steps" in error
