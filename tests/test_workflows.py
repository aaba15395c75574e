"""The workflows are YAML that asks for targets which the Makefile has."""

import re
import shlex
from typing import Any

import pytest
import typer

from dtdr.cli import app
from tests.conftest import PROJECT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
FOLDER = PROJECT / ".github" / "workflows"

if not FOLDER.is_dir():
    pytest.skip("workflows are no part of a source distribution", allow_module_level=True)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_every_step_asks_for_what_is_there(path):
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"]["contents"] == "read"
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all("uses" in step or "run" in step for step in steps)
    for step in steps:
        for line in step.get("run", "").splitlines():
            if line.startswith("make "):
                assert set(line.split()[1:]) <= targets, line


def test_tests_run_on_three_systems_and_every_python_that_is_promised():
    matrix = yaml.safe_load((FOLDER / "tests.yml").read_text())["jobs"]["unit"]["strategy"][
        "matrix"
    ]
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    promised = re.findall(r"Python :: (3\.\d+)\"", (PROJECT / "pyproject.toml").read_text())
    assert matrix["python"] == promised


def test_the_workflow_in_the_documentation_calls_commands_that_there_are():
    page = (PROJECT / "docs" / "evaluate.md").read_text(encoding="utf-8")
    block = re.search(r"\n\n((?: {4}- run: .*\n?)+)", page)
    assert block is not None
    steps = yaml.safe_load(block.group(1))
    root: Any = typer.main.get_command(app)
    called = []
    for step in steps:
        assert step.keys() == {"run"}
        program, *words = shlex.split(step["run"], comments=True)
        if program == "dtdr":
            called.append(words[0])
            command = root.get_command(None, words[0])
            command.make_context(words[0], words[1:])  # raises where unknown
    assert called == ["import", "compare-runs"]
