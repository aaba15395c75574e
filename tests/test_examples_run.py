"""Every example runs unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.slow
EXAMPLES = PROJECT / "examples"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_langchain_agent_sees_five_tools_or_those_it_called():
    pytest.importorskip("langchain", reason="LangChain is not installed")
    code, out, err = run("langchain_agent.py")
    assert code == 0, err
    lines = out.splitlines()
    # Five, and the tool with few calls that the query names best.
    assert lines[0].startswith(("step 1: 5 tools: ", "step 1: 6 tools: "))
    assert "find_guest" in lines[0]
    assert "get_invoice" in lines[2]
    assert lines[-1] == "Here is the invoice."


def test_openai_requests_keep_one_list_of_tools():
    code, out, err = run("openai_prompt_cache.py")
    assert code == 0, err
    assert "different lists of tools sent with allowed-tools: 1" in out
    assert "step 3: allowed " in out


def test_a_gateway_shows_what_comes_next_of_two_servers():
    pytest.importorskip("mcp", reason="mcp is not installed")
    code, out, err = run("mcp_gateway.py")
    assert code == 0, err
    before, after, last = out.splitlines()
    assert before.startswith("before a call: ")
    assert "search_bookings" in after
    assert last.startswith("after search_bookings: ")


@pytest.mark.parametrize(("limit", "code"), [(0.5, 0), (1.0, 1)])
def test_a_limit_decides_the_exit_code(limit, code):
    found, out, err = run("evaluate_in_ci.py", "--limit", limit)
    assert found == code, err
    assert "recall@5 is 0." in out


def test_a_local_llm_plans():
    model = os.environ.get("DTDR_TEST_GGUF", "")
    if not Path(model).is_file():
        pytest.skip("no small model: set DTDR_TEST_GGUF to a GGUF file")
    code, out, err = run("local_llm.py", model)
    assert code == 0, err
    assert "plan: " in out


def test_the_notebook_runs_and_shows_tables():
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    notebook = nbformat.read(EXAMPLES / "compare_rankers.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    client.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": PROJECT}}
    ).execute()
    shown = [
        output["data"].get("text/html", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    assert sum("<table" in text for text in shown) == 3
    assert any("dtdr-f" in text and "<table" in text for text in shown)
