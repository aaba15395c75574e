"""Coding agents as they are published, behind the gateway; see ``benchmarks/clients.py``."""

import json
import subprocess
import sys

import pytest

from dtdr.logs import open_demonstrations
from tests.conftest import PROJECT

SCRIPT = PROJECT / "benchmarks" / "clients.py"


@pytest.mark.slow
@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode"])
def test_a_real_client_reaches_every_tool_and_its_transcript_is_read(client, tmp_path):
    command = [sys.executable, str(SCRIPT), "--json", "--runs", "1", "--keep", str(tmp_path)]
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
    for path in tmp_path.glob(pattern.get(client, "nothing")):
        (run,) = open_demonstrations([path])
        assert run.query == "Remind everyone whose invoice is overdue"
        assert {name.rpartition("__")[2] for name in run.plan.tools} >= {"find_invoices"}
