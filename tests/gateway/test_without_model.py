"""``dtdr mcp -- SERVER``: without a model at first, over the real pipes."""

import json
import os
import signal
import sys

import pytest
from examples.hotel.log_formats import Call, Turn, claude_code, write_lines
from examples.hotel.log_formats import number as give_times

import dtdr
from dtdr.agents.run_folder import RunFolder, next_count
from dtdr.cli import run
from tests.gateway import raw_server
from tests.gateway.test_pipes import Piped
from tests.server.serving import wait_until

WORK = {"mail": ("zeta", "kappa"), "files": ("omega", "sigma")}
NAMES = {
    "zeta": "Opens a socket.",
    "kappa": "Paints a fence.",
    "omega": "Feeds a goldfish.",
    "sigma": "Waters a flower.",
    **{f"tool_{number}": f"Turns the wheel of machine {number}." for number in range(8)},
}
TOOLS = [{**raw_server.TOOL, "name": name, "description": text} for name, text in NAMES.items()]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "dtdr" / "agent"


def listed(running, intent=None):
    meta = {"_meta": {"dtdr/intent": intent}} if intent else {}
    tools = running.ask("tools/list", meta)["result"]["tools"]
    return [tool["name"] for tool in tools if tool["name"] != "search_tools"]


def work(running, number):
    """A run of two calls, with the user's words."""
    kind = list(WORK)[number % 2]
    for tool in WORK[kind]:
        intent = {"dtdr/intent": f"Please do the {kind} work of day {number}"}
        sent = {"name": tool, "arguments": {"password": "hunter2222"}, "_meta": intent}
        assert "error" not in running.ask("tools/call", sent)


def test_few_tools_are_all_listed_and_of_many_those_that_match_the_words(home):
    few = Piped(None, TOOLS[:4], top=4, more=("--name", "agent"))
    assert listed(few) == list(NAMES)[:4]
    few.close()
    many = Piped(None, TOOLS, top=3, more=("--name", "agent"))
    assert "omega" in listed(many, "Feed the goldfish, please")
    assert len(listed(many)) <= 3
    found = many.call("search_tools", {"query": "water the flower"})
    assert found["result"]["structuredContent"]["tools"][0]["name"] == "sigma"
    many.close()


@pytest.mark.slow
def test_it_learns_from_its_runs_and_goes_on_with_what_it_learned(home, capsys):
    running = Piped(None, TOOLS, top=3, more=("--name", "agent"))
    for number in range(12):
        work(running, number)
    intent = "Please do the files work of day 99"
    listed(running, intent)  # ends the last run
    runs = RunFolder(home)
    wait_until(lambda: any(item.runs >= 10 for item in runs.history()), 180)
    wait_until(lambda: "omega" in listed(running))
    running.close()

    (last,) = [item for item in runs.history() if item.outcome == "published"][-1:]
    assert last.after >= last.before
    assert runs.count_runs() == 12
    assert b"hunter2222" not in runs.path.read_bytes()
    assert {path.stat().st_mode & 0o077 for path in (home, *home.glob("*.json*"))} == {0}
    assert run(["mcp", "--status", "--name", "agent"]) == 0
    status = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in status] == [
        "agent",
        "runs",
        "model",
        "next",
        "list",
        "saved",
    ]
    assert "learned from" in status[2]
    assert "24 calls" in status[4]

    again = Piped(None, TOOLS, top=3, more=("--name", "agent"))
    assert "zeta" in listed(again, "Please do the mail work of day 77")
    again.close()


def test_a_killed_gateway_loses_at_most_the_run_under_way(home):
    running = Piped(None, TOOLS, more=("--name", "agent"))
    for number in range(3):
        work(running, number)
    runs = RunFolder(home)
    wait_until(lambda: runs.count_runs() == 2)
    running.process.send_signal(signal.SIGKILL)
    running.process.wait(60)
    assert runs.count_runs() == 2
    later = Piped(None, TOOLS, more=("--name", "agent"))
    work(later, 4)
    later.close()
    assert runs.count_runs() == 3


@pytest.mark.parametrize("pages", [[[]], [TOOLS[:1]], [[{"name": "x", "inputSchema": {}}]]])
def test_no_tool_one_tool_and_tools_without_descriptions_work(home, pages):
    running = Piped(None, *pages, top=1, more=("--name", "agent"))
    assert len(listed(running, "Feed the goldfish")) <= 1
    running.close()


def test_without_a_folder_that_can_be_written_it_goes_on_without_learning(home):
    home.parent.write_text("no folder")
    running = Piped(None, TOOLS, top=3, more=("--name", "agent"))
    assert "omega" in listed(running, "Feed the goldfish, please")
    work(running, 1)
    running.close()
    assert any("goes on without learning" in line for line in running.log)


def test_nothing_is_kept_if_that_is_wanted(home, capsys):
    running = Piped(None, TOOLS, top=3, more=("--no-keep",))
    work(running, 1)
    running.close()
    assert not home.parent.exists()
    assert run(["mcp", "--status"]) == 2
    assert "there are no runs" in capsys.readouterr().err


def test_a_damaged_model_or_line_is_no_reason_to_stop(home):
    runs = RunFolder(home)
    (home / "model").mkdir()
    (home / "model" / "config.json").write_text("{")
    (home / "history.jsonl").write_text('{"runs": 3}\n{')
    runs.path.write_text(json.dumps({"id": "1", "query": "x"}) + "\n{\n")
    running = Piped(None, TOOLS, top=3, more=("--name", "agent"))
    assert "omega" in listed(running, "Feed the goldfish, please")
    work(running, 1)
    running.close()
    assert any("starting without what was learned" in line for line in running.log)
    assert os.path.getsize(runs.path) > 100


@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode"])
def test_setup_starts_from_the_clients_own_transcripts(home, tmp_path, monkeypatch, capsys, client):
    """Those of Claude Code are there; of the others none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    sessions = []
    for session in range(4):
        calls = [
            Call("Read", {"file": "x"}),
            Call("mcp__mail__find_user", {"name": "Ann"}, "ann@corp.example"),
            Call("mcp__mail__send_mail", {"to": "ann@corp.example"}),
            Call("mcp__other__x", {}),
        ]
        if session == 3:
            calls = calls[:1]
        turns = give_times([Turn(f"Mail Ann the letter {session}", [[call] for call in calls])])
        sessions += claude_code(turns, run=str(session))
    folder = tmp_path / ".claude" / "projects" / "work"
    folder.mkdir(parents=True)
    write_lines(folder / "s.jsonl", sessions)
    (tmp_path / "servers.json").write_text('{"mcpServers": {"mail": {"command": "mail"}}}')
    words = ["mcp", "--config", "servers.json", "--name", "agent", "--setup", client]
    monkeypatch.setattr(sys, "argv", ["dtdr", *words, "--write"])
    count = 3 if client == "claude-code" else 0
    runs = "3 runs" if count else "0 runs"

    assert run(words) == 0
    assert f"would start from {runs} of these servers in" in capsys.readouterr().err
    assert not home.exists()
    for _ in range(1 + bool(count)):
        assert run([*words, "--write"]) == 0
    assert f"starts from {runs}" in capsys.readouterr().err
    if count:
        items = list(dtdr.read_demonstrations(home / "demonstrations.jsonl"))
        assert [item.plan.tools for item in items] == [("find_user", "send_mail")] * 3
        assert "ann@corp.example" not in (home / "demonstrations.jsonl").read_text()


def test_it_learns_at_3_10_30_100_runs_and_so_on():
    counts = [0]
    while counts[-1] < 3_000:
        counts.append(next_count(counts[-1]))
    assert counts == [0, 3, 10, 30, 100, 300, 1_000, 3_000]
    assert next_count(12) == 30
