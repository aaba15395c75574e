"""Coding agents as they are published, behind the gateway; see ``benchmarks/clients.py``."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dtdr.logs import open_demonstrations
from tests.conftest import PROJECT

SCRIPT = PROJECT / "benchmarks" / "clients.py"


@pytest.mark.slow
@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode"])
def test_a_real_client_reaches_every_tool_and_its_transcript_is_read(client):
    # Not ``tmp_path``: the path of a Unix socket has at most 107 bytes, a home's own included.
    with tempfile.TemporaryDirectory() as folder:
        _try(client, Path(folder))


def _try(client, folder):
    command = [sys.executable, str(SCRIPT), "--json", "--runs", "3", "--keep", str(folder)]
    chosen = ["--clients", client, "--settings", "dtdr"]
    done = subprocess.run([*command, *chosen], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("Nothing was tried"):
        pytest.skip(done.stdout.strip())
    row = json.loads(done.stdout)

    assert row["unreached"] == 0
    assert row["share"] <= 0.15
    if client == "claude-code":
        assert row["loaded"] >= 0.85
    pattern = {"claude-code": "*/home/.claude/projects/*/*.jsonl", "codex": "**/rollout-*.jsonl"}
    called = {}
    for path in folder.glob(pattern.get(client, "nothing")):
        (run,) = open_demonstrations([path])
        called[run.query] = {name.rpartition("__")[2] for name in run.plan.tools}
    if client in pattern:
        assert len(called) == 3
        assert "find_invoices" in called["Remind everyone whose invoice is overdue"]
