"""The benchmarks that ask an LLM run and print their tables, with one that is scripted."""

import runpy
import sys

import pytest

from tests.conftest import PROJECT
from tests.scripted_llm import ScriptedLLM

FOLDER = PROJECT / "benchmarks" / "planning"
RUNS = {
    "prompt_length": ["--retriever", "dr", "--steps", "10"],
    "step_time": ["--retriever", "dr", "--steps", "2", "--cold-steps", "1", "--icl", "hard,none"],
    "filling": ["--calls", "3"],
    "success": ["--plans", "2", "--cells", "hard:dr:retriever:both,none:dr:constrained"],
}


def test_every_benchmark_is_run():
    assert set(RUNS) == {path.stem for path in FOLDER.glob("*.py")} - {"common"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_planning_benchmark_prints_its_table(name, monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)  # answers are recorded in runs/
    import common

    monkeypatch.setattr(common, "create_llm", lambda *_, **__: ScriptedLLM())
    options = ["--llm", "gguf:none.gguf", "--dataset", "bundled", *RUNS[name]]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert any(set(line.strip()) == {"─"} for line in lines)
    assert all(len(line) <= 100 for line in lines)
