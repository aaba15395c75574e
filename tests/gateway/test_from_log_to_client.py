"""From a raw log to a client that sees ranked tools, with the commands of docs/gateway.md."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def message(session, second, identifier, server="", **content):
    stamp = f"2026-03-01T{session // 60:02}:{session % 60:02}:{second:02}Z"
    envelope = {"timestamp": stamp, "session_id": f"s{session}", "server": server}
    return {**envelope, "message": {"jsonrpc": "2.0", "id": identifier, **content}}


def sessions():
    """A raw log as a proxy writes it: no queries, mail work and file work in turns."""
    listed = [
        {"name": name, "description": text, "inputSchema": {"type": "object", "properties": {}}}
        for name, text in NAMES.items()
    ]
    for number in range(SESSIONS):
        token = f"token-{number}-{'ab'[number % 2]}7781"
        if number % 2:
            steps = [("open_file", {"name": f"q{number}.pdf"}), ("summarize_file", {"text": token})]
        else:
            steps = [
                ("find_user", {"name": f"user {number}"}),
                ("write_mail", {"to": token}),
                ("send_mail", {"letter": f"letter-{number}-991"}),
            ]
        yield message(number, 0, 0, method="initialize", params={})
        yield message(number, 1, 1, method="tools/list")
        yield message(number, 2, 1, result={"tools": listed})
        for place, (tool, arguments) in enumerate(steps):
            params = {"name": tool, "arguments": arguments}
            output = (token, f"letter-{number}-991", "sent")[place]
            content = [{"type": "text", "text": output}]
            yield message(number, 10 + 2 * place, 2 + place, method="tools/call", params=params)
            yield message(number, 11 + 2 * place, 2 + place, result={"content": content})


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
