"""``dtdr mcp`` as clients start it: processes and sockets as they are in use."""

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import dtdr
from dtdr.cli import app
from dtdr.cli import run as run_here
from dtdr.cli.output import PrintableFormatter
from dtdr.errors import InputError
from tests.command_line import invoke, is_one_sentence, start
from tests.gateway.helpers import (
    NAMES,
    command,
    http_server,
    journal_of,
    names,
    text,
    until,
    wait_for_port,
)
from tests.ports import free_port

# On a busy machine, servers take long to start.
_WAIT_LONG = "from dtdr.agents.gateway import gateway; gateway.START_SECONDS = 120"
PATIENT = (sys.executable, "-c", f"{_WAIT_LONG}; from dtdr.cli import main; main()")
pytestmark = pytest.mark.anyio

INTENT: Any = {"dtdr/intent": "Shorten it"}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    model.save(path)
    return path


def is_running(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.slow), "auto"])
async def test_a_client_starts_the_gateway_and_its_servers_and_calls_through_it(
    folder, tmp_path, mode
):
    config, learned = tmp_path / "servers.json", tmp_path / "learned" / "demonstrations.jsonl"
    journal, pid = tmp_path / "journal", tmp_path / "pid"
    server, *rest = command(tools=30, names=NAMES, journal=str(journal), pid=str(pid))
    config.write_text(json.dumps({"mcpServers": {"c": {"command": server, "args": rest}}}))
    options = ["mcp", folder, "--top-k", 2, "--learn", learned, "--config", config]
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    servers = ["--", *command(prefix="a_", tools=1), "--", url]
    words = [*PATIENT[1:], *map(str, options), *servers]
    long = "ü" * 1_000_000
    program = StdioServerParameters(command=PATIENT[0], args=words, env=dict(os.environ))
    with http_server(port, special=True):
        async with Client(program, mode=mode) as client:
            shown = await names(client)
            result = await client.call_tool("tool_5", {"id": "7", "text": long}, meta=INTENT)
            for tool in ("a_tool_0", "log"):
                await client.call_tool(tool, {"id": "1"}, meta=INTENT)
            after = await names(client)
    assert len(shown) == 2
    assert json.loads(text(result)) == {"tool": "tool_5", "id": "7", "text": long}
    assert {"tool_5", "a_tool_0", "log"} <= set(after)
    assert journal_of(journal) == ["7"]
    await until(lambda: not is_running(int(pid.read_text())))
    await until(lambda: learned.exists() and learned.read_text())
    (found,) = dtdr.read_demonstrations(learned)
    assert (found.query, found.plan.tools) == ("Shorten it", ("tool_5", "a_tool_0", "log"))


async def test_over_http_clients_with_the_key_have_a_list_each_and_ctrl_c_keeps_the_runs(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("DTDR_MCP_KEY", "open sesame")
    port, learned = free_port(), tmp_path / "demonstrations.jsonl"
    words = ["mcp", folder, "--http", str(port), "--top-k", "1", "--learn", learned]
    process = start([*words, "--", *command(tools=30, names=NAMES)], PATIENT)
    try:
        wait_for_port(port)
        url = f"http://127.0.0.1:{port}/mcp"
        async with httpx2.AsyncClient(timeout=60) as http:
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                assert (await http.post(url, json={}, headers=headers)).status_code == 401
        allowed = {"Authorization": "Bearer open sesame"}
        for mode in ("legacy", "auto"):
            async with (
                httpx2.AsyncClient(headers=allowed, timeout=60) as http,
                Client(streamable_http_client(url, http_client=http), mode=mode) as one,
                Client(streamable_http_client(url, http_client=http), mode=mode) as other,
            ):
                meta: list[Any] = [
                    {"dtdr/session": name} if mode == "auto" else {} for name in ("one", "other")
                ]
                await one.call_tool("tool_3", {"id": "1"}, meta=meta[0])
                first = [tool.name for tool in (await one.list_tools(meta=meta[0])).tools]
                second = [tool.name for tool in (await other.list_tools(meta=meta[1])).tools]
            assert "tool_3" in first, mode
            assert "tool_3" not in second, mode
        process.send_signal(signal.SIGINT)
        await anyio.to_thread.run_sync(process.wait, 60)
    finally:
        process.kill()
        _, error = process.communicate()

    assert process.returncode == 130
    assert "Traceback" not in error.decode()
    assert [item.plan.tools for item in dtdr.read_demonstrations(learned)] == [("tool_3",)] * 2


@pytest.mark.parametrize("over", ["pipes", pytest.param("http", marks=pytest.mark.slow)])
async def test_a_gateway_that_is_terminated_keeps_the_runs_and_lines_that_are_no_messages_end_none(
    folder, tmp_path, over
):
    path = tmp_path / "demonstrations.jsonl"
    port = free_port()
    words = ["--http", str(port)] if over == "http" else []
    talking = ["sh", "-c", 'echo Server is ready; exec "$@"', "sh", *command(names=NAMES)]
    process: Any = start(
        ["mcp", folder, *words, "--learn", path, "--", *talking],
        stdin=subprocess.PIPE,
    )
    try:
        if over == "http":
            wait_for_port(port)
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                await client.call_tool("open_file", {"id": "1"})
        else:
            call = {"name": "open_file", "arguments": {"id": "1"}}
            messages: list[dict[str, Any]] = [
                {"id": 1, "method": "initialize", "params": HELLO},
                {"method": "notifications/initialized", "params": {}},
                {"id": 2, "method": "tools/call", "params": call},
            ]
            lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
            for line in ('{"jsonrpc": "2.0"', "\x00", "[]", *lines):
                process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            answers: list[int] = []
            while answers != [1, 2]:
                line = await anyio.to_thread.run_sync(process.stdout.readline)
                answers += [json.loads(line)["id"]] if "result" in json.loads(line) else []
        assert path.read_text() == ""
        process.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(process.wait, 60)
    finally:
        process.kill()
        _, error = process.communicate()

    assert (process.returncode, error) == (0, b"")
    (found,) = dtdr.read_demonstrations(path)
    assert found.plan.tools == ("open_file",)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name at least one upstream"),
        (["--http", "none", "--", "x"], "--http"),
        (["--http", "0.0.0.0:8000", "--", "x"], "DTDR_MCP_KEY"),
        (["--sticky", "very", "--", "x"], "sticky"),
        (["--coverage", "0.9", "--", "x"], "no calibrated coverage"),
        (["--config", "/no/such/file.json"], "cannot read"),
    ],
)
def test_misuse_says_what_is_wrong(folder, arguments, says):
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        invoke(app, "mcp", folder, *arguments)

    assert caught.value.exit_code == 2


def test_a_port_in_use_is_one_sentence(folder, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_here(["mcp", str(folder), "--http", str(port), "--", "true"]) == 2
    assert f"port {port}: address already in use; choose another" in capsys.readouterr().err


def test_without_the_sdk_the_extra_is_named(folder, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("dtdr.agents.gateway")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert run_here(["mcp", str(folder), "--", "x"]) == 1
    error = capsys.readouterr().err
    assert is_one_sentence(error)
    assert "pip install 'dtdr[mcp]'" in error


ESCAPE = "\x1b]0;owned\x07\x9b2J\u202e"
ESCAPED = r"\x1b]0;owned\x07\x9b2J\u202e"


def test_a_line_of_the_log_cannot_be_forged():
    formatter = PrintableFormatter("dtdr: %(message)s")
    try:
        raise ValueError(f"bad{ESCAPE}")
    except ValueError:
        failure = sys.exc_info()
    record = logging.LogRecord("x", 30, "", 1, "%s", (f"away\ndtdr: {ESCAPE}",), failure)
    first, *traceback = formatter.format(record).split("\n")

    assert first == rf"dtdr: away\ndtdr: {ESCAPED}"
    assert traceback[-1] == f"ValueError: bad{ESCAPED}"
