"""A lab on Ray gives the same results."""

import json

import pytest

from dtdr.cli import run
from dtdr.data.demonstration_files import save_demonstrations
from synthetic_runs import generate

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray", reason="needs the extra 'ray'")

SOME = list(generate(60, seed=4))


def test_a_lab_runs_on_ray(tmp_path, capsys):
    save_demonstrations(tmp_path / "d.jsonl", SOME)
    found = {}
    for engine in ("processes", "ray"):
        lab = [
            "lab",
            "run",
            "--data",
            str(tmp_path / "d.jsonl"),
            "--retriever",
            "dtdr-c",
            "--seeds",
        ]
        lab += ["1", "-o", str(tmp_path / engine), "--cache", str(tmp_path / f"cache-{engine}")]
        assert run([*lab, "--engine", engine, "--workers", "2", "--json"]) == 0
        found[engine] = json.loads(capsys.readouterr().out)
    for key in ("runs", "computed", "failed", "results"):
        assert found["ray"].get(key) == found["processes"].get(key), key


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path, capsys):
    lab = ["lab", "run", "--data", str(tmp_path / "d.jsonl"), "--cache", str(tmp_path / "cache")]
    save_demonstrations(tmp_path / "d.jsonl", SOME)
    assert run([*lab, "--engine", "ray:127.0.0.1:1"]) == 2
    assert "cannot reach Ray at 127.0.0.1:1: " in capsys.readouterr().err
    assert run([*lab, "--engine", "spark"]) == 2
    assert "choose one of processes, ray" in capsys.readouterr().err
