"""From a raw log to a client that sees ranked tools, with the commands of docs/gateway.md."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from examples.hotel.log_formats import Call, Turn, mcp, number

import dtdr
from tests.conftest import PROJECT
from tests.gateway.helpers import NAMES
from tests.integrations.documentation import block

PAGE = (PROJECT / "docs" / "gateway.md").read_text(encoding="utf-8")
SESSIONS = 24
SERVER_SCRIPT = """
import json
from mcp.server.mcpserver import MCPServer

server = MCPServer({name!r})
for name, description in {tools!r}.items():
    def tool(name=name):
        return name
    server.add_tool(tool, name=name, description=description)
server.run("stdio")
"""


def sessions():
    """A raw log as a proxy writes it: no queries, mail work and file work in turns."""
    for run in range(SESSIONS):
        token = f"token-{run}-{'ab'[run % 2]}7781"
        calls = [
            Call("find_user", {"name": f"user {run}"}, token),
            Call("write_mail", {"to": token}, f"letter-{run}-991"),
            Call("send_mail", {"letter": f"letter-{run}-991"}, "sent"),
        ]
        if run % 2:
            calls = [
                Call("open_file", {"name": f"q{run}.pdf"}, token),
                Call("summarize_file", {"text": token}, "short"),
            ]
        for record in mcp(number([Turn("", [[call] for call in calls])]), run=str(run)):
            record.pop("query", None)
            yield record


@pytest.fixture
def folder(tmp_path):
    """What a new user has: a log, and two servers of their own."""
    (tmp_path / "sessions.jsonl").write_text(
        "".join(json.dumps(item) + "\n" for item in sessions()), encoding="utf-8"
    )
    mail = {name: text for name, text in NAMES.items() if "mail" in name or "user" in name}
    files = {name: text for name, text in NAMES.items() if name not in mail}
    for name, tools in (("mail", mail), ("files", files)):
        script = SERVER_SCRIPT.format(name=name, tools=tools)
        (tmp_path / f"{name}_server.py").write_text(script, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_the_documented_way_from_a_log_to_a_client_that_sees_the_ranked_tools(folder):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}

    def run(command):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(["sh", "-e", "-c", block("sh", PAGE)])
    for name in ("servers.json", "client.json"):
        (folder / name).write_text(block(name, PAGE), encoding="utf-8")
    seen = run([sys.executable, "-c", block("py", PAGE)]).split()

    learned = list(dtdr.read_demonstrations(folder / "demonstrations.jsonl"))
    assert len(learned) == SESSIONS
    assert learned[0].plan.calls[1].references() == ("1",)
    # The search tool, the tool that was called, and of the ranked two the one that comes next.
    assert seen[:3] == ["search_tools", "find_user", "write_mail"]
    assert len(seen) <= 4
