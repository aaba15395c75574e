"""docs/without-log.md as a new user follows it, with real MCP servers of the SDK and LangGraph."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.gateway.helpers import NAMES
from tests.gateway.test_from_log_to_client import SERVER_SCRIPT
from tests.integrations.documentation import block

PAGE = (PROJECT / "docs" / "without-log.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """What a new user has: two servers."""
    mail = {name: text for name, text in NAMES.items() if "mail" in name or "user" in name}
    files = {name: text for name, text in NAMES.items() if name not in mail}
    for name, tools in (("mail", mail), ("files", files)):
        script = SERVER_SCRIPT.format(name=name, tools=tools)
        (tmp_path / f"{name}_server.py").write_text(script, encoding="utf-8")
    (tmp_path / "servers.json").write_text(block("servers.json", PAGE), encoding="utf-8")
    return tmp_path


def test_a_client_sees_few_tools_at_once_and_the_status_says_what_happened(folder):
    # The client gives its servers few variables: a program finds the packages by its own path.
    programs = folder / "bin"
    programs.mkdir()
    for name, module in (("dtdr", "-m dtdr"), ("python", "")):
        script = f"#!/bin/sh\nPYTHONPATH={os.environ.get('PYTHONPATH', '')} exec {sys.executable} "
        (programs / name).write_text(f'{script}{module} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONUTF8": "1",
    }
    environment.pop("XDG_DATA_HOME", None)

    def run(command):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    printed = run([sys.executable, "-c", block("mcp", PAGE)])
    first, second = (re.findall(r"'(\w+)'", line) for line in printed)
    assert first[0] == second[0] == "search_tools"
    assert {"write_mail", "send_mail"} & set(first)
    assert "summarize_file" in second
    assert len(first) == 3
    status = run(["sh", "-e", "-c", block("status", PAGE)])
    assert [line.split()[0] for line in status] == [
        "desk",
        "runs",
        "model",
        "next",
        "list",
        "saved",
    ]
    assert status[1].split()[1] == "2"
    promised = PAGE[PAGE.index("    desk\n") :].splitlines()[:6]
    assert [line[4:] for line in promised[2:]] == status[2:], "the page shows what it prints"
    assert "2 of 2 calls" in status[4]
    assert (folder / ".local/share/dtdr/desk").stat().st_mode & 0o077 == 0


def test_a_graph_learns_in_a_folder(tmp_path, monkeypatch):
    pytest.importorskip("langchain", reason="langchain is not installed")
    from dtdr.agents.run_folder import RunFolder
    from tests.integrations.frameworks import Script
    from tests.integrations.scripted_chat_model import ScriptedModel, tools
    from tests.integrations.tools import NAMES as NAMES_OF_TOOLS

    monkeypatch.chdir(tmp_path)
    script = Script([(name,) for name in NAMES_OF_TOOLS[:2]])
    names = {"model": ScriptedModel(script=script), "tools": tools(script)}
    exec(compile(block("langgraph", PAGE), "without-log.md", "exec"), names)
    runs = RunFolder("runs")
    assert runs.count_runs() == 1
    assert script.executed == list(NAMES_OF_TOOLS[:2])
    assert all(len(seen) <= 5 for seen in script.seen)
    assert Path("runs/demonstrations.jsonl").stat().st_mode & 0o077 == 0
