import json

import pytest

from dtdr.cli import run
from dtdr.evaluation import compare, read_run_log
from tests import small_data
from tests.command_line import dtdr, is_one_sentence


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    path = small_data.write(folder, size=24)
    names = ["--retriever", "random", "--retriever", "dr"]
    assert run(["evaluate", "--data", str(path), *names, "--runs", str(folder / "runs")]) == 0
    return folder / "runs"


def test_comparison_in_a_process_of_its_own_fits_100_columns(runs):
    code, out, err = dtdr("compare", runs / "random.jsonl", runs / "dr.jsonl")
    assert (code, err) == (0, "")
    assert "95 % interval" in out
    assert max(map(len, out.splitlines())) <= 100


def test_json_is_what_the_library_computes(runs, capsys):
    paths = [runs / "random.jsonl", runs / "dr.jsonl"]
    assert run(["compare", *map(str, paths), "--metric", "top1", "--seed", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = compare(read_run_log(paths[0]), read_run_log(paths[1]), "top1", seed=3).to_dict()
    assert {key: found[key] for key in expected} == expected
    assert found["second_run"] == str(paths[1])


@pytest.mark.parametrize(
    ("metric", "damage", "said"),
    [
        ("ndcg", lambda text: text, "unknown metric 'ndcg'"),
        ("mrr", lambda text: text[: len(text) // 2], "the run log ends here"),
        ("mrr", lambda text: "rubbish", "no dtdr run log"),
        ("mrr", lambda text: text.replace('"plan":"d', '"plan":"x'), "not about the same steps"),
    ],
)
def test_bad_input_is_one_sentence(runs, tmp_path, capsys, metric, damage, said):
    other = tmp_path / "other.jsonl"
    text = (runs / "dr.jsonl").read_text(encoding="utf-8")
    other.write_text(damage(text), encoding="utf-8")
    assert run(["compare", str(runs / "random.jsonl"), str(other), "--metric", metric]) == 2
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert said in error
